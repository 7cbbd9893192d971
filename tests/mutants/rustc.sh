#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER for the copy with mutants. Unlike RUSTFLAGS, it leaves the build of dependencies unchanged.
exec "$@" --cfg dlock_mutants
