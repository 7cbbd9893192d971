#!/usr/bin/env bash
# Makes the command `dlock` as one static program, which needs no library of the system, and a Debian package with it, its manual pages and
# its completions: crates/cli/package.sh [DIRECTORY]. The directory is target/package, unless another is named.
#
# DEBFULLNAME and DEBEMAIL name the maintainer of the package, as for Debian's own tools.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/package}
target=$(uname -m)-unknown-linux-musl

for tool in rustup musl-gcc dpkg; do
    # ring, of the feature `tls`, has parts in C.
    if ! command -v "$tool" >/dev/null; then
        echo "crates/cli/package.sh: $tool is missing: install Rust from https://rustup.rs, and apt-get install musl-tools dpkg" >&2
        exit 1
    fi
done
rustup --quiet target add "$target"
# Relative relocations in short form: the table is read at the start, and takes memory.
cargo rustc --quiet --locked --profile dist -p dlock-cli --bin dlock --all-features --target "$target" -- \
    -C link-arg=-Wl,-z,pack-relative-relocs -C "link-arg=-T$PWD/crates/cli/layout.ld"
dlock=${CARGO_TARGET_DIR:-target}/$target/dist/dlock

# Where Debian's programs look for each file.
root=$out/root
rm -rf "$root"
install -D "$dlock" "$out/dlock"
install -D "$dlock" "$root/usr/bin/dlock"
pages=$root/usr/share/man/man1
install -d "$pages"
"$dlock" man | gzip -9n >"$pages/dlock.1.gz"
for command in $("$dlock" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]\+\) .*/\1/p'); do
    if [[ $command != help ]]; then
        "$dlock" man "$command" | gzip -9n >"$pages/dlock-$command.1.gz"
    fi
done
completions() {
    install -d "$(dirname "$root/usr/share/$2")"
    "$dlock" completions "$1" >"$root/usr/share/$2"
}
completions bash bash-completion/completions/dlock
completions zsh zsh/vendor-completions/_dlock
completions fish fish/vendor_completions.d/dlock.fish
install -D -m 644 crates/cli/README.md "$root/usr/share/doc/dlock/README.md"
cat LICENSE-MIT LICENSE-APACHE | install -D -m 644 /dev/stdin "$root/usr/share/doc/dlock/copyright"

version=$("$dlock" --version | sed 's/^dlock //')
architecture=$(dpkg --print-architecture)
install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: dlock
Version: $version
Architecture: $architecture
Maintainer: ${DEBFULLNAME:-the redis-dlock developers} <${DEBEMAIL:-root@localhost}>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Section: admin
Priority: optional
Description: runs a command under a distributed lock
 For cron jobs and shell scripts: a command runs on one machine at a time. The lock is on Redis, etcd or Consul. dlock renews its lease
 for as long as the command runs, and ends the command if the lock is lost. It also shows and breaks locks, and examines servers.
END
dpkg-deb --root-owner-group --build "$root" "$out/dlock_${version}_$architecture.deb" >/dev/null
rm -rf "$root"
echo "$out/dlock" "$out/dlock_${version}_$architecture.deb"
