#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Runs every fuzzer for a number of seconds, one after the other:
#   run.sh <folder of a build with libFuzzer> <seconds>
# Inputs that reach new code are kept in <folder>/inputs, and those that find an error in <folder>.
set -u
build=$1
seconds=$2
inputs=$(dirname "$0")/inputs
failed=""
for fuzzer in "$build"/bin/fuzz_*; do
    name=${fuzzer##*/fuzz_}
    folders=("$build/inputs/$name")
    mkdir -p "${folders[0]}"
    [ ! -d "$inputs/$name" ] || folders+=("$inputs/$name")
    # Without leak detection: threads of some fuzzers still run when an input has ended, and may free its memory later.
    "$fuzzer" -max_total_time="$seconds" -detect_leaks=0 -timeout=120 -rss_limit_mb=4096 \
        -artifact_prefix="$build/$name-" "${folders[@]}" || failed="$failed $name"
done
if [ -n "$failed" ]; then
    echo "failed:$failed"
    exit 1
fi
