#!/usr/bin/env bash
# Builds what goes into an image, and the image itself.
#
#   image.sh files       the program of each platform, and its bill of materials, in bin/image
#   image.sh build IMG   that, and the image, a manifest list when there is more than one platform
#   image.sh archive IMG the image of this machine's architecture, in bin/NAME.tar, with docker, podman or buildah
#
# "make image" and "make image-files" call it. PROGRAM says of what (manager, archiver, page or plugin), PLATFORMS, BASE and BUILDER
# (buildah or podman) how; LDFLAGS, VERSION and DATE are the Makefile's. The same commit, base and Go give the same bytes, the image's
# digest included.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

platforms=${PLATFORMS:-linux/amd64,linux/arm64}
readonly builder=${BUILDER:-buildah} folder=bin/image program=${PROGRAM:-manager}
case $program in
manager) name=tocsin package=. dockerfile=Dockerfile ;;
archiver) name=tocsin-archiver package=./cmd/tocsin-archiver dockerfile=Dockerfile.archiver ;;
page) name=tocsin-page package=./cmd/tocsin-page dockerfile=Dockerfile.page ;;
plugin) name=tocsin-plugin package=./cmd/kubectl-tocsin dockerfile=Dockerfile.plugin ;;
*) echo "image: PROGRAM is manager, archiver, page or plugin" >&2 && exit 1 ;;
esac

files() {
  local platform binary
  for platform in ${platforms//,/ }; do
    binary=$folder/$platform/$program
    # Without what the Go command knows of the repository: it depends on how deep the clone is.
    CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go build -trimpath -buildvcs=false -ldflags "$LDFLAGS" -o "$binary" "$package"
    go run -C hack/release . sbom -version "$VERSION" "$PWD/$binary" >"$folder/$name-${platform/\//-}.cdx.json"
    sha256sum "$binary"
  done
}

build() {
  local image=$1 platform kind
  command -v "$builder" >/dev/null || {
    echo "image: there is no $builder; BUILDER names another one, and \"apt-get install buildah\" gets it" >&2
    exit 1
  }
  kind=--tag
  if [[ $platforms == *,* ]]; then
    kind=--manifest
    "$builder" manifest rm "$image" 2>/dev/null || "$builder" rmi "$image" 2>/dev/null || true
  fi
  # One after the other: the order of a list is part of its digest.
  for platform in ${platforms//,/ }; do
    "$builder" build --file "$dockerfile" "$kind" "$image" --platform "$platform" ${BASE:+--build-arg "BASE=$BASE"} \
      --timestamp "$(date --date "$DATE" +%s)" .
  done
}

# archive makes the image with BUILDER, else with the first builder that there is. kind, minikube and k3d look for
# docker.io/library/NAME when a manifest names NAME.
archive() {
  local image=$1 tool file=bin/$name.tar
  for tool in "$builder" docker podman buildah; do
    command -v "$tool" >/dev/null && break
    tool=
  done
  "${tool:?there is no docker, podman or buildah}" build --file "$dockerfile" --quiet --platform "$platforms" \
    ${BASE:+--build-arg "BASE=$BASE"} --tag "$image" . >/dev/null
  rm -f "$file" # neither podman nor buildah adds to an archive
  case $tool in
  docker) docker save --output "$file" "$image" ;;
  *) "$tool" push --quiet "$image" "docker-archive:$file:docker.io/library/$image" ;;
  esac
  printf '%s\n' "Wrote $file. Load it with one of:" "  kind load image-archive $file" \
    "  minikube image load $file" "  k3d image import $file"
}

case ${1:-} in
files) files ;;
archive) platforms=linux/$(go env GOARCH) && files >/dev/null && archive "$2" ;;
build) files && build "$2" ;;
*)
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
  ;;
esac
