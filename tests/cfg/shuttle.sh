#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER that compiles the model of threads. Unlike RUSTFLAGS, it leaves the build of dependencies unchanged.
exec "$@" --cfg dlock_shuttle
