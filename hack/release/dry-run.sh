#!/usr/bin/env bash
# Builds a release twice, compares the builds, signs the first one with a key made for it, and verifies everything as a
# user would. It publishes nothing. "make release-dry-run" calls it, with VERSION, COMMIT, DATE, REPOSITORY and
# RELEASE_PLATFORMS of the Makefile.
#
# It builds the commit, not the work tree, in two clones in different folders. The second build begins with an empty
# build cache, so that the cache cannot hide a difference. SECOND_CACHE names another one: a dry run in half the time,
# which proves less, and says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly root=$PWD tools=$PWD/bin/tools artifacts=$PWD/bin/release
platform=$(go env GOHOSTOS)/$(go env GOHOSTARCH)
scratch=$(mktemp -d)
trap 'stop_registry; chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
start=$SECONDS
VERSION=${VERSION%.dirty} # it builds the commit

say() { printf '\n== %s (%s s)\n' "$*" "$((SECONDS - start))"; }

stop_registry() { [ -z "${registry_pid:-}" ] || kill "$registry_pid" 2>/dev/null || true; }

# build NUMBER FOLDER CACHE: builds the commit in a clone of its own.
build() {
  local clone=$scratch/$2
  git clone -q "$root" "$clone"
  git -C "$clone" checkout -q "$COMMIT"
  GOCACHE=$3 make --no-print-directory -s -C "$clone" release-artifacts RELEASE="$scratch/artifacts-$1" \
    VERSION="$VERSION" COMMIT="$COMMIT" DATE="$DATE" REPOSITORY="$REPOSITORY" RELEASE_PLATFORMS="$RELEASE_PLATFORMS"
  rm -rf "$clone"
}

# key: makes a key that nobody keeps.
key() { (cd "$scratch" && COSIGN_PASSWORD= "$tools/cosign" generate-key-pair >/dev/null 2>&1); }

# provenance: prints what was built from what, see https://slsa.dev/spec/v1.1/provenance.
provenance() {
  local process=https://$REPOSITORY/blob/$COMMIT/RELEASE.md#the-dry-run
  printf '{"buildDefinition":{"buildType":"%s","externalParameters":{"version":"%s","platforms":"%s"},
    "resolvedDependencies":[{"uri":"git+https://%s","digest":{"gitCommit":"%s"}}]},"runDetails":{"builder":{"id":"%s"}}}' \
    "$process" "$VERSION" "$RELEASE_PLATFORMS" "$REPOSITORY" "$COMMIT" "$process"
}

# signed: signs the list of checksums and a statement of where it comes from, verifies both, and shows that a changed list
# does not pass. The workflow has GitHub's generator write the statement, from what it knows of the run.
signed() {
  local bundle=$scratch/checksums.txt.sigstore.json
  local offline=(--key "$scratch/cosign.pub" --insecure-ignore-tlog=true)
  COSIGN_PASSWORD='' "$tools/cosign" sign-blob --yes --key "$scratch/cosign.key" --use-signing-config=false --tlog-upload=false \
    --bundle "$bundle" "$artifacts/checksums.txt" >/dev/null
  "$tools/cosign" verify-blob "${offline[@]}" --bundle "$bundle" "$artifacts/checksums.txt"
  COSIGN_PASSWORD='' "$tools/cosign" attest-blob --yes --key "$scratch/cosign.key" --use-signing-config=false --tlog-upload=false \
    --type slsaprovenance1 --predicate <(provenance) --bundle "$scratch/provenance.sigstore.json" "$artifacts/checksums.txt" >/dev/null
  "$tools/cosign" verify-blob-attestation "${offline[@]}" --type slsaprovenance1 --bundle "$scratch/provenance.sigstore.json" \
    "$artifacts/checksums.txt"
  sed 's/^./x/' "$artifacts/checksums.txt" >"$scratch/forged"
  if "$tools/cosign" verify-blob "${offline[@]}" --bundle "$bundle" "$scratch/forged" 2>/dev/null; then
    echo 'release: a forged list of checksums passes the verification' >&2
    return 1
  fi
  if "$tools/cosign" verify-blob-attestation "${offline[@]}" --type slsaprovenance1 --bundle "$scratch/provenance.sigstore.json" \
    "$scratch/forged" 2>/dev/null; then
    echo 'release: the provenance of one list of checksums passes for another' >&2
    return 1
  fi
  (cd "$artifacts" && sha256sum --quiet --check checksums.txt)
}

