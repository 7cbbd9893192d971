#!/usr/bin/env bash
# Runs a command with DLOCK_MONGODB for a FerretDB of its own, which stands before a PostgreSQL with DocumentDB. As root: PostgreSQL is in a root
# directory, made by `debootstrap --variant=minbase sid ROOT` and Debian's postgresql-18-documentdb.
#
#   tests/ferretdb.sh FERRETDB ROOT COMMAND...
set -euo pipefail
ferretdb=$1 root=$2
port=$(shuf -i 20000-29000 -n 1)
data=/srv/dlock-$port
postgres() { chroot "$root" su postgres -c "PATH=/usr/lib/postgresql/18/bin:\$PATH; $1" >/dev/null; }
end() {
    kill "${ferret:-}" 2>/dev/null || true
    postgres "pg_ctl -D $data/db -m immediate stop" || true
    umount "$root/dev"
    rm -rf "${root:?}$data"
}
mount --bind /dev "$root/dev"
trap end EXIT
install -d -o "$(stat -c %u "$root/var/lib/postgresql")" "$root$data"
postgres "initdb -D $data/db -A trust -U postgres"
cat >>"$root$data/db/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
port = $((port + 1000))
unix_socket_directories = '$data'
cron.database_name = 'postgres'
shared_preload_libraries = 'pg_cron,pg_documentdb_core,pg_documentdb'
CONF
postgres "pg_ctl -D $data/db -l $data/log -w start"
postgres "psql -q -h $data -p $((port + 1000)) -c 'create extension documentdb cascade'"
"$ferretdb" --listen-addr="127.0.0.1:$port" --postgresql-url="postgres://postgres@127.0.0.1:$((port + 1000))/postgres" \
    --state-dir="$root$data" --no-auth --telemetry=disable --debug-addr=- --log-level=error &
ferret=$!
for _ in {1..100}; do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break || sleep 0.1; done
DLOCK_MONGODB=mongodb://127.0.0.1:$port/ "${@:3}"
