#!/usr/bin/env bash
# Makes sure that there are etcd, kube-apiserver and kubectl for the tests and for "make run".
#
# Where they come from, the first that works:
#   1. KUBEBUILDER_ASSETS, when set.
#   2. bin/control-plane, filled by an earlier run for the same versions.
#   3. setup-envtest, which downloads them. Without a connection this gives up within seconds.
#   4. Their Go modules (hack/modules/controlplane), which takes about five minutes on two cores, once.
#
# CONTROL_PLANE=build skips the download. Everything is said on stderr.
#
# hack/control-plane.sh VERSION, such as 1.31.14, builds etcd and kube-apiserver of that Kubernetes version into
# bin/control-plane-VERSION, with the etcd that this version's modules select. kubectl is the one of bin/control-plane.
# The module for it needs no go.sum of ours: the checksum database has the hashes of every version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly version=${1:-}
readonly folder=bin/control-plane${version:+-$version}
module=hack/modules/controlplane
readonly reach_seconds=10     # to find out whether the download can work at all
readonly download_seconds=120 # for the download itself
readonly index=https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml

say() { echo "control-plane: $*" >&2; }

# complete FOLDER: whether the folder has all that is needed.
complete() { [ -x "$1/etcd" ] && [ -x "$1/kube-apiserver" ] && [ -x "$1/kubectl" ]; }

# within SECONDS COMMAND...: runs the command, which is killed when it takes longer.
within() {
  local seconds=$1 job watchdog status=0
  shift
  "$@" &
  job=$!
  # It lets go of stdout: whoever waits for the end of this command's output must not wait for the watchdog.
  { sleep "$seconds" && kill "$job"; } >/dev/null 2>&1 &
  watchdog=$!
  wait "$job" 2>/dev/null || status=$?
  { kill "$watchdog" && wait "$watchdog"; } 2>/dev/null || true
  return "$status"
}

# module_version PATH: the version that the control plane's module selects.
module_version() { (cd "$module" && GOWORK=off go list -m -f '{{.Version}}' "$1"); }

# install_from FOLDER: the finished folder takes its place, with a note of what it was made for.
install_from() {
  echo "$key" >"$1/.key"
  rm -rf "$folder"
  mv "$1" "$folder"
}

download() {
  local setup=bin/tools/setup-envtest wanted path
  # Building the tool takes longer than to find out that there is no connection.
  if command -v curl >/dev/null; then
    curl --silent --fail --head --location --max-time "$reach_seconds" --output /dev/null "$index" || return 1
  fi
  wanted="${kubernetes#v}"
  wanted="${wanted%.*}.x"
  make --no-print-directory -s "$setup" >&2 || return 1
  within "$reach_seconds" "$setup" list "$wanted" --bin-dir "$scratch/envtest" >/dev/null 2>&1 || return 1
  say "downloading Kubernetes $wanted"
  path=$(within "$download_seconds" "$setup" use "$wanted" --bin-dir "$scratch/envtest" -p path 2>/dev/null) || return 1
  mkdir -p "$scratch/downloaded"
  cp "$path"/* "$scratch/downloaded/" || return 1
  complete "$scratch/downloaded" || return 1
  install_from "$scratch/downloaded"
}

# build builds all programs with one command, so that no link waits for the other programs.
build() {
  say "building etcd $etcd and Kubernetes $kubernetes from source;"
  say "this is done once and takes about five minutes on two cores"
  local start=$SECONDS variables=k8s.io/component-base/version minor="${kubernetes#v*.}"
  local packages=(go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver)
  mkdir -p "$scratch/built"
  if [ -n "$version" ]; then
    ln -s ../control-plane/kubectl "$scratch/built/kubectl"
  else
    packages+=(k8s.io/kubernetes/cmd/kubectl)
    # Meanwhile, what the project itself needs is downloaded.
    go list -deps -test ./... >/dev/null 2>&1 &
  fi
  (cd "$module" && GOWORK=off GOGC=off GOMEMLIMIT=1GiB go build -o "$scratch/built/" -ldflags "-s -w \
    -X $variables.gitVersion=$kubernetes -X $variables.gitMajor=1 -X $variables.gitMinor=${minor%%.*} \
    -X $variables.gitTreeState=clean" "${packages[@]}")
  mv "$scratch/built/server" "$scratch/built/etcd"
  install_from "$scratch/built"
  say "built in $((SECONDS - start)) s"
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
  complete "$KUBEBUILDER_ASSETS" && exit 0
  say "KUBEBUILDER_ASSETS is $KUBEBUILDER_ASSETS, which lacks etcd, kube-apiserver or kubectl"
  exit 1
fi

# The key of what is wanted: the module's versions.
key=${version:-$(git hash-object "$module/go.mod")}
readonly key
if complete "$folder" && [ "$(cat "$folder/.key" 2>/dev/null)" = "$key" ]; then
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

if [ -z "$version" ] && [ "${CONTROL_PLANE:-}" != build ]; then
  download && exit 0
  say "cannot download the binaries"
fi
build
