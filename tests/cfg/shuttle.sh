#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER of the model of threads. Unlike RUSTFLAGS, it leaves the dependencies as they are built.
exec "$@" --cfg dlock_shuttle
