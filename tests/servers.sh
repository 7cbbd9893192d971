# The programs that the tests start: redis-server, etcd, Consul, Prometheus' promtool, and a stand-in of a mongod; and a compiler.
# tests/run.sh reads this file.

redis=${REDIS_SERVER_BIN:-redis-server}
etcd=${ETCD_BIN:-etcd}
consul=${CONSUL_BIN:-consul}
promtool=${PROMTOOL_BIN:-promtool}
secantus=${SECANTUS_BIN:-secantusd-rs}

# Whether there is a redis-server that the tests can use.
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
        echo "tests/run.sh: installing $* needs root, and there is no sudo" >&2
        exit 1
    fi
}

install_packages() {
    as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y "$@"
}

need_redis() {
    if usable_redis; then
        return
    fi
    if [[ -n ${REDIS_SERVER_BIN:-} ]]; then
        echo "tests/run.sh: REDIS_SERVER_BIN=$REDIS_SERVER_BIN is no redis-server 7.0 or newer, and no valkey-server" >&2
        exit 1
    fi
    if ! command -v apt-get >/dev/null; then
        echo "tests/run.sh: no redis-server 7.0 or newer found: install one and put it into PATH" >&2
        exit 1
    fi
    install_packages redis-server
    if ! usable_redis; then
        echo "tests/run.sh: apt-get gave no redis-server 7.0 or newer (Debian 12, Ubuntu 24.04 and later have one)" >&2
        exit 1
    fi
}

# The tests of etcd run where etcd is, and where it can be installed. One of them needs `etcdctl`.
need_etcd() {
    if { command -v "$etcd" && command -v etcdctl; } >/dev/null || [[ $etcd != etcd ]] || ! command -v apt-get >/dev/null; then
        return
    fi
    if [[ $(id -u) -eq 0 ]] || command -v sudo >/dev/null; then
        install_packages etcd-server etcd-client || true
    fi
}

# The compiler of the parts in C of a static program.
need_musl() {
    if command -v musl-gcc >/dev/null || ! command -v apt-get >/dev/null; then
        return
    fi
    if [[ $(id -u) -eq 0 ]] || command -v sudo >/dev/null; then
        install_packages musl-tools || true
    fi
}

# Debian has no Consul. Where Go is, it is built, once. It takes some minutes of processor time, so only the rung `all` does that.
built_consul=${XDG_CACHE_HOME:-$HOME/.cache}/redis-dlock/$(sed -n 's|^require github.com/hashicorp/\(.*\) |\1-|p' crates/consensus/tests/stores/consul/go.mod)

build_consul() {
    local work
    work=$(mktemp -d)
    cp crates/consensus/tests/stores/consul/{go.mod,tools.go} "$work"
    mkdir -p "$(dirname "$built_consul")"
    # The name appears when the file is whole.
    (cd "$work" && go mod tidy && go build -trimpath -ldflags='-s -w' -o "$built_consul.$$" github.com/hashicorp/consul) &&
        mv "$built_consul.$$" "$built_consul"
    local status=$?
    rm -rf "$work"
    return $status
}

# etcd of each series that is newer than Debian's, and an older Consul, for the part `other-versions`. Go builds each once, etcd in a minute.
other_versions=(etcd-v3.6.16 etcd-v3.7.3 consul-v1.21.0)
other_version() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/redis-dlock/$1"; }

build_other_version() {
    local built work package=github.com/hashicorp/consul
    built=$(other_version "$1")
    if [[ -x $built ]]; then
        return
    fi
    if [[ $1 == etcd-* ]]; then
        package=go.etcd.io/etcd/server/v3
    fi
    work=$(mktemp -d)
    mkdir -p "$(dirname "$built")"
    # The name appears when the file is whole. A module around it, because `go install …@version` refuses replace directives.
    (cd "$work" && go mod init server-for-tests && go get "$package@${1#*-}" &&
        go build -trimpath -ldflags='-s -w' -o "$built.$$" "$package") && mv "$built.$$" "$built"
    local status=$?
    rm -rf "$work"
    return $status
}

