#!/usr/bin/env bash
# Runs every fuzz test of the project, one after the other, each for the time given.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly time=${1:?usage: hack/fuzz.sh TIME}

packages=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./...)
while read -r package folder; do
  names=$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$folder"/*_test.go)
  for name in $names; do
    echo "fuzz: $package $name for $time"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$package"
  done
done <<<"$packages"
