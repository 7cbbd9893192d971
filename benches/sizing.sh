#!/usr/bin/env bash
# Prints a column of the manual's page "Sizing": what locks cost that are held or waited for, on a Redis server that this script starts.
#
#   benches/sizing.sh held LOCKS [PROCESSES]   one process, or so many, each with so many locks
#   benches/sizing.sh waiting PROCESSES        so many processes wait for one lock, which another one holds
#
# It looks on for 90 s, or for COUNTED seconds. HOLD is the example `hold`, if it is not to be built here.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-}
case $what in
    held) locks=${2:-} processes=${3:-1} ;;
    waiting) locks=1 processes=${2:-} ;;
esac
if [[ ! "${locks:-} ${processes:-}" =~ ^[1-9][0-9]*\ [1-9][0-9]*$ ]]; then
    sed -n 's/^#   benches/benches/p' "$0" >&2
    exit 64
fi
counted=${COUNTED:-90}
if [[ -z ${HOLD:-} ]]; then
    cargo build --quiet --release -p dlock-examples --example hold
    HOLD=${CARGO_TARGET_DIR:-target}/release/examples/hold
fi

directory=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$directory"' EXIT
port=$((20000 + RANDOM % 10000))
"${REDIS_SERVER_BIN:-redis-server}" --port $port --save '' --dir "$directory" >/dev/null &
server=$!
ask() { redis-cli -p $port "$@" | tr -d '\r'; }
until [[ $(ask ping 2>/dev/null) == PONG ]]; do
    kill -0 $server
    sleep 0.05
done

: >"$directory/told"
# Starts a process of the example, with a name of its own or with one that others have, too.
start() {
    "$HOLD" "redis://127.0.0.1:$port" "$locks" "$@" </dev/null >>"$directory/told" &
    pids+=($!)
}
# Waits until a command prints a number.
until_it_is() {
    until [[ $("${@:2}") == "$1" ]]; do sleep 0.1; done
}
holding() { grep -c holds "$directory/told" || true; }
queued() { ask eval "local n = 0 for _, key in ipairs(redis.call('KEYS', 'DLOCK:1:*:queue:*')) do n = n + redis.call('LLEN', key) end return n" 0; }

# Each of them prints a number: what the server knows, and what the system knows of the processes.
connections() { ask client list | grep -c name=redis-dlock; }
used_memory() { ask info memory | sed -n 's/^used_memory:\([0-9]*\)/\1/p'; }
calls() { ask info commandstats | sed -n "s/^cmdstat_$1:calls=\([0-9]*\),.*/\1/p" | grep . || echo 0; }
server_time() { ask info cpu | awk -F: '/^used_cpu_(sys|user):/ { sum += $2 } END { print sum }'; }
threads() { of_each 'task/*/comm' | grep -c '^dlock-' || true; }
memory() { of_each status | awk '/^RssAnon:/ { sum += $2 } END { print sum * 1024 }'; }
clients_time() { of_each stat | sed 's/.*) //' | awk -v ticks="$(getconf CLK_TCK)" '{ sum += $12 + $13 } END { print sum / ticks }'; }
of_each() {
    local pid
    for pid in "${pids[@]}"; do
        # shellcheck disable=SC2086
        cat /proc/$pid/$1
    done
}
# All that is counted: at the beginning, and at the end.
look() { echo "$(calls evalsha) $(calls pexpire) $(calls set) $(server_time) $(clients_time)"; }

before=$(used_memory)
if [[ $what == held ]]; then
    for _ in $(seq "$processes"); do start; done
    until_it_is "$processes" holding
else
    start stock
    until_it_is 1 holding
    # The costs are those of the processes that wait.
    pids=()
    for _ in $(seq "$processes"); do start stock; done
    until_it_is "$processes" queued
fi
first=$(look)
# Redis keeps a buffer of 20 kB for a connection for two seconds after a command.
server_memory=$(for _ in $(seq "$counted"); do used_memory; sleep 1; done | sort -n | awk -v before="$before" '
    NR == 1 { least = $1 } END { printf "%.1f to %.1f MB", (least - before) / 1e6, ($1 - before) / 1e6 }')
last=$(look)
awk -v first="$first" -v last="$last" -v seconds="$counted" -v connections="$(connections)" -v threads="$(threads)" -v memory="$(memory)" \
    -v server_memory="$server_memory" -v what="$what" 'BEGIN {
        split(first, a, " "); split(last, b, " ")
        for (n = 1; n <= 5; n++) rate[n] = (b[n] - a[n]) / seconds
        row = "| %s | %s |\n"
        printf row, "connections", connections
        printf row, "threads of the crate", threads
        printf row, "memory of the program, not shared", sprintf("%.1f MB", memory / 1e6)
        printf row, "memory of the server", server_memory
        printf row, "scripts a second", sprintf("%.2f", rate[1])
        if (what == "held") printf row, "of them renewals", sprintf("%.2f", rate[2])
        printf row, "of them client records", sprintf("%.2f", rate[3])
        printf row, "the server\47s core, busy", sprintf("%.1f %%", rate[4] * 100)
        printf row, "the clients\47 cores, busy", sprintf("%.1f %%", rate[5] * 100)
    }'
