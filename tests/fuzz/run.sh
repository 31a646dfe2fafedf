#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Every fuzzer for SECONDS seconds, one after the other:
#   run.sh <folder of a build with libFuzzer> <seconds>
# What they learn is kept in <folder>/inputs, what breaks them lies in <folder>.
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
    # Leaks: some have threads that live on, so what an input has left is not known when it ends.
    "$fuzzer" -max_total_time="$seconds" -detect_leaks=0 -timeout=120 -rss_limit_mb=4096 \
        -artifact_prefix="$build/$name-" "${folders[@]}" || failed="$failed $name"
done
if [ -n "$failed" ]; then
    echo "failed:$failed"
    exit 1
fi
