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

# The commands of the manual's page "Sizing", with smaller numbers and for a second. Each prints rows of the page's tables, and counts its processes.
root=$(dirname "$0")/..
page=$root/src/manual/sizing.md
fail() {
    echo "tests/examples.sh: $1" >&2
    exit 1
}
if command -v redis-cli >/dev/null; then
    commands=$(sed -n '/^benches\/sizing.sh/{s/ *#.*//;p}' "$page")
    [[ $(wc -l <<<"$commands") == 5 ]] || fail "the page of sizing has other commands than were tested: $commands"
    while read -r script words; do
        words=${words/10000/30}
        words=${words/300/3}
        # shellcheck disable=SC2086
        HOLD=$examples/hold COUNTED=1 REDIS_SERVER_BIN=$redis "$root/$script" $words >"$directory/rows"
        while IFS='|' read -r _ name value _; do
            grep -qF "|$name|" "$page" || fail "no table of the page has the row$name of $script $words"
            case "$words:$name" in
                # A process that holds has one thread of ours, and one that waits has three.
                'held 1 3: threads of the crate ' | *' 3: connections ') least=3 ;;
                'waiting 3: threads of the crate ') least=9 ;;
                *) least=0 ;;
            esac
            [[ ${value%%.*} -ge $least ]] || fail "$script $words:$name is$value"
        done <"$directory/rows"
        [[ $(wc -l <"$directory/rows") -ge 8 ]] || fail "$script $words: $(cat "$directory/rows")"
    done <<<"$commands"
else
    echo "SKIPPED: redis-cli is not there"
fi
