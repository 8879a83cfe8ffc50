#!/usr/bin/env bash
# simulate.sh BINARY DURATION: plays stories of new seeds on every processor for a while, and prints those that fail. FIRST is
# another first seed, RUNS the most stories of each process.
# simulate.sh BINARY: replays the story of SEED, with everything that happens in it if TOLD is set.
set -euo pipefail

binary=$1
export GOMAXPROCS=1 # a run of one seed repeats only on one processor
export GOGC=off GOMEMLIMIT=1GiB # memory for time: a sixth of it was garbage collection
if [ -n "${SEED:-}" ]; then
  exec "$binary" -test.run='^TestSimulate$' -test.timeout=0 -seed="$SEED" ${TOLD:+-told}
fi

duration=$2
processes=${PROCESSES:-$(nproc)}
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
first=${FIRST:-$(date +%s%N)}
echo "simulation: first seed $first, $processes processes"
pids=()
for ((i = 0; i < processes; i++)); do
  nice "$binary" -test.run='^TestSimulate$' -test.timeout=0 -simulate="$duration" ${RUNS:+-runs="$RUNS"} -first=$((first + i * 1000000000000)) \
    >"$folder/$i" 2>"$folder/$i.seeds" &
  pids+=($!)
done
failed=0
for ((i = 0; i < processes; i++)); do
  wait "${pids[$i]}" || {
    failed=1
    echo "process $i, last $(tail -n 1 "$folder/$i.seeds" | cut -c -80), to replay by SEED=... make simulate:"
    tail -n 100 "$folder/$i.seeds" | grep -v '^seed ' || true
  }
  cat "$folder/$i"
done
exit "$failed"
