#!/usr/bin/env bash
# Raises the requirements of the modules that "make run" and "make test-all" build, until all of them select the same versions of
# what they share. Go then compiles each shared package once, and not once for each version: with two versions of k8s.io/api,
# nearly everything is compiled twice.
#
# hack/align.sh --check says what differs, and fails if something does.
# hack/align.sh --sums writes the go.work.sum of the workspace in which the control plane and the project are built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${1:-}" = --sums ]; then
  cd hack/modules/controlplane
  rm -f go.work.sum
  go list -deps tool ../../../... >/dev/null
  exit
fi
export GOWORK=off

# Each module, and the packages that are built.
readonly modules='. ./...
hack/gen ./...
hack/release ./...
hack/suites ./...
hack/modules/controlplane tool
hack/modules/helm tool
hack/modules/node tool
hack/modules/tools tool'

# selected MODULE PACKAGES: a line for each module that the packages need: MODULE, its path and its version.
selected() {
  go list -C "$1" -deps -test -f '{{with .Module}}{{if not (or .Main .Replace)}}{{.Path}} {{.Version}}{{end}}{{end}}' "$2" |
    sort -u | sed "s|^|$1 |"
}

# lower: lines of selected whose path another line has with a higher version, with that version. In the order of versions, a tilde
# is before the end, as the hyphen of a pre-release is for Go.
lower() {
  sed 's/-/~/g' | sort -k2,2 -k3,3Vr |
    awk '$2 != path { path = $2; highest = $3 } $3 != highest { print $1, $2, highest }' | tr '~' '-'
}

# all: the lines of lower for all modules.
all() {
  while read -r module packages; do selected "$module" "$packages"; done <<<"$modules" | lower
}

while different=$(all) && [ -n "$different" ]; do
  if [ "${1:-}" = --check ]; then
    echo "$different" | sed 's/^/align: /' >&2
    echo 'align: "make tidy" raises these' >&2
    exit 1
  fi
  while read -r module _; do
    mapfile -t wanted < <(echo "$different" | awk -v module="$module" '$1 == module { print $2 "@" $3 }')
    if [ ${#wanted[@]} -gt 0 ]; then go get -C "$module" "${wanted[@]}"; fi
  done <<<"$modules"
done
