#!/usr/bin/env bash
# Publishes the artifacts in RELEASE: the images, the bundle and the chart to the registry of REPOSITORY, with signatures, and
# everything else as a release of GitHub, as a draft until all of it is there. "make publish" calls it; it is the only
# command of the project that uploads.
#
# The signatures are keyless: cosign gets a certificate for the identity of the workflow that runs this. REGISTRY is for tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

: "${VERSION:?}" "${REPOSITORY:?}" "${RELEASE:?}"

case $VERSION in
*+* | *-dev*)
  echo "publish: $VERSION is no release; check out a tag" >&2
  exit 1
  ;;
esac
notes=$(mktemp)
references=$(mktemp)
trap 'rm -f "$notes" "$references"' EXIT
# What can fail without having published anything comes first.
hack/release/notes.sh "$VERSION" >"$notes"
bin/release-tool verify -version "$VERSION" "$RELEASE"

if [ -n "${REGISTRY_TOKEN:-}" ]; then
  docker login ghcr.io --username "${REGISTRY_USER:?}" --password-stdin <<<"$REGISTRY_TOKEN"
fi
bin/release-tool push -version "$VERSION" -repository "$REPOSITORY" ${REGISTRY:+-registry "$REGISTRY"} "$RELEASE" >"$references"
while read -r reference; do
  bin/tools/cosign sign --yes "$reference"
  case $reference in
  */charts/*) kind=chart ;;
  */tocsin@*) kind=image ;;
  *) kind=${reference##*/tocsin-} kind=${kind%@*} ;;
  esac
  # For the steps of the workflow that attest where they come from.
  printf '%s=%s\n' "$kind" "${reference%@*}" "$kind-digest" "${reference#*@}" | tee -a "${GITHUB_OUTPUT:-/dev/null}"
done <"$references"
bin/tools/cosign sign-blob --yes --bundle "$RELEASE/checksums.txt.sigstore.json" "$RELEASE/checksums.txt"

prerelease=()
case $VERSION in *-*) prerelease=(--prerelease) ;; esac
gh release create "$VERSION" --repo "${REPOSITORY#github.com/}" --verify-tag --draft "${prerelease[@]}" --title "$VERSION" \
  --notes-file "$notes" "$RELEASE"/*
gh release edit "$VERSION" --repo "${REPOSITORY#github.com/}" --draft=false
