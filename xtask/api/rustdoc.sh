#!/bin/sh
# JSON is an unstable format of rustdoc's. Here, and not in cargo's own environment: build scripts watch it.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