# krew: checks the manifest with krew's own validator, installs the archive of every platform, and runs what is this
# machine's, also to complete a command line.
krew() {
  local system arch archive output
  "$tools/validate-krew-manifest" -manifest "$artifacts/tocsin.yaml" -skip-install 2>"$scratch/validation" || {
    cat "$scratch/validation" >&2
    return 1
  }
  mkdir -p "$scratch/bin"
  ln -sf "$tools/krew" "$scratch/bin/kubectl-krew"
  ln -sf "$root/bin/control-plane/kubectl" "$scratch/bin/kubectl"
  for archive in "$artifacts"/kubectl-tocsin_*.tar.gz "$artifacts"/kubectl-tocsin_*.zip; do
    [ -e "$archive" ] || continue
    system=${archive%_*} arch=${archive##*_}
    system=${system##*_} arch=${arch%%.*}
    output=$(KREW_ROOT=$scratch/krew-$system-$arch KREW_OS=$system KREW_ARCH=$arch PATH=$scratch/bin:$PATH \
      kubectl krew install --manifest="$artifacts/tocsin.yaml" --archive="$archive" 2>&1 </dev/null) || {
      echo "$output" >&2
      return 1
    }
    echo "krew installed $(basename "$archive")"
  done
  export KREW_ROOT=$scratch/krew-${platform/\//-}
  export PATH=$KREW_ROOT/bin:$scratch/bin:$PATH
  output=$(kubectl tocsin version)
  echo "$output"
  grep -qF " $VERSION " <<<"$output"
  # The command of the manifest's caveats.
  eval "$(sed -n 's/^ *\(ln -sf kubectl-tocsin .*\)/\1/p' "$artifacts/tocsin.yaml")"
  output=$(kubectl __complete tocsin ver 2>/dev/null)
  grep -q '^version' <<<"$output" || {
    echo "release: kubectl does not complete the plugin's commands: $output" >&2
    return 1
  }
  echo 'kubectl completes the plugin'
}

# registry: pushes the images, the bundle and the chart to a registry on this machine, signs them there, verifies the
# signatures, and pulls and renders the chart with Helm.
registry() {
  local address reference
  "$root/bin/release-tool" registry >"$scratch/registry" &
  registry_pid=$!
  until [ -s "$scratch/registry" ]; do
    kill -0 "$registry_pid"
    sleep 0.1
  done
  address=$(cat "$scratch/registry")
  "$root/bin/release-tool" push -registry "$address" -version "$VERSION" -repository "$REPOSITORY" "$artifacts" >"$scratch/pushed"
  while read -r reference; do
    COSIGN_PASSWORD='' "$tools/cosign" sign --yes --key "$scratch/cosign.key" --use-signing-config=false --tlog-upload=false \
      --allow-http-registry "$reference" >/dev/null
    "$tools/cosign" verify --key "$scratch/cosign.pub" --insecure-ignore-tlog=true --allow-http-registry "$reference" >/dev/null
    echo "signed and verified ${reference#*/}"
  done <"$scratch/pushed"
  (cd "$scratch" && "$tools/helm" pull --plain-http "oci://$address/charts/tocsin" --version "${VERSION#v}" >/dev/null)
  cmp "$scratch/tocsin-${VERSION#v}.tgz" "$artifacts/tocsin-${VERSION#v}.tgz"
  "$tools/helm" lint --strict "$scratch/tocsin-${VERSION#v}.tgz"
  "$tools/helm" template tocsin "$scratch/tocsin-${VERSION#v}.tgz" --set archive.url=file:///archive >"$scratch/rendered.yaml"
  reference=$(sed -n 's/^ *image: //p' "$artifacts/install.yaml")
  reference=${reference%@*}
  grep -qF "image: \"$reference\"" "$scratch/rendered.yaml"
  grep -qF "image: \"${reference%:*}-archiver:${reference##*:}\"" "$scratch/rendered.yaml"
}

[ -z "$(git status --porcelain)" ] || echo 'release: the work tree has changes that are not committed; they are not built' >&2
say "building $VERSION in one folder, with this machine's build cache"
build 1 one "$(go env GOCACHE)"
cache=${SECOND_CACHE:-$scratch/cache} state='an empty build cache'
[ -z "$(ls -A "$cache" 2>/dev/null)" ] || state="the build cache $cache, which is not empty"
say "building it again in another folder, with $state"
build 2 elsewhere/second "$cache"
say 'comparing'
diff -rq "$scratch/artifacts-1" "$scratch/artifacts-2"
rm -rf "$artifacts"
cp -r "$scratch/artifacts-1" "$artifacts"
(cd "$artifacts" && wc -c -- * && cat checksums.txt)
say 'verifying the checksums, the bills of materials, the programs and the images'
bin/release-tool verify -version "$VERSION" -commit "$COMMIT" "$artifacts"
say 'signing with a key made for this, and verifying'
key
signed
say 'pushing to a registry on this machine'
registry
say 'installing with krew'
krew
say 'reading the notes'
hack/release/notes.sh "$VERSION" | sed -n 1,5p
echo
echo "release: passed in $((SECONDS - start)) s; the artifacts of $VERSION are in ${artifacts#"$root"/}"
