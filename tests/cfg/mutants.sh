#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER of the mistakes built into the library. Unlike RUSTFLAGS, it leaves the dependencies as they are built.
exec "$@" --cfg dlock_mutants