# The version of Prometheus whose promtool fires the alerts of the manual.
prometheus=v0.316.0
built_promtool=${XDG_CACHE_HOME:-$HOME/.cache}/redis-dlock/prometheus-$prometheus/promtool

# Without the discovery of services, which the alerts do not need, and which is most of what there is to compile.
build_promtool() {
    GOBIN=$(dirname "$built_promtool") go install -trimpath -ldflags='-s -w' -tags remove_all_sd,slicelabels \
        "github.com/prometheus/prometheus/cmd/promtool@$prometheus"
}

# Builds consul or promtool, unless it is there or Go is not.
need_built() {
    local built=built_$1
    if command -v "${!1}" >/dev/null || ! command -v go >/dev/null; then
        return
    fi
    if "build_$1"; then
        printf -v "$1" %s "${!built}"
        export "${1^^}_BIN=${!built}"
    else
        echo "tests/run.sh: Go could not build $1, see above"
    fi
}

# SecantusDB's server speaks MongoDB's protocol. It is a process beside the tests: its licence is the GPL.
secantus_version=0.5.3-beta.196
built_secantus=${XDG_CACHE_HOME:-$HOME/.cache}/redis-dlock/secantusd-rs-$secantus_version

# It asks for a newer compiler than it needs: a nightly one of May 2026 builds it.
build_secantus() {
    local work
    work=$(mktemp -d)
    mkdir -p "$(dirname "$built_secantus")"
    # The name appears when the file is whole.
    cargo +nightly install secantus-mdb --version "$secantus_version" --locked --ignore-rust-version --root "$work" --target-dir "$work/target" &&
        mv "$work/bin/secantusd-rs" "$built_secantus.$$" && mv "$built_secantus.$$" "$built_secantus"
    local status=$?
    rm -rf "$work"
    return $status
}

# The tests of MongoDB run on the server that DLOCK_MONGODB names, or on the stand-in, which takes some minutes of processor time, once.
need_mongodb() {
    if [[ -n ${DLOCK_MONGODB:-} ]] || command -v "$secantus" >/dev/null; then
        return
    fi
    if build_secantus; then
        secantus=$built_secantus
        export SECANTUS_BIN=$secantus
    else
        echo "tests/run.sh: SecantusDB's server could not be built, see above: it needs a nightly toolchain of Rust, CMake and a C compiler"
    fi
}

# Takes the programs that were built before, unless others are named or in PATH.
find_built() {
    local name
    for name in consul promtool secantus; do
        local named=${name^^}_BIN built=built_$name
        if ! command -v "${!name}" >/dev/null && [[ -z ${!named:-} && -x ${!built} ]]; then
            printf -v "$name" %s "${!built}"
        fi
    done
    export ETCD_BIN=$etcd CONSUL_BIN=$consul PROMTOOL_BIN=$promtool SECANTUS_BIN=$secantus
}

# Builds the program of this name, unless it is there.
offer() {
    local built=built_$1
    find_built
    if command -v "${!1}" >/dev/null; then
        echo "tests/run.sh: $1 is there: $(command -v "${!1}")"
    elif command -v go >/dev/null; then
        "build_$1"
        echo "tests/run.sh: $1 is built: ${!built}"
    else
        echo "tests/run.sh: $1 cannot be built: there is no Go"
    fi
}

# The beginnings of the names of the tests whose programs are missing: a pattern. Such a test has the program's name in a module's, or its
# own name begins with it.
missing_stores() {
    local store missing='$^'
    for store in etcd consul promtool; do
        command -v "${!store}" >/dev/null || missing+="|(.*(::|_))?$store::|(.*::)?${store}_"
    done
    echo "$missing"
}

say_which_stores() {
    local store
    for store in etcd consul promtool; do
        if command -v "${!store}" >/dev/null; then
            echo "tests/run.sh: $store is there: $(command -v "${!store}")"
        else
            echo "tests/run.sh: the tests of $store DID NOT RUN: there is no program ${!store}"
        fi
    done
}
