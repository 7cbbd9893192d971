#!/usr/bin/env bash
# Runs the examples, several processes of each: tests/examples.sh DIRECTORY [REDIS_SERVER]. The directory has the programs.
set -euo pipefail
examples=$1
redis=${2:-redis-server}

# The example is the proof that users run: it must pass with the lock, and fail without it.
contend() {
    "$examples/contend" "$@"
}
must_fail() {
    if contend "$@" --no-lock >/dev/null; then
        echo "tests/examples.sh: contend $* --no-lock lost nothing: its check is blind" >&2
        exit 1
    fi
}
contend
must_fail

# Contends between processes, on a server of our own that ends with this script.
directory=$(mktemp -d)
"$redis" --port 0 --save '' --dir "$directory" --unixsocket "$directory/socket" >/dev/null &
server=$!
trap 'kill "$server"; wait "$server" || true; rm -rf "$directory"' EXIT
for _ in {1..200}; do
    [[ -S $directory/socket ]] && break
    sleep 0.05
done
contend --redis "unix://$directory/socket" --processes 3
must_fail --redis "unix://$directory/socket" --processes 3

# The short examples, several processes of each at once.
example() {
    "$examples/$1" "unix://$directory/socket" "${@:2}"
}
example cron >"$directory/first" &
first=$!
example cron >"$directory/second"
wait "$first"
grep -qx done "$directory/first" "$directory/second"
example leader 3 >"$directory/first" &
first=$!
example leader 3 >"$directory/second"
wait "$first"
# Each term has a number of its own.
terms=$(grep -h ' leads term ' "$directory/first" "$directory/second" | sort -u -k 4,4 | wc -l)
if [[ $terms != 6 ]]; then
    echo "tests/examples.sh: the leaders had $terms terms instead of 6" >&2
    exit 1
fi
"$examples/table"
