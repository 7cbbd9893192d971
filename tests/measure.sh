#!/usr/bin/env bash
# Measures the times that README.md and tests/README.md tell, and writes them there: tests/measure.sh, on a machine that does nothing else. In a
# fresh clone of HEAD, with no crate downloaded, it runs README's first command; then, again without a crate and with nothing built, the rungs
# as .ci/run does, and these once more.
set -euo pipefail
cd "$(dirname "$0")/.."

clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone --quiet . "$clone"
# Where cargo keeps what it has downloaded: nothing yet.
export CARGO_HOME=$clone/target/cargo

# Runs a command in the clone. Prints how many minutes it took at most.
minutes() {
    local begin=$SECONDS
    (cd "$clone" && "$@") >&2 || exit
    echo $(((SECONDS - begin + 59) / 60))
}
# Puts a time in the place of the one that stands between two pieces of text in a file. Fails if there is no such place.
write() {
    grep -qE "$2.*$4" "$1" || { echo "tests/measure.sh: $1 has no place for a time between '$2' and '$4'" >&2 && exit 1; }
    sed -i -E "s#($2).*($4)#\1$3\2#" "$1"
}
counted() { if [[ $1 -eq 1 ]]; then echo "1 minute"; else echo "$1 minutes"; fi; }

first=$(minutes cargo run --release -p contend --example contend)
rm -rf "$clone/target"
# shellcheck disable=SC1090
source <(grep '^export ' .ci/run)
dev_cold=$(minutes tests/run.sh)
ci_cold=$(minutes tests/run.sh ci)
dev=$(minutes tests/run.sh)
ci=$(minutes tests/run.sh ci)

write README.md '^This takes at most ' "$(counted "$first")" ' on two cores in a fresh clone, '
write README.md '^It takes ' "$(counted "$dev") on two cores, and $dev_cold" ' in a fresh clone, with the build\.'
write tests/README.md '^\| `\./tests/run\.sh` \|.* \| ' "$(counted "$dev"); $dev_cold" ' in a fresh clone \|$'
write tests/README.md '^\| `\./tests/run\.sh ci` \|.* \| ' "$(counted "$ci"); $ci_cold" ' in a fresh clone \|$'
git diff --stat
