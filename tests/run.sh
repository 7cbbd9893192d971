#!/usr/bin/env bash
# Installs redis-server 7 or newer if there is none, and runs all tests. Stops no server except its own.
# REDIS_SERVER_BIN names another server to test with: another version of redis-server, or valkey-server.
# `tests/run.sh consul` only builds Consul, for its tests, into a cache folder.
set -euo pipefail
if [[ ${REDIS_SERVER_BIN:-} == */* ]]; then
    # The tests start the server in directories of their own, so the path must be absolute.
    REDIS_SERVER_BIN=$(realpath -s "$REDIS_SERVER_BIN")
    export REDIS_SERVER_BIN
fi
cd "$(dirname "$0")/.."

# The server that the tests start.
redis=${REDIS_SERVER_BIN:-redis-server}

# Whether there is a server that the tests can use.
usable_redis() {
    command -v "$redis" >/dev/null || return 1
    local version
    version=$("$redis" --version | sed -n 's/.* v=\([0-9]*\)\..*/\1/p')
    [[ -n $version && $version -ge 7 ]]
}

as_root() {
    if [[ $(id -u) -eq 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "tests/run.sh: installing redis-server needs root, and there is no sudo" >&2
        exit 1
    fi
}

install_redis() {
    if ! command -v apt-get >/dev/null; then
        echo "tests/run.sh: no redis-server 7.0 or newer found: install one and put it into PATH" >&2
        exit 1
    fi
    as_root apt-get update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y redis-server
    if ! usable_redis; then
        echo "tests/run.sh: apt-get gave no redis-server 7.0 or newer (Debian 12, Ubuntu 24.04 and later have one)" >&2
        exit 1
    fi
}

if ! usable_redis; then
    if [[ -n ${REDIS_SERVER_BIN:-} ]]; then
        echo "tests/run.sh: REDIS_SERVER_BIN=$REDIS_SERVER_BIN is no redis-server 7.0 or newer, and no valkey-server" >&2
        exit 1
    fi
    install_redis
fi
# The stores that vote. Their tests run where their servers are; the last lines say which did.
etcd=${ETCD_BIN:-etcd}
may_install=no
if command -v apt-get >/dev/null && { [[ $(id -u) -eq 0 ]] || command -v sudo >/dev/null; }; then
    may_install=yes
fi
if ! command -v "$etcd" >/dev/null && [[ -z ${ETCD_BIN:-} && $may_install == yes ]]; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y etcd-server ||
        { as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y etcd-server; } || true
fi
consul=${CONSUL_BIN:-consul}
# Debian has no Consul. Where Go is, it is built, once. It takes some minutes of processor time.
built=${XDG_CACHE_HOME:-$HOME/.cache}/redis-dlock/$(sed -n 's|^require github.com/hashicorp/\(.*\) |\1-|p' tests/stores/consul/go.mod)
build_consul() {
    local work
    work=$(mktemp -d)
    cp tests/stores/consul/* "$work"
    mkdir -p "$(dirname "$built")"
    # The name appears when the file is whole.
    (cd "$work" && go mod tidy && go build -trimpath -ldflags='-s -w' -o "$built.$$" github.com/hashicorp/consul) &&
        mv "$built.$$" "$built"
    local status=$?
    rm -rf "$work"
    return $status
}
if ! command -v "$consul" >/dev/null && [[ -x $built ]]; then
    consul=$built
fi
if [[ ${1:-} == consul ]]; then
    if command -v "$consul" >/dev/null; then
        echo "tests/run.sh: Consul is there: $(command -v "$consul")"
    elif command -v go >/dev/null; then
        build_consul
        echo "tests/run.sh: Consul is built: $built"
    else
        echo "tests/run.sh: Consul cannot be built: there is no Go"
    fi
    exit
fi
if ! command -v cargo >/dev/null; then
    echo "tests/run.sh: cargo is missing: install Rust from https://rustup.rs" >&2
    exit 1
fi
"$redis" --version

# Wrappers that build only our own code with a test configuration. RUSTFLAGS would rebuild all dependencies, too.
shuttle=tests/cfg/shuttle.sh
mutants=tests/cfg/mutants.sh

# The models compute, while most other tests wait. So the models are built first, and then run beside the others at a lower priority.
# Their output is printed when they have ended.
#
# Explores every order in which clients, network and server can act: millions of states.
model() {
    CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo test --locked --all-features --test model "$@"
}
# Explores schedules of a client's threads, in the crate's own code built with other mutexes.
schedules() {
    CARGO_PROFILE_DEV_OPT_LEVEL=3 RUSTC_WORKSPACE_WRAPPER=$shuttle cargo test --locked --all-features --lib "$@"
}
# Waits for a process that ran beside others, prints its output, and ends the script if it failed.
joined() {
    local passed=yes
    wait "$1" || passed=no
    cat "$2"
    if [[ $passed == no ]]; then
        echo "tests/run.sh: $3 failed, see above" >&2
        exit 1
    fi
}
directory=$(mktemp -d)
building=
if ! command -v "$consul" >/dev/null && [[ -z ${CONSUL_BIN:-} ]] && command -v go >/dev/null; then
    build_consul >"$directory/consul" 2>&1 &
    building=$!
    trap 'kill "$building" 2>/dev/null; rm -rf "$directory"' EXIT
fi
cargo test --locked --all-features --no-run
model --no-run
schedules --no-run
# Before the tests, which it would slow down.
if [[ -n $building ]]; then
    if wait "$building"; then
        consul=$built
    else
        tail -n 20 "$directory/consul"
        echo "tests/run.sh: Go could not build Consul, see above"
    fi
fi
export CONSUL_BIN=$consul ETCD_BIN=$etcd
# The stores that are there, what the last lines say, and what the tests of faults leave out.
found=()
stores=()
without=()
for store in etcd consul; do
    if command -v "${!store}" >/dev/null; then
        found+=("$store")
        stores+=("tests/run.sh: the tests of $store ran on $(command -v "${!store}")")
    else
        without+=(--skip "::$store::")
        stores+=("tests/run.sh: the tests of $store DID NOT RUN: there is no program ${!store}")
    fi
done
(
    # At 19 they would get no time beside other programs that compute.
    renice -n 5 "$BASHPID" >/dev/null
    model && schedules -- model::
) >"$directory/models" 2>&1 &
models=$!
trap 'kill "$models" 2>/dev/null; rm -rf "$directory"' EXIT

# First with all features, including TLS; later what differs without them. This also compiles examples and benches. The tests mostly
# wait, so more of them than there are cores may run at once.
cargo test --locked --all-features -- --test-threads 6
# The command waits for processes and terminals.
cargo test --locked --all-features --test command -- --test-threads 4
# The fault scenarios wait even more. So other tests that wait run beside them: those of the lock without messages, where only latency and
# the order across processes change.
cargo test --locked --all-features --test faults --no-run
DLOCK_TEST_LISTENER=off cargo test --locked --all-features --test it -- lock:: processes:: network:: \
    --skip lock::granted --skip lock::passing --skip lock::lingering --skip cluster:: --test-threads 4 \
    >"$directory/without-messages" 2>&1 &
without_messages=$!
trap 'kill "$models" "$without_messages" 2>/dev/null; rm -rf "$directory"' EXIT
cargo test --locked --all-features --test faults -- --test-threads 8 "${without[@]}"
joined "$without_messages" "$directory/without-messages" "a test without messages"
# Their servers wait for one another, and the tests for the ends of leases.
cargo test --locked --all-features --test stores --no-run
for store in "${found[@]}"; do
    cargo test --locked --all-features --test stores -- "$store" --test-threads 12
done
# The mistakes that the tests of faults must find.
RUSTC_WORKSPACE_WRAPPER=$mutants cargo test --locked --all-features --test faults -- mutants:: --test-threads 3 "${without[@]}"
# From here on nothing else needs the cores, so the models get the normal priority. (Only root may raise it.)
lift() {
    local child
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        lift "$child"
    done
    renice -n 0 -p "$1" >/dev/null 2>&1 || true
}
lift "$models"
joined "$models" "$directory/models" "a model"
# A short round of each benchmark: the figures mean little, but the code must work.
cargo test --locked --all-features --benches
cargo test --locked --lib
# The part that is left without Redis: the lock on the embedded store.
cargo test --locked --no-default-features --features conformance,test-util --lib --test embedded
cargo test --locked --doc

# The example is the proof that users run: it must pass with the lock, and fail without it.
contend() {
    cargo run --locked --all-features --quiet --example contend -- "$@"
}
must_fail() {
    if contend "$@" --no-lock >/dev/null; then
        echo "tests/run.sh: contend $* --no-lock lost nothing: its check is blind" >&2
        exit 1
    fi
}
contend
must_fail

# Contends between processes, on a server of our own that ends with this script.
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
    cargo run --locked --all-features --quiet --example "$1" -- "unix://$directory/socket" "${@:2}"
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
    echo "tests/run.sh: the leaders had $terms terms instead of 6" >&2
    exit 1
fi
cargo run --locked --all-features --quiet --example table
printf '%s\n' "${stores[@]}"
echo "tests/run.sh: all passed"
