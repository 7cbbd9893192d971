#!/usr/bin/env bash
# Runs targets under libFuzzer on stable Rust: tests/fuzz/run.sh [SECONDS_EACH [TARGET...]]. It needs a C++ compiler.
# What it finds is in target/found, inputs that fail are in artifacts: README.md says how both get into the corpus.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
shift || true
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
    targets=(corpus/*)
fi

# What `cargo fuzz` asks of a nightly compiler, without the sanitizers: the crate has no unsafe code.
host=$(rustc -vV | sed -n 's/^host: //p')
flags="--cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 -Cpasses=sancov-module"
for pass in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$pass"
done
RUSTFLAGS=$flags cargo build --locked --release --target "$host"
mkdir -p artifacts
for target in "${targets[@]##*/}"; do
    mkdir -p "target/found/$target"
    "target/$host/release/$target" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="artifacts/$target-" \
        "target/found/$target" "corpus/$target"
done
