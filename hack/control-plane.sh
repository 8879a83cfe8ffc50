#!/usr/bin/env bash
# Makes sure that there are etcd, kube-apiserver and kubectl for the tests and for "make run".
#
# hack/control-plane.sh servers leaves kubectl out, which nobody waits for to serve.
#
# Where they come from, the first that works:
#   1. KUBEBUILDER_ASSETS, when set.
#   2. bin/control-plane, filled by an earlier run for the same versions.
#   3. setup-envtest, which downloads them. Without a connection this gives up within seconds.
#   4. Their Go modules (hack/modules/controlplane), once: minutes on two cores. The packages of the project that "make run" needs
#      are compiled with them, since they import most of the same.
#
# CONTROL_PLANE=build skips the download. Everything is said on stderr.
#
# hack/control-plane.sh VERSION, such as 1.31.14, builds etcd and kube-apiserver of that Kubernetes version into
# bin/control-plane-VERSION, with the etcd that this version's modules select. kubectl is the one of bin/control-plane.
# The module for it needs no go.sum of ours: the checksum database has the hashes of every version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${1:-} wanted='etcd kube-apiserver kubectl'
if [ "$version" = servers ]; then
  version='' wanted='etcd kube-apiserver'
fi
readonly version wanted
readonly folder=bin/control-plane${version:+-$version}
module=hack/modules/controlplane
readonly reach_seconds=10     # to find out whether the download can work at all
readonly download_seconds=120 # for the download itself
readonly index=https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml

say() { echo "control-plane: $*" >&2; }

# has FOLDER PROGRAM...: whether the folder has the programs.
has() {
  local folder=$1 program
  shift
  for program in "$@"; do [ -x "$folder/$program" ] || return 1; done
}

# module_version PATH: the version that the control plane's module selects.
module_version() { (cd "$module" && GOWORK=off go list -m -f '{{.Version}}' "$1"); }

# install FOLDER: the finished programs take their place, with a note of what they were made for.
install() {
  echo "$key" >"$1/.key"
  if [ "$(cat "$folder/.key" 2>/dev/null)" != "$key" ]; then rm -rf "$folder"; fi
  mkdir -p "$folder"
  mv "$1"/* "$1/.key" "$folder"
}

download() {
  local setup=bin/tools/setup-envtest minor path
  # Building the tool takes longer than to find out that there is no connection.
  if command -v curl >/dev/null; then
    curl --silent --fail --head --location --max-time "$reach_seconds" --output /dev/null "$index" || return 1
  fi
  minor="${kubernetes#v}"
  minor="${minor%.*}.x"
  command -v timeout >/dev/null || return 1
  make --no-print-directory -s "$setup" >&2 || return 1
  timeout --foreground "$reach_seconds" "$setup" list "$minor" --bin-dir "$scratch/envtest" >/dev/null 2>&1 || return 1
  say "downloading Kubernetes $minor"
  path=$(timeout --foreground "$download_seconds" "$setup" use "$minor" --bin-dir "$scratch/envtest" -p path 2>/dev/null) ||
    return 1
  mkdir -p "$scratch/downloaded"
  cp "$path"/* "$scratch/downloaded/" || return 1
  has "$scratch/downloaded" etcd kube-apiserver kubectl || return 1
  install "$scratch/downloaded"
}

# build PROGRAM...: builds the programs with one command, so that no link waits for other programs.
build() {
  local program packages=() variables=k8s.io/component-base/version minor="${kubernetes#v*.}" workspace=off
  mkdir -p "$scratch/built"
  for program in "$@"; do
    case $version$program in
      *etcd) packages+=(go.etcd.io/etcd/server/v3) ;;
      [0-9]*kubectl) ln -s ../control-plane/kubectl "$scratch/built/kubectl" ;;
      *) packages+=("k8s.io/kubernetes/cmd/$program") ;;
    esac
  done
  if [ -z "$version" ]; then
    workspace=$PWD/$module/go.work
    # What is wanted next has most packages in common with it: all of . and ./hack/devcluster but themselves.
    packages+=(github.com/tocsin-dev/tocsin/{internal/app,hack/lib/testenv,internal/live})
    # The standard library can be compiled while modules are downloaded.
    go build net/http/httputil html/template &
  fi
  say "building $* of Kubernetes $kubernetes with etcd $etcd, once"
  # With "go build -o", only programs would be compiled.
  BUILDING="the control plane" GOWORK=$workspace GOBIN=$scratch/built hack/build.sh install -C "$module" -ldflags "-s -w \
    -X $variables.gitVersion=$kubernetes -X $variables.gitMajor=1 -X $variables.gitMinor=${minor%%.*} \
    -X $variables.gitTreeState=clean" "${packages[@]}"
  [ ! -e "$scratch/built/server" ] || mv "$scratch/built/server" "$scratch/built/etcd"
  install "$scratch/built"
  say "built in $SECONDS s"
}

# make_module writes a module that requires Kubernetes of the version into $scratch/module. Kubernetes requires each of its
# own modules as v0.0.0, so each has to be replaced by the release with the same number.
make_module() {
  local own requirements
  module=$scratch/module
  mkdir "$module"
  requirements=$(cd "$module" && GOWORK=off go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p') || {
    say "cannot download the module of Kubernetes $version"
    return 1
  }
  {
    printf 'module controlplane\n\ngo %s\n\n' "$(go env GOVERSION | sed 's/^go//')"
    printf 'require k8s.io/kubernetes v%s\n' "$version"
    for own in $(sed -n 's|^\t\(k8s.io/[^ ]*\) => ./staging/.*|\1|p' "$requirements"); do
      printf 'replace %s => %s v0.%s\n' "$own" "$own" "${version#1.}"
    done
  } >"$module/go.mod"
}

if [ -z "$version" ] && [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  # shellcheck disable=SC2086 # names of programs
  has "$KUBEBUILDER_ASSETS" $wanted && exit 0
  say "KUBEBUILDER_ASSETS is $KUBEBUILDER_ASSETS, which lacks one of $wanted"
  exit 1
fi

# The key of what is wanted: the module's versions.
key=${version:-$(git hash-object "$module/go.mod")}
readonly key
missing=()
for program in $wanted; do
  if [ "$(cat "$folder/.key" 2>/dev/null)" != "$key" ] || [ ! -x "$folder/$program" ]; then missing+=("$program"); fi
done
if [ ${#missing[@]} = 0 ]; then
  exit 0
fi

mkdir -p bin
scratch=$(mktemp -d "$PWD/bin/.control-plane-XXXXXX")
readonly scratch
trap 'rm -rf "$scratch"' EXIT
if [ -n "$version" ]; then
  make_module
  export GOFLAGS="${GOFLAGS:-} -mod=mod"
fi
kubernetes=$(module_version k8s.io/kubernetes)
etcd=$(module_version go.etcd.io/etcd/server/v3)
readonly kubernetes etcd

if [ -z "$version" ] && [ "${CONTROL_PLANE:-}" != build ] && [ "${missing[0]}" = etcd ]; then
  download && exit 0
  say "cannot download the binaries"
fi
build "${missing[@]}"
