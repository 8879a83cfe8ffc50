#!/usr/bin/env bash
# A go command that builds, "build" or "install", with these arguments. When it takes long, it says what it does, how many of
# how many, and for how long already. BUILDING is what it builds, in words; else the value of -o says it.
set -euo pipefail

# The compiler and the linker collect garbage late, which saves a tenth of their time. With GOGC=off they take longer: to touch a
# page of memory for the first time is expensive, most of all in a virtual machine.
export GOGC=400 GOMEMLIMIT=1GiB

readonly quiet=${BUILD_QUIET:-10} # seconds until the first message, and between two

readonly command=$1
shift

# The same arguments for "go list", which has no -o.
list=()
building=${BUILDING:-}
previous=
for argument in "$@"; do
  if [ "$previous" = -o ]; then
    building=${building:-$(basename "$argument")}
  elif [ "$argument" != -o ]; then
    list+=("$argument")
  fi
  previous=$argument
done

# with FLAG COMMAND...: a go command with one more flag; before its arguments, of which the first may be -C, there is no place.
with() {
  local flag=$1
  shift
  GOFLAGS="${GOFLAGS:-} $flag" "$@"
}

# total: how many packages there are.
total() { { with -deps go list "${list[@]}" 2>/dev/null || true; } | wc -l; }

# say WHAT...: how far it is.
say() { echo "build: $building: $*, after $SECONDS s" >&2; }

# follow reads what "go build -v" prints: a line for each module to download, the path of each package when its compilation
# begins, and errors.
follow() {
  local part line='' downloads=0 packages=0 of='' next=$quiet errors='' status
  while true; do
    status=0
    IFS= read -r -t 1 part || status=$?
    line+=$part # a second may end amid a line
    if [ "$status" = 0 ]; then
      case $line in
        'go: downloading '*) downloads=$((downloads + 1)) ;;
        *[[:space:]]*)
          echo "$line" >&2
          errors+=$line
          ;;
        ?*) packages=$((packages + 1)) ;;
      esac
      line=''
    elif [ "$status" -le 128 ]; then
      break # the end
    fi
    if [ "$SECONDS" -ge "$next" ]; then
      next=$((SECONDS + quiet))
      if [ "$packages" -gt 0 ]; then
        of=${of:-$(total)}
        say "compiled $packages of $of packages, less those compiled before"
      elif [ "$downloads" -gt 0 ]; then
        say "downloaded $downloads modules"
      else
        say 'reads module requirements, or links' # of both, the go command says nothing
      fi
    fi
  done
  hint "$errors"
}

# hint ERRORS: what to do about them.
hint() {
  case $1 in
    *'dial tcp'* | *'no such host'* | *'TLS handshake'* | *'i/o timeout'* | *'connection refused'*)
      echo 'build: Go cannot download a module. Is there a connection, or a GOPROXY? The same command goes on where this one stopped.' >&2 ;;
    *'no space left on device'*)
      echo "build: The disk is full: $(go env GOCACHE) and $(go env GOMODCACHE) take gigabytes." >&2 ;;
    *'signal: killed'*)
      echo 'build: The compiler was killed, probably for want of memory. With "export GOFLAGS=-p=1" it needs less.' >&2 ;;
  esac
}

with -v go "$command" "$@" 2>&1 | follow
