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

# A certificate of our own for a server that containers know by its name.
printf '[req]\ndistinguished_name=name\n[name]\n' >"$directory/openssl"
certificate() {
    openssl req -x509 -config "$directory/openssl" -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
        -addext "basicConstraints=critical,CA:$2" -keyout "$directory/$1.key" -out "$directory/$1.pem" "${@:3}" 2>"$directory/openssl.log" ||
        fail "$(cat "$directory/openssl.log")"
}
certificate authority TRUE
certificate redis.internal FALSE -addext subjectAltName=DNS:redis.internal -CA "$directory/authority.pem" -CAkey "$directory/authority.key"

# A server of our own, which ends with this script.
for _ in {1..5}; do
    port=$((20000 + RANDOM % 10000))
    "$redis" --port $port --tls-port $((port + 1)) --save '' --dir "$directory" --unixsocket "$directory/socket" --tls-auth-clients no \
        --tls-ca-cert-file "$directory/authority.pem" --tls-cert-file "$directory/redis.internal.pem" \
        --tls-key-file "$directory/redis.internal.key" >"$directory/redis.log" &
    server=$!
    trap 'kill $(jobs -p); wait; rm -rf "$directory"' EXIT
    for _ in {1..200}; do
        # A port may be taken.
        kill -0 $server 2>/dev/null && [[ ! -S $directory/socket ]] || break
        sleep 0.05
    done
    [[ -S $directory/socket ]] && break
done
[[ -S $directory/socket ]] || fail "$(cat "$directory/redis.log")"

# Runs a command in a root directory, with what each container has: /proc, /dev/null, and /etc/hosts, where a name of the server stands here.
enter='mount --bind /proc "$0/proc" && mount --bind /dev/null "$0/dev/null" && exec chroot "$0" "$@"'
within() {
    mkdir -p "$1/proc" "$1/dev" "$1/etc"
    : >"$1/dev/null"
    echo '127.0.0.1 redis.internal' >"$1/etc/hosts"
    cp "$packages/dlock" "$1/dlock"
    cp "$directory/authority.pem" "$1/authority.pem"
    unshare --mount --map-root-user env -i sh -c "$enter" "$@"
}
# Whether the program locks in a root directory: on the server of a name, and encrypted with the certificates of a file.
works_in() {
    local root=$1 url options got
    for url in "redis://redis.internal:$port" "rediss://redis.internal:$((port + 1))"; do
        options=(--url "$url")
        [[ $url == redis:* ]] || options+=(--ca /authority.pem)
        got=$(within "$root" /dlock run --no-wait "${options[@]}" JOB x -- /dlock show "${options[@]}" JOB x 2>&1) || fail "in $root, $url: $got"
        grep -q 'DLOCK_JOB_x' <<<"$got" || fail "in $root, $url: $got"
    done
}
# The same without `--ca`. Prints what the program says.
without_ca() {
    within "$1" /dlock run --no-wait --url "rediss://redis.internal:$((port + 1))" JOB x -- /dlock --version 2>&1
}
system=etc/ssl/certs/ca-certificates.crt
# In an image of a system, the certificates are those of the system's file, and of no other.
takes_the_systems() {
    ! without_ca "$1" >/dev/null || fail "in $1: a certificate that nobody has signed counts"
    [[ -s $1/$system ]] || fail "in $1: no $system"
    cat "$directory/authority.pem" >>"$1/$system"
    without_ca "$1" >/dev/null || fail "in $1: $(without_ca "$1")"
}

empty=$directory/empty
works_in "$empty"
if said=$(without_ca "$empty"); then fail "in an empty root: no certificates are needed"; fi
grep -q 'the platform has none' <<<"$said" || fail "in an empty root, without --ca: $said"

# The root of distroless' image `static`: it is made of these packages, and of a file with the certificates.
distroless=$directory/distroless
mkdir "$directory/debs" "$distroless"
if (cd "$directory/debs" && apt-get download base-files netbase tzdata media-types ca-certificates) >/dev/null 2>&1; then
    for deb in "$directory/debs/"*; do
        dpkg-deb --extract "$deb" "$distroless"
    done
    find "$distroless/usr/share/ca-certificates" -name '*.crt' -print0 | sort -z | xargs -0 cat >"$distroless/certificates"
    install -D "$distroless/certificates" "$distroless/$system"
    works_in "$distroless"
    takes_the_systems "$distroless"
else
    echo "SKIPPED: the packages of distroless' root are not there"
fi
# The root of Alpine: `alpine-minirootfs-VERSION-ARCHITECTURE.tar.gz`, as Alpine releases it.
if [[ -n ${ALPINE_ROOT:-} ]]; then
    alpine=$directory/alpine
    mkdir "$alpine"
    tar -C "$alpine" -xzf "$ALPINE_ROOT"
    works_in "$alpine"
    takes_the_systems "$alpine"
    # Its own shell runs below the lock.
    got=$(within "$alpine" /dlock run --no-wait --url "redis://redis.internal:$port" JOB x -- /bin/sh -c '. /etc/os-release; echo "$ID $DLOCK_KEY"')
    [[ $got == 'alpine DLOCK_JOB_x' ]] || fail "in Alpine's root: $got"
else
    echo "SKIPPED: Alpine's root is not there: ALPINE_ROOT names its archive"
fi

# The Debian package, installed into a root of its own.
export DLOCK_URL=unix://$directory/socket
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
