#!/usr/bin/env bash
# Compares this checkout with another commit: benches/turns.sh COMMIT TURNS EXPERIMENT..., on a machine that does nothing else. Builds the report of
# both, runs them in turns, and prints each figure of both, as medians of the turns, and the median of the turns' ratios. ROUNDS is how many rounds
# each run has (3). An event that slows down one run spoils one turn and not the median.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -lt 3 || ! $2 =~ ^[1-9][0-9]*$ ]]; then
    echo "benches/turns.sh: say what to compare with, how often, and what: benches/turns.sh COMMIT TURNS EXPERIMENT..." >&2
    exit 2
fi
commit=$(git rev-parse --verify "$1^{commit}")
turns=$2
shift 2

other=$PWD/target/turns/$commit
if [[ ! -d $other ]]; then
    # The name appears when the checkout is whole.
    rm -rf "$other.new"
    mkdir -p "$other.new"
    git archive "$commit" | tar -x -C "$other.new"
    mv "$other.new" "$other"
fi
# Builds the report in this directory. Prints the path of the program.
report() {
    local said
    if ! said=$(cd "$1" && CARGO_TARGET_DIR=$1/target cargo bench --locked --no-run --bench report 2>&1); then
        printf '%s\nbenches/turns.sh: the report of %s could not be built, see above\n' "$said" "$1" >&2
        return 1
    fi
    sed -n "s#.*Executable .*report.*(\(.*\))#\1#p" <<<"$said" | sed "s#^target#$1/target#"
}
here=$(report "$PWD")
there=$(report "$other")

# Each figure of the tables of a report in a line: what it is, a tab, the figure.
figures() {
    awk -F ' *[|] *' '
        /^## / { section = substr($0, 4); setting = "" }
        /^\*\*/ { setting = $0; gsub(/\*\*|;.*/, "", setting) }
        !/^\|/ { head = 0 }
        /^\|/ && !head { head = 1; for (i = 2; i < NF; i++) name[i] = $i; next }
        /^\|[-|]*$/ || /^\| *target/ { next }
        /^\|/ && name[2] != "target" {
            for (i = 3; i < NF; i++) if ($i ~ /^[0-9.]+$/) printf "%s, %s %s, %s %d\t%s\n", section, setting, $2, name[i], i - 2, $i
        }' "$1"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for ((turn = 0; turn < turns; turn++)); do
    # Each side goes first in every second turn.
    sides=(here there)
    ((turn % 2 == 0)) || sides=(there here)
    for side in "${sides[@]}"; do
        echo "benches/turns.sh: turn $((turn + 1)) of $turns, $side" >&2
        program=${!side}
        "$program" --bench --rounds "${ROUNDS:-3}" "$@" >"$work/$side.$turn.log" 2>&1 || { cat "$work/$side.$turn.log" >&2 && exit 1; }
        figures "$work/$side.$turn.log" | sed "s/^/$turn\t$side\t/" >>"$work/figures"
    done
done

printf '| figure | here | %.7s | ratio |\n|---|---|---|---|\n' "$commit"
awk -F '\t' '
    function median(list, parts, n, i, j, swap) {
        n = split(list, parts, " ")
        for (i = 2; i <= n; i++) for (j = i; j > 1 && parts[j - 1] + 0 > parts[j] + 0; j--) { swap = parts[j]; parts[j] = parts[j - 1]; parts[j - 1] = swap }
        return n % 2 ? parts[(n + 1) / 2] : (parts[n / 2] + parts[n / 2 + 1]) / 2
    }
    { if (!($3 in seen)) { seen[$3] = 1; order[++count] = $3 } all[$3, $2] = all[$3, $2] " " $4; value[$1, $2, $3] = $4; if ($1 > last) last = $1 }
    END {
        for (n = 1; n <= count; n++) {
            what = order[n]; ratios = ""
            for (turn = 0; turn <= last; turn++) if (((turn, "here", what) in value) && value[turn, "there", what] + 0 > 0)
                ratios = ratios " " value[turn, "here", what] / value[turn, "there", what]
            if (ratios != "") printf "| %s | %.4g | %.4g | %.2f |\n", what, median(all[what, "here"]), median(all[what, "there"]), median(ratios)
        }
    }' "$work/figures"
