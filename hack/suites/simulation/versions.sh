#!/usr/bin/env bash
# versions.sh BINARY: builds the simulation with the program of the baseline beside the present one. All its stories begin with
# replicas of the baseline, which are rolled forward and back.
set -euo pipefail

binary=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.." # the module of the suites
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The baseline, under another path, so that one binary can have both.
older=$folder/older
mkdir "$older"
git -C ../.. archive "$(cat baseline/commit)" go.mod api config controllers internal webhookserver | tar -x -C "$older"
mkdir "$older/bridge"
cp simulation/baseline/bridge.go.txt "$older/bridge/bridge.go"
find "$older" -name '*_test.go' -delete
find "$older" -name '*.go' -exec sed -i 's#"github.com/tocsin-dev/tocsin/#"github.com/tocsin-dev/older/#' {} +
sed -i 's#^module .*#module github.com/tocsin-dev/older#' "$older/go.mod"

cp go.mod go.sum "$folder/"
go mod edit -require=github.com/tocsin-dev/older@v0.0.0 -replace="github.com/tocsin-dev/older=$older" "$folder/go.mod"
cat >"$folder/overlay.json" <<EOF
{"Replace": {"$PWD/simulation/program.go": "$PWD/simulation/baseline/program.go.txt"}}
EOF
go test -c -mod=mod -modfile="$folder/go.mod" -overlay="$folder/overlay.json" -o "$binary" ./simulation
