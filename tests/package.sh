#!/usr/bin/env bash
# Uses what crates/cli/package.sh has made: tests/package.sh DIRECTORY [REDIS_SERVER].
set -euo pipefail
packages=$(realpath "$1")
redis=${2:-redis-server}
directory=$(mktemp -d)

fail() {
    echo "tests/package.sh: $1" >&2
    exit 1
}

# A root directory as that of an image without a system: the program, and what each container has, /proc and /dev/null.
empty=$directory/empty
install -D "$packages/dlock" "$empty/dlock"
mkdir "$empty/proc" "$empty/dev"
: >"$empty/dev/null"

# A server of our own, which ends with this script.
"$redis" --port 0 --save '' --dir "$directory" --unixsocket "$empty/socket" >/dev/null &
trap 'kill $(jobs -p); wait; rm -rf "$directory"' EXIT
for _ in {1..200}; do
    [[ -S $empty/socket ]] && break
    sleep 0.05
done

enter='mount --bind /proc "$0/proc" && mount --bind /dev/null "$0/dev/null" && exec chroot "$0" "$@"'
within=$(DLOCK_URL=unix:///socket unshare --mount --map-root-user sh -c "$enter" "$empty" /dlock run JOB x -- /dlock show JOB x)
grep -q 'DLOCK_JOB_x' <<<"$within" || fail "in an empty root: $within"

# The Debian package, installed into a root of its own.
export DLOCK_URL=unix://$empty/socket
root=$directory/root
mkdir -p "$root/var/lib/dpkg/"{info,updates}
: >"$root/var/lib/dpkg/status"
dpkg --root="$root" --log=/dev/null --force-not-root --install "$packages"/dlock_*.deb >/dev/null
[[ $(cd "$root/usr/bin" && PATH=.:$PATH dlock run JOB x -- sh -c 'echo "$DLOCK_KEY"') == DLOCK_JOB_x ]] || fail "the installed program"

# What one takes that waits, in kB of 1024 bytes: 3 MB at most. The command's README says a little less.
shows() {
    for _ in {1..200}; do
        "$root/usr/bin/dlock" show JOB y | grep -q "$1" && return
        sleep 0.05
    done
    fail "nobody $1"
}
"$root/usr/bin/dlock" run JOB y -- sleep 100 &
holder=$!
shows 'held by'
"$root/usr/bin/dlock" run JOB y -- true &
waiter=$!
shows 'waits:'
memory=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$waiter/status")
kill "$waiter" "$holder"
wait "$waiter" "$holder" || true
[[ $memory -le 2929 ]] || fail "a waiting dlock takes $memory kB"

if command -v man >/dev/null; then
    for page in "$root"/usr/share/man/man1/*; do
        name=$(basename "$page" .1.gz)
        LC_ALL=C.UTF-8 man --warnings=w --local-file "$page" 2>"$directory/warnings" | grep -q "^ *${name/-/.}" || fail "no page of $name"
        [[ ! -s $directory/warnings ]] || fail "$page: $(cat "$directory/warnings")"
    done
else
    echo "SKIPPED: man is not there"
fi
# shellcheck disable=SC1091
completed=$(source "$root/usr/share/bash-completion/completions/dlock" && COMP_WORDS=(dlock do) && COMP_CWORD=1 && _dlock dlock do dlock && echo "${COMPREPLY[@]}")
[[ $completed == doctor ]] || fail "bash completes $completed"
dpkg --root="$root" --log=/dev/null --force-not-root --remove dlock >/dev/null
[[ ! -e $root/usr ]] || fail "the package leaves files behind"
