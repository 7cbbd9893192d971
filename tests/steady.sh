#!/usr/bin/env bash
# Shows whether a rung is steady: tests/steady.sh N [RUNG|PART...] runs it N times beside three processes that only compute, and prints which
# test failed how often. BESIDE names another number of such processes; with BESIDE=0 the rung has the machine to itself.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ ! ${1:-} =~ ^[1-9][0-9]*$ ]]; then
    echo "tests/steady.sh: say how often: tests/steady.sh N [RUNG|PART...]" >&2
    exit 2
fi
runs=$1
shift

# What a first run builds, and the servers that it installs, is no part of what is judged.
echo "tests/steady.sh: a run to begin with"
tests/run.sh "$@" >/dev/null || true

computing=()
trap 'kill "${computing[@]}" 2>/dev/null || true' EXIT
for ((n = 0; n < ${BESIDE:-3}; n++)); do
    while :; do :; done &
    computing+=($!)
done

directory=target/steady
rm -rf "$directory"
mkdir -p "$directory"
failures=0
for ((run = 1; run <= runs; run++)); do
    SECONDS=0
    how=passed
    if ! tests/run.sh "$@" >"$directory/$run.log" 2>&1; then
        how=FAILED
        failures=$((failures + 1))
    fi
    echo "tests/steady.sh: run $run of $runs $how in $SECONDS s: $(grep -E '^[0-9]+ passed, ' "$directory/$run.log")"
done
echo "tests/steady.sh: $failures of $runs runs failed beside ${#computing[@]} processes that compute"
# The names stand in the lists of failures, four spaces in.
cat "$directory"/*.log | sed -nE 's/^test ([a-z0-9_:]+) \.\.\. FAILED.*/\1/p' | sort | uniq -c | sort -rn
grep -hE '^tests/run.sh: [a-z-]+ FAILED' "$directory"/*.log | sort | uniq -c | sort -rn || true
grep -h '^Scenes that were played again' "$directory"/*.log | sort | uniq -c || true
[[ $failures -eq 0 ]]
