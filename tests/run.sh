#!/usr/bin/env bash
# Installs redis-server 7 or newer if there is none, and runs all tests. Touches no server that is running.
set -euo pipefail
cd "$(dirname "$0")/.."

# What the tests start.
redis=${REDIS_SERVER_BIN:-redis-server}

# Whether a redis-server that can carry the tests is there.
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
    # The package would start a server on port 6379; the tests start their own. A policy of the system's own stays.
    local policy=/usr/sbin/policy-rc.d ours=
    if [[ ! -e $policy ]]; then
        ours=yes
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod +x "$policy"
    fi
    local failed=
    { as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y redis-server; } || failed=yes
    if [[ -n $ours ]]; then
        as_root rm -f "$policy"
    fi
    if [[ -n $failed ]] || ! usable_redis; then
        echo "tests/run.sh: apt-get gave no redis-server 7.0 or newer (Debian 12, Ubuntu 24.04 and later have one)" >&2
        exit 1
    fi
}

if ! usable_redis; then
    if [[ -n ${REDIS_SERVER_BIN:-} ]]; then
        echo "tests/run.sh: REDIS_SERVER_BIN=$REDIS_SERVER_BIN is no redis-server 7.0 or newer" >&2
        exit 1
    fi
    install_redis
fi
if ! command -v cargo >/dev/null; then
    echo "tests/run.sh: cargo is missing: install Rust from https://rustup.rs" >&2
    exit 1
fi
"$redis" --version

# All features: TLS included. Then what differs without them. Examples and benches are compiled.
cargo test --locked --all-features
cargo test --locked --all-features --no-run --benches
cargo test --locked --lib
cargo test --locked --doc

# The example is the proof that people run: it must pass with the lock, and fail without.
cargo run --locked --all-features --quiet --example contend
if cargo run --locked --all-features --quiet --example contend -- --no-lock >/dev/null; then
    echo "tests/run.sh: contend --no-lock lost nothing: its check is blind" >&2
    exit 1
fi
echo "tests/run.sh: all passed"
