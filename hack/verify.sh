#!/usr/bin/env bash
# Checks that what is generated is up to date, that the modules are tidy and share their versions, that the Go files are
# formatted, that the base images are pinned, that the links of the documents lead somewhere, that the
# CustomResourceDefinitions are compatible with the last release, that the seeded bugs still apply and compile, and that the
# workflows are correct. Generating happens in a copy: the tree is never touched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
status=0

# check NAME COMMAND...: runs the command and remembers a failure.
check() {
  local name=$1
  shift
  if "$@"; then
    echo "verify: $name: ok"
  else
    echo "verify: $name: FAILED" >&2
    status=1
  fi
}

# files: the project's files, committed or about to be, each with a NUL behind it.
files() {
  git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
  done
}

generated() {
  files | tar --null -T - -cf - | tar -xf - -C "$copy"
  make --no-print-directory -s -C "$copy" -o "$PWD/bin/tools/controller-gen" -o "$PWD/bin/tools/kustomize" TOOLS="$PWD/bin/tools" generate || return 1
  local folder
  for folder in api bundle config dist docs; do
    diff -ru "$folder" "$copy/$folder" || {
      echo 'verify: "make generate" brings it up to date' >&2
      return 1
    }
  done
}

tidy() {
  local module
  while IFS= read -r module; do
    (cd "$(dirname "$module")" && go mod tidy -diff) || {
      echo "verify: \"make tidy\" mends $module" >&2
      return 1
    }
  done < <(git ls-files '*go.mod')
}

# workspace: in the copy, which generated has made.
workspace() {
  "$copy/hack/align.sh" --sums && diff -u {,"$copy/"}hack/modules/controlplane/go.work.sum || {
    echo 'verify: "make tidy" brings it up to date' >&2
    return 1
  }
}

formatted() {
  local unformatted
  unformatted=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -l)
  [ -z "$unformatted" ] || {
    echo "$unformatted" >&2
    return 1
  }
}

# pinned: the base of an image is a digest, which nobody can put something else behind.
pinned() {
  local loose
  loose=$(git ls-files -z '*Dockerfile*' | xargs -0 grep -nE '^(FROM|ARG BASE=)' |
    grep -vE '@sha256:[0-9a-f]{64}$|FROM (scratch|\$\{BASE\})$') || return 0
  echo "$loose" >&2
  return 1
}

check "generated files" generated
check "modules" tidy
check "versions of shared modules" hack/align.sh --check
check "sums of the workspace" workspace
check "format" formatted
check "base images" pinned
check "links" go run ./hack/checklinks
check "compatibility with the last release" go test -C hack/suites -count=1 ./baseline
check "seeded bugs" go test -C hack/suites -count=1 -run TestPatches ./bugs
check "workflows" bin/tools/actionlint .github/workflows/*.yaml
exit "$status"
