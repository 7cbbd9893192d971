#!/usr/bin/env bash
# Runs the tests of one rung of the ladder, and installs the servers that they need. Stops no server except its own.
#
#   tests/run.sh                   what a developer runs: the lock and the stores, in the process and on one Redis server
#   tests/run.sh ci                what CI runs after that: Cluster, Sentinels, etcd, faults, models, the command, lints
#   tests/run.sh all               everything there is, and a report
#   tests/run.sh changed [COMMIT]  what guards the rooms that changed since COMMIT (HEAD, if none is named), by the table in ARCHITECTURE.md
#   tests/run.sh PART...           single parts by their names, such as `cluster`
#   tests/run.sh consul            only builds Consul, for its tests, into a cache folder
#   tests/run.sh promtool          the same of Prometheus' promtool, for the test that fires the alerts of the manual
#   tests/run.sh list [FILE...]    the parts of each rung, or those that guard each file
#
# README.md beside this file says what stands on which rung and why. REDIS_SERVER_BIN names another server to test with: another version of
# redis-server, or valkey-server. ETCD_BIN and CONSUL_BIN name the programs of these stores, and PROMTOOL_BIN
# that of Prometheus. DLOCK_MONGODB=URL runs the part `mongodb` on a real server instead of a stand-in. FERRETDB_BIN and
# DOCUMENTDB_ROOT name a FerretDB and what stands behind it: ferretdb.sh beside this file. The output of each part is in target/tests.
set -euo pipefail
if [[ ${REDIS_SERVER_BIN:-} == */* ]]; then
    # The tests start the server in directories of their own, so the path must be absolute.
    REDIS_SERVER_BIN=$(realpath -s "$REDIS_SERVER_BIN")
    export REDIS_SERVER_BIN
fi
cd "$(dirname "$0")/.."
source tests/servers.sh
find_built
missing_stores=$(missing_stores)

# Rungs -------------------------------------------------------------------------------------------------------------------------------

dev=(unit it)
# Most parts wait more than they compute, so two of them run at a time, the long ones first. What only computes runs beside them, at a lower
# priority.
ci_computing=(model schedules)
ci=(checks slow faults command consensus cluster sentinel examples tasks embedded documents)
all_computing=(model every-schedule)
all=(every-check long every-fault consensus lock-elsewhere other-versions cluster mutants mongodb command slow sentinel recipes faults package)
all+=(benches examples tasks two-versions embedded documents)

# The tests of `it` that stand on a higher rung than the developer's, by the beginnings of their names.
cluster='cluster::|support_cluster::|conformance::cluster::|.*::on_cluster::|breaking::server::on_a_cluster|acl::cluster'
sentinel='sentinel::|conformance::sentinels::'
slow='endurance::|jvm::|security::|acks::|network::|tls::|which_store::|conformance::random::|conformance::redis_proved::|conformance::minimal::|conformance::special::'
# The tests of the lock, once more on a Cluster.
lock_on_cluster='cluster::lock::'

# What tests the kit of the fault scenarios, and some scenarios of each family.
few_faults='admin::|checker::|fenced::|history::|support::|toxics::|work::'
few_faults+='|scenarios::(holder|waiter|restart|failover|terms|together|sentinel::killed|cluster::flushed|cluster::killed|cluster::moved|consensus::leader)::'
few_faults+='|scenarios::access::(a_right_that_stays|without_the_right_to_tell)|scenarios::limits::a_full|scenarios::messages::without'
few_faults+='|scenarios::network::(a_lease|a_release|an_acquire|an_extension)|scenarios::server::a_server_that_(forgets|sleeps_during_a)'
few_faults+='|scenarios::meddling::a_deleted|scenarios::unheard::a_lock'

# Parts -------------------------------------------------------------------------------------------------------------------------------

# One set of packages and features for all test builds, so that nothing is built twice.
crates=(-p redis-dlock -p dlock-cli -p dlock-consensus --all-features)
libraries=(-p redis-dlock -p dlock-consensus --all-features)
# The models of threads, with the command for its features.
models=(-p dlock-schedules -p dlock-consensus -p dlock-cli --all-features --lib)
it=("${crates[@]}" --test it)

part_unit() {
    tests --but white_box:: --threads 2 "${crates[@]}" --lib --bins
    # Every mistake can still be built in.
    cargo test --locked -p dlock-mutants
}
part_it() {
    # The programs that tests start.
    cargo build --locked "${crates[@]}" -p contend -p dlock-examples --example contend --example ending --example shutdown
    tests --but "$cluster|$sentinel|$slow|$missing_stores" --threads 8 "${it[@]}"
}

part_checks() {
    local component
    for component in fmt clippy; do
        if ! cargo "$component" --version >/dev/null 2>&1; then
            echo "tests/run.sh: cargo $component is missing: rustup component add rustfmt clippy" >&2
            return 1
        fi
    done
    cargo fmt --all --check
    # Whatever is built. A library is where something needs it.
    cargo clippy --locked --workspace --all-features --bins --tests --examples --benches -- -D warnings
    # What `--tests` leaves out: tests with `test = false`.
    cargo clippy --locked --workspace --all-features --test command --test faults --test stores -- -D warnings
    # As programs build it.
    cargo clippy --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps "${libraries[@]}"
}
part_every-check() {
    part_checks
    for store in consul etcd; do
        cargo clippy --locked -p dlock-consensus --no-default-features --features "$store" --lib -- -D warnings
    done
    (
        in_the_copy_with_mutants
        unset RUSTC_WORKSPACE_WRAPPER
        cargo clippy --locked "${libraries[@]}" --profile test --lib --test faults -- --cfg dlock_mutants -D warnings
    )
    cargo clippy --locked --no-default-features --profile test --lib -- -D warnings
    cargo clippy --locked -p dlock-embedded --tests -- -D warnings
    # A workspace of its own, which nothing else builds.
    cargo check --locked --manifest-path benches/peers/Cargo.toml --target-dir target/peers
    tests -p redis-dlock --lib
    tests -p redis-dlock --no-default-features --features test-util --lib
}
# What is left without Redis: the lock on the embedded store.
part_embedded() { tests -p dlock-embedded --test embedded; }
part_cluster() { tests --only "$cluster" --but "$lock_on_cluster" --threads 4 "${it[@]}"; }
part_sentinel() { tests --only "$sentinel" --threads 6 "${it[@]}"; }
part_slow() { tests --only "$slow" --threads 6 "${it[@]}"; }
# The protocol between processes: every order in which clients, network and server can act.
part_model() { tests -p dlock-model --test model; }
# The crate's own threads, and the consensus stores, under a scheduler that explores their interleavings.
part_schedules() { DLOCK_MODEL_ITERATIONS=200 part_every-schedule; }
part_every-schedule() {
    in_the_copy_with_mutants
    tests --only '.*model::|white_box::' "${models[@]}"
}
# etcd and Consul: the conformance suite, and what they add to it.
part_consensus() { consensus_stores --but 'all::'; }
# The tests of the lock once more: on a Cluster, on etcd and Consul, and without messages, where only latency and the order across processes
# change.
part_lock-elsewhere() {
    tests --only "$lock_on_cluster" "${it[@]}"
    consensus_stores --only 'all::'
    local of_messages='lock::(granted|passing|lingering|twins)|lock::reentry::(memory|redis)::a_hold_without_reentry'
    of_messages+='|lock::holds::(memory|redis)::(it_lingers|one_that_lasts_long)|lock::awaiting::(memory|redis)::it_lingers'
    DLOCK_TEST_LISTENER=off tests --only 'lock::|processes::|network::' --but "$of_messages" --threads 4 "${it[@]}"
}
# The stores on etcd and Consul, and the command there, on other versions.
part_other-versions() {
    if ! command -v go >/dev/null; then
        echo "SKIPPED: other versions: there is no Go to build them with"
        return
    fi
    local version program other
    for version in "${other_versions[@]}"; do
        if ! build_other_version "$version"; then
            echo "SKIPPED: $version: Go could not build it, see above"
            continue
        fi
        "$(other_version "$version")" --version
        program=${version%%-*} other=consul
        if [[ $program == consul ]]; then
            other=etcd
        fi
        export "${program^^}_BIN=$(other_version "$version")"
        # `others::consul` compares with `consul lock` of the version that the other parts use.
        tests --only ".*$program" --but "all::|others::consul|.*$other" --threads 12 "${crates[@]}" --test stores --test command
    done
}
# The store on MongoDB: a workspace of its own, because its driver brings a hundred crates.
part_mongodb() {
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target/mongodb}
    cd crates/mongodb
    cargo fmt --check
    cargo clippy --locked --all-targets --all-features -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --lib
    if [[ -n ${DLOCK_MONGODB:-} ]]; then
        tests --threads 4 --all-features --lib --test stores
        return
    fi
    if command -v "$secantus" >/dev/null; then
        tests --threads 4 --all-features --lib --test stores
    else
        echo "SKIPPED: MongoDB: there is no server, and no program $secantus"
    fi
    if [[ -x ${FERRETDB_BIN:-} && -d ${DOCUMENTDB_ROOT:-} && $EUID -eq 0 ]]; then
        ../../tests/ferretdb.sh "$FERRETDB_BIN" "$DOCUMENTDB_ROOT" ../../tests/run.sh --part ferretdb
    else
        echo "SKIPPED: FerretDB: FERRETDB_BIN and DOCUMENTDB_ROOT name no programs, or this is not root (tests/ferretdb.sh)"
    fi
}
# Conformance on a FerretDB, without what it cannot do: the README of the crate says why.
part_ferretdb() {
    local but='breaking::(gives_the_key|of_another|tells)|directory::delivers|hand_over::(answers|grants)|names::of_all'
    but+='|queue::(knows_nobody_that_was_not|tells_the_holder)|release::by_a_stranger_leaves|required::a_poll|threads::exclude_one'
    cd crates/mongodb
    tests --only mongodb:: --but "mongodb::($but)" --all-features --test stores
}
part_faults() { tests --only "$few_faults" --but "$missing_stores" --threads 8 "${crates[@]}" --test faults; }
part_every-fault() { tests --but "$few_faults|$missing_stores" --threads 8 "${crates[@]}" --test faults; }
# The mistakes built into the library that the tests of faults must find.
part_mutants() {
    in_the_copy_with_mutants
    tests --only mutants:: --but "$missing_stores" --threads 3 "${crates[@]}" --test faults
}
# The command waits for processes and terminals.
part_command() { tests --but "$missing_stores" --threads 4 "${crates[@]}" --test command; }
# Tasks that await the lock, on runtimes that no other test needs, and a program that traces. Tests start the example programs.
part_tasks() {
    cargo build --locked -p dlock-tasks --example web --example traced
    tests --threads 2 -p dlock-tasks --test tasks
}
part_documents() { cargo test --locked "${crates[@]}" --doc; }
part_examples() {
    # As users run them, but with all features, whose libraries are there already.
    cargo build --locked "${crates[@]}" -p contend -p dlock-examples --example contend --example cron --example leader --example table --example hold
    tests/examples.sh "${CARGO_TARGET_DIR:-target}/debug/examples" "$redis"
    # A store as somebody else writes it, on the port alone: in a build of few crates, without the other stores.
    tests --threads 8 -p sqlite-store
}
# The manual's recipes that need other crates, other locks or other languages.
part_recipes() {
    cargo build --locked "${crates[@]}"
    DLOCK=$(realpath "${CARGO_TARGET_DIR:-target}/debug/dlock")
    export DLOCK
    # A workspace of its own, which nothing else looks at.
    cargo fmt --check --manifest-path tests/recipes/Cargo.toml
    tests --manifest-path tests/recipes/Cargo.toml --target-dir target/recipes
}
# Version 0.1 beside the present one, and the stores on etcd and Consul beside those of an earlier build: the commits that ended the first release's
# entry in the changelog, and that came before waiters confirmed what they are given.
first_version=91d5f8ae62485a07fa6c32474949ea0f1f346826
before=202cf77121c00c660960bfb9ac43c411f8a18f80
part_two-versions() {
    if ! git cat-file -e "$first_version^{commit}" 2>/dev/null; then
        echo "SKIPPED: version 0.1 is not there: the history does not have the commit $first_version"
        return
    fi
    local name
    for name in 0.1 before; do
        rm -rf "target/two-versions/$name"
        mkdir -p "target/two-versions/$name"
    done
    git archive "$first_version" | tar -x -C target/two-versions/0.1
    git archive "$before" | tar -x -C target/two-versions/before
    # Cargo tells packages of one name apart by their versions.
    sed -i 's/"0\.2\.0"/"0.2.0-before"/' target/two-versions/before/Cargo.toml target/two-versions/before/crates/consensus/Cargo.toml
    cargo fmt --check --manifest-path tests/two_versions/Cargo.toml
    tests --but "$missing_stores" --threads 4 --manifest-path tests/two_versions/Cargo.toml --target-dir target/two-versions/target
}
# The command as people install it: a static program, and a Debian package.
part_package() {
    need_musl
    local tool
    for tool in musl-gcc rustup dpkg openssl; do
        if ! command -v "$tool" >/dev/null; then
            echo "SKIPPED: $tool is not there"
            return
        fi
    done
    crates/cli/package.sh target/package
    tests/package.sh target/package "$redis"
}
# A short round of each benchmark: the figures mean little, but the code must work.
part_benches() { cargo test --locked -p dlock-benches --all-features --benches; }
# What is too long for a rung but this one: longer versions, a mix of faults in random order, failovers in a row.
part_long() {
    DLOCK_TEST_LONG=1 tests --only 'endurance::|ending::|lock::races::|manual_clock::waking::' --threads 6 "${it[@]}"
    tests --only 'cluster::many::|lock::low_priority::' --ignored "${it[@]}"
    tests --only lost:: --ignored "${crates[@]}" --test command
    DLOCK_TEST_FAILOVERS=20 tests --only long:: --ignored "${crates[@]}" --test faults
}

# How they run -------------------------------------------------------------------------------------------------------------------------

# Runs tests by `cargo test` with the arguments that follow: of those whose names begin with the pattern after `--only` all but those that
# begin with the one after `--but`. libtest itself matches anywhere in a name.
tests() {
    local only='' but='$^' threads=2 ignored=()
    while true; do
        case $1 in
            --only) only=$2 && shift 2 ;;
            --but) but=$2 && shift 2 ;;
            --threads) threads=$2 && shift 2 ;;
            --ignored) ignored=(--ignored) && shift ;;
            *) break ;;
        esac
    done
    local options=(--test-threads "$threads" "${ignored[@]}" -Z unstable-options --report-time)
    if [[ -z $only && $but == '$^' ]]; then
        cargo test --locked "$@" -- "${options[@]}"
        return
    fi
    cargo test --locked --no-run "$@"
    local names
    mapfile -t names < <(cargo test --quiet --locked "$@" -- --list "${ignored[@]}" 2>/dev/null | sed -n 's/: test$//p' |
        grep -E "^($only)" | grep -Ev "^($but)")
    if [[ ${#names[@]} -eq 0 ]]; then
        echo "tests/run.sh: no test of $* begins with $only"
        return 1
    fi
    cargo test --locked "$@" -- --exact "${names[@]}" "${options[@]}"
}

# Makes the copy of the workspace in which mistakes can be switched on (tests/mutants/main.rs), and goes there. What the copy needs of other
# crates is built for both.
in_the_copy_with_mutants() {
    cargo run --quiet --locked -p dlock-mutants
    export CARGO_TARGET_DIR=$PWD/target RUSTC_WORKSPACE_WRAPPER=$PWD/tests/mutants/rustc.sh
    cd target/mutants
}

# The tests of etcd and Consul, as far as these are there.
consensus_stores() {
    # Their servers wait for one another, and the tests for the ends of leases.
    local but=$missing_stores
    if [[ $1 == --but ]]; then
        but+="|$2" && shift 2
    fi
    tests "$@" --but "$but" --threads 12 "${crates[@]}" --test stores
}

# libtest tells how long each test took only if the program may use what is unstable.
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${host}_RUNNER"="env RUSTC_BOOTSTRAP=1"

logs=target/tests
# Runs a part as a process of its own, and keeps what it prints. Its times are in a file beside that: wall clock, user, system, in seconds.
run_part() {
    local TIMEFORMAT='%R %U %S' status=0
    # In a subshell: the times of what runs beside are not counted here when that ends.
    ({ time tests/run.sh --part "$1" </dev/null >"$logs/$1.log" 2>&1; } 2>"$logs/$1.time") || status=$?
    echo "$status" >"$statuses/$1"
}
# Says how a part ended. If it failed, prints its output in one piece, without the tests that passed.
tell() {
    local wall user system how=passed
    read -r wall user system <"$logs/$1.time"
    if [[ $(cat "$statuses/$1") != 0 ]]; then
        how=FAILED
        grep -vE '^test .* \.\.\. (ok|ignored)' "$logs/$1.log" || true
    fi
    grep -h '^SKIPPED: ' "$logs/$1.log" | sed "s/^/$1: /" || true
    grep -h '^test result: ' "$logs/$1.log" | grep -v ' 0 passed; 0 failed; 0 ignored; ' | sed "s/^/$1: /" || true
    awk -v part="$1" -v how="$how" -v wall="$wall" -v used="$user $system" \
        'BEGIN { split(used, cpu, " "); printf "tests/run.sh: %s %s: %.0f s, %.0f s of processor time\n", part, how, wall, cpu[1] + cpu[2] }'
}
# Runs parts, so many at a time.
run_list() {
    local width=$1 running=0 part
    for part in "${@:2}"; do
        if [[ $running -eq $width ]]; then
            wait -n
            running=$((running - 1))
        fi
        run_and_tell "$part" &
        running=$((running + 1))
    done
    wait
}
run_and_tell() {
    local told
    run_part "$1"
    told=$(tell "$1")
    echo "$told"
}
# Runs parts, so many at a time, and beside them those in the array `computing`, at a lower priority for as long as the others run.
run_all() {
    (
        # At 19 they would get no time beside other programs that compute.
        renice -n 5 "$BASHPID" >/dev/null
        run_list 1 "${computing[@]}"
    ) &
    local beside=$!
    run_list "$@" &
    # shellcheck disable=SC2064
    trap "kill $beside $! 2>/dev/null || true" EXIT
    wait $!
    # From here on nothing else needs the cores. (Only root may raise a priority.)
    lift "$beside"
    wait "$beside"
    trap - EXIT
}
lift() {
    local child
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        lift "$child"
    done
    renice -n 0 -p "$1" >/dev/null 2>&1 || true
}
# The times of the parts, and of their slowest tests.
report() {
    local part files=("${@/#/$logs/}")
    files=("${files[@]/%/.log}")
    printf '\n| part | wall clock, s | processor time, s |\n|---|---|---|\n'
    for part; do
        awk -v part="$part" '{ printf "| `%s` | %.0f | %.0f |\n", part, $1, $2 + $3 }' "$logs/$part.time"
    done
    printf '\nThe slowest tests, in seconds:\n'
    slowest "${files[@]}"
    if [[ $rung == all ]]; then
        for part; do
            printf '\nThe slowest tests of %s:\n' "$part"
            slowest "$logs/$part.log"
        done
    fi
    printf '\nScenes that were played again because the machine stood still: %s\n' "$(cat "${files[@]}" | grep -c '^played again' || true)"
    cat "${files[@]}" | awk '/^test result: /{ passed += $4; failed += $6; skipped += $8 }
        END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }'
}
slowest() {
    cat "$@" | sed -nE 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 \1/p' | sort -rn | awk 'NR <= 10'
}

# The parts that guard what has changed since a commit: those that ARCHITECTURE.md names in the room of each changed file, and those of changed tests.
parts_of_changes() {
    local file
    # New files, too, which git does not know yet.
    { git diff --name-only "$1" -- && git ls-files --others --exclude-standard; } | while read -r file; do
        parts_of "$file"
    done | tr ' ' '\n' | awk 'NF && !seen[$0]++'
}
parts_of() {
    case $1 in
        src/manual/run_book.md | src/manual/metrics.md) echo "it documents command" ;;
        src/manual/operations.md) echo "it documents command unit" ;;
        benches/sizing.sh | src/manual/sizing.md) echo "it documents examples" ;;
        src/manual/recipes.md) echo "it documents command recipes" ;;
        src/manual/stores.md) echo "it documents slow mongodb" ;;
        src/manual/*) echo "it documents" ;;
        crates/mongodb/*) echo mongodb ;;
        # What every store must pass, and what Redis runs.
        crates/conformance/*) echo "it embedded cluster sentinel slow consensus examples mongodb" ;;
        scripts/*) room_guards src/store/redis/script/scripts.rs ;;
        src/* | crates/*/src/*) room_guards "$1" ;;
        tests/white_box/*) room_guards "src/${1#tests/white_box/}" ;;
        tests/it/*) echo "it cluster sentinel slow" ;;
        # The kit of all tests.
        tests/support/*) echo "it cluster sentinel slow command consensus faults" ;;
        tests/faults/*) echo "faults every-fault mutants" ;;
        crates/consensus/tests/white_box/*) echo schedules ;;
        crates/consensus/*) echo consensus lock-elsewhere ;;
        tests/model/*) echo model ;;
        tests/mutants/*) echo schedules mutants ;;
        tests/schedules/*) echo schedules ;;
        crates/cli/tests/*) echo command ;;
        crates/cli/package.sh | tests/package.sh) echo package ;;
        tests/recipes/*) echo recipes ;;
        tests/two_versions/*) echo two-versions ;;
        tests/embedded/*) echo embedded ;;
        tests/examples/pictures.rs) echo "it examples" ;;
        tests/examples/*) echo examples ;;
        crates/cli/README.md) echo "it documents command" ;;
        benches/*) echo benches ;;
        *.md) echo "it documents" ;;
        *) echo "${dev[*]} ${ci[*]}" ;;
    esac
}
# The last column of the table under "Rooms", in the row with the longest path that the file's path begins with.
room_guards() {
    awk -F '|' -v file="${1%.rs}" '
        $0 == "| room | path | may use | guarded by |" { in_table = 1; next }
        in_table && !/^\|/ { exit }
        in_table {
            path = $3; gsub(/[` ]/, "", path)
            if (path != "" && index(file "/", path "/") == 1 && length(path) > best) { best = length(path); guards = $5 }
        }
        END { gsub(/[`,]/, " ", guards); print guards }' ARCHITECTURE.md
}

# What is asked for ----------------------------------------------------------------------------------------------------------------------

rung=${1:-dev}
computing=()
# How many parts run at a time.
width=1
case $rung in
    --part)
        "part_$2"
        exit
        ;;
    list)
        for file in "${@:2}"; do
            echo "$file: $(parts_of "$file")"
        done
        if [[ $# -gt 1 ]]; then
            exit
        fi
        echo "dev: ${dev[*]}"
        echo "ci: ${ci_computing[*]} ${ci[*]}"
        echo "all: ${dev[*]} ${all_computing[*]} ${all[*]}"
        exit
        ;;
    consul | promtool)
        offer "$rung"
        exit
        ;;
    dev) parts=("${dev[@]}") ;;
    ci) parts=("${ci[@]}") computing=("${ci_computing[@]}") width=2 ;;
    all) parts=("${dev[@]}" "${all[@]}") computing=("${all_computing[@]}") width=2 ;;
    changed)
        mapfile -t parts < <(parts_of_changes "${2:-HEAD}")
        if [[ ${#parts[@]} -eq 0 ]]; then
            echo "tests/run.sh: nothing has changed since ${2:-HEAD}"
            exit
        fi
        ;;
    *)
        parts=("$@")
        for part in "${parts[@]}"; do
            if ! declare -F "part_$part" >/dev/null; then
                echo "tests/run.sh: there is no part '$part': see tests/run.sh list" >&2
                exit 2
            fi
        done
        ;;
esac

if ! command -v cargo >/dev/null; then
    echo "tests/run.sh: cargo is missing: install Rust from https://rustup.rs" >&2
    exit 1
fi
need_redis
if [[ $rung != dev ]]; then
    need_etcd
fi
if [[ $rung == all ]]; then
    # The comparison with other programs fails where one of them is missing.
    export DLOCK_TEST_EVERY_PROGRAM=1
    need_built consul
    need_built promtool
fi
all_parts=("${computing[@]}" "${parts[@]}")
if [[ " ${all_parts[*]} " == *" mongodb "* ]]; then
    need_mongodb
fi
mkdir -p "$logs"
# Of this run alone: another one in the same place says nothing of it.
statuses=$(mktemp -d)
run_all "$width" "${parts[@]}"
report "${all_parts[@]}"
say_which_stores
failed=()
for part in "${all_parts[@]}"; do
    # A part that has left no status has not passed.
    if [[ $(cat "$statuses/$part") != 0 ]]; then
        failed+=("$part")
    fi
done
rm -r "$statuses"
if [[ ${#failed[@]} -ne 0 ]]; then
    echo "tests/run.sh: FAILED: ${failed[*]}; what each has printed is above, and in $logs" >&2
    exit 1
fi
echo "tests/run.sh: all passed"
