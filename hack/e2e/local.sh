#!/usr/bin/env bash
# Runs the end-to-end suite on a node that it makes of this machine and takes down again (see hack/node/node.sh).
#
# The images are built here on an empty base: of this tree, of this tree under another version for the rolling update,
# and of the baseline for the upgrade. The baseline's manager is built from its commit; in a shallow clone, which lacks
# that commit, it is this tree's, so that only the manifests are old, which is said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot PLATFORMS BASE=scratch BUILDER=buildah

readonly baseline=c0e695228167 # the commit whose config/default is hack/e2e/testdata/baseline.yaml
readonly name=localhost/tocsin node=hack/node/node.sh
PLATFORMS=linux/$(go env GOARCH)

say() { echo "e2e-local: $*" >&2; }

scratch=$(mktemp -d)
cleanup() {
  local status=$?
  if [ "$status" != 0 ] && [ -d /var/lib/tocsin-node/log ]; then
    mkdir -p bin/e2e && cp -r /var/lib/tocsin-node/log bin/e2e/
    say "the node's logs are in bin/e2e/log"
  fi
  if [ "${started:-}" ]; then "$node" down; fi
  rm -rf "$scratch"
  exit "$status"
}
trap cleanup EXIT

# export_tree FOLDER [COMMIT]: the files of a commit, or else those of this tree, in another place.
export_tree() {
  mkdir -p "$1"
  if [ "${2:-}" ]; then
    git archive "$2" | tar -xf - -C "$1"
  else
    git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$1"
  fi
}

# reproducible: the same tree in another place gives the same bytes.
reproducible() {
  export_tree "$scratch/again"
  make --no-print-directory image-files | tee "$scratch/first"
  make --no-print-directory -C "$scratch/again" image-files | diff "$scratch/first" - || {
    say "two builds of the same tree differ"
    return 1
  }
}

images() {
  make --no-print-directory image IMG="$name:e2e"
  "bin/image/$PLATFORMS/manager" --version
  make --no-print-directory image IMG="$name:next" VERSION="$VERSION-next"
  if git cat-file -e "$baseline^{commit}" 2>/dev/null; then
    export_tree "$scratch/baseline" "$baseline"
    (cd "$scratch/baseline" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=baseline" \
      -o "$OLDPWD/bin/image/$PLATFORMS/manager" .)
  else
    say "THE BASELINE'S COMMIT $baseline IS NOT IN THIS CLONE: its manifests are upgraded, with this tree's manager"
  fi
  buildah build --tag "$name:baseline" --platform "$PLATFORMS" --build-arg BASE=scratch . >/dev/null
}

reproducible
images
started=yes
KUBECONFIG=$("$node" up)
for tag in e2e next baseline; do
  "$node" load "$name:$tag"
done
export KUBECONFIG IMG=$name:e2e NEXT_IMG=$name:next BASELINE_IMG=$name:baseline SHELL_IMG=localhost/tocsin-node-busybox:1
export E2E_RESTART_APISERVER="$node restart-apiserver" E2E_REBOOT_NODE="$node reboot"
PATH=$PWD/bin/control-plane:$PATH go test -count=1 -timeout=30m -tags=e2e -v ${E2E_FLAGS:-} ./hack/e2e
