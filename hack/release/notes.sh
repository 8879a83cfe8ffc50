#!/usr/bin/env bash
# Prints the notes of a version: its section of CHANGELOG.md, without the heading. "make release-notes" calls it with the
# version.
#
# The heading is "## v0.1.0", "## [v0.1.0]" or either with a date behind it. A version that is under development, such as
# v0.1.0-dev, has the section Unreleased; any other one without a section is an error: a release needs notes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

section=${1:?}
[[ $section != *-dev* ]] || section=Unreleased
text=$(awk -v section="$section" '
  /^## / { if (found) exit; gsub(/^\[|\]$/, "", $2); found = $2 == section; next }
  found && (begun = begun || NF)' CHANGELOG.md)
[ -n "$text" ] || {
  echo "release: CHANGELOG.md: there is no section \"## $section\" with text" >&2
  exit 1
}
printf '%s\n' "$text"
