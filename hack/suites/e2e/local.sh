#!/usr/bin/env bash
# Runs the end-to-end suite on a node that it makes of this machine and takes down again (see hack/node.sh).
#
# The images are built here on an empty base: of this tree, of this tree under another version for the rolling update,
# and of the baseline for the upgrade. The baseline's manager is built from its commit; in a shallow clone, which lacks
# that commit, it is this tree's, so that only the manifests are old, which is said.
#
# Whatever is missing here makes it fail; nothing is left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot BASE=scratch BUILDER=buildah

baseline=$(<hack/suites/baseline/commit) # config/default of it is hack/suites/baseline/manifests.yaml
readonly baseline
readonly name=localhost/tocsin node=hack/node.sh
platform=linux/$(go env GOARCH)
readonly platform
export CONTAINERS_STORAGE_CONF

say() { echo "e2e-local: $*" >&2; }

scratch=$(mktemp -d)
cleanup() {
  local status=$?
  if [ "$status" != 0 ] && [ -d /var/lib/tocsin-node/log ]; then
    mkdir -p bin/e2e && cp -r /var/lib/tocsin-node/log bin/e2e/
    say "the node's logs are in bin/e2e/log"
  fi
  wait # for the node, if it is still coming up
  if [ "${started:-}" ]; then "$node" down; fi
  rm -rf "$scratch"
  exit "$status"
}
trap cleanup EXIT

# The images go when this ends, and none of the machine's own is touched.
CONTAINERS_STORAGE_CONF=$scratch/storage.conf
cat >"$CONTAINERS_STORAGE_CONF" <<END
[storage]
driver = "vfs"
graphroot = "$scratch/images"
runroot = "$scratch/run"
END

# export_tree FOLDER [COMMIT]: the files of a commit, or else those of this tree, in another place.
export_tree() {
  mkdir -p "$1"
  if [ "${2:-}" ]; then
    git archive "$2" | tar -xf - -C "$1"
  else
    git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$1"
  fi
}

# reproducible makes the image of this tree, and again in another place: the same bytes. "make release-dry-run" does that
# for all platforms.
reproducible() {
  local pass folder
  rm -rf bin/image
  for pass in e2e again; do
    folder=.
    if [ "$pass" = again ]; then
      folder=$scratch/again
      export_tree "$folder"
    fi
    make --no-print-directory -C "$folder" image IMG="$name:$pass" PLATFORMS="$platform"
    buildah inspect --type image --format '{{.FromImageID}}' "$name:$pass" >"$scratch/$pass.id"
  done
  if diff -r bin/image "$scratch/again/bin/image" && diff "$scratch/e2e.id" "$scratch/again.id"; then
    say "two builds, one digest: $(sha256sum bin/image/linux/*/manager | tr -s '\n ' ' ')"
  else
    say "two builds of the same tree differ"
    return 1
  fi
  "bin/image/$platform/manager" --version
}

images() {
  make --no-print-directory image IMG="$name:next" VERSION="$VERSION-next" PLATFORMS="$platform"
  if git cat-file -e "$baseline^{commit}" 2>/dev/null; then
    export_tree "$scratch/baseline" "$baseline"
    (cd "$scratch/baseline" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=baseline" \
      -o "$OLDPWD/bin/image/$platform/manager" .)
  else
    say "THE BASELINE'S COMMIT $baseline IS NOT IN THIS CLONE: its manifests are upgraded, with this tree's manager"
  fi
  buildah build --tag "$name:baseline" --platform "$platform" --build-arg BASE=scratch . >/dev/null
  rm -rf bin/image # what it has by now is not this tree's
}

"$node" check
started=yes
"$node" up >"$scratch/kubeconfig" &
up=$!
reproducible
images
wait "$up"
KUBECONFIG=$(cat "$scratch/kubeconfig")
export KUBECONFIG PATH=$PWD/bin/control-plane:$PATH
hack/modules/crds/apply.sh >/dev/null
for tag in e2e next baseline; do
  "$node" load "$name:$tag"
done
export IMG=$name:e2e NEXT_IMG=$name:next BASELINE_IMG=$name:baseline SHELL_IMG=localhost/tocsin-node-busybox:1
export E2E_RESTART_APISERVER="$node restart-apiserver" E2E_REBOOT_NODE="$node reboot" E2E_COMPLETE=yes
# shellcheck disable=SC2086 # several flags
go test -C hack/suites -count=1 -timeout=30m -tags=e2e -v ${E2E_FLAGS:-} ./e2e
say "passed in $SECONDS s"
