#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER that compiles the mistakes into the library. Unlike RUSTFLAGS, it leaves the build of dependencies unchanged.
exec "$@" --cfg dlock_mutants
