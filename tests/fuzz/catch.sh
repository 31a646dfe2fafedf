#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Each fuzzer must find the bug that is planted for it (src/base/mutant.h):
#   catch.sh <folder of a build with libFuzzer> <seconds for each> [<plant>...]
# A fuzzer begins with the files of inputs/, as in run.sh. The input that it finds must do no harm without the bug.
set -u
build=$1
seconds=$2
shift 2
inputs=$(dirname "$0")/inputs
fuzzers=("$build"/bin/fuzz_*)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
missed=""
[ $# -ne 0 ] || mapfile -t plants < <("${fuzzers[0]}" --plants | cut -d' ' -f1)
for plant in "${plants[@]-}" "$@"; do
    [ -n "$plant" ] || continue
    name=${plant%%-*}
    fuzzer=$build/bin/fuzz_$name
    mkdir -p "$scratch/$plant"
    folders=("$scratch/$plant")
    [ ! -d "$inputs/$name" ] || folders+=("$inputs/$name")
    case $name in
    rules | topology | pmi) kind=-only_ascii=1 ;; # text
    *) kind=-only_ascii=0 ;;
    esac
    begin=$(date +%s)
    "$fuzzer" --plant="$plant" -seed=1 "$kind" -max_total_time="$seconds" -detect_leaks=0 -timeout=60 -rss_limit_mb=4096 \
        -artifact_prefix="$scratch/$plant-" "${folders[@]}" >"$scratch/$plant.log" 2>&1
    status=$?
    found=("$scratch/$plant"-*)
    if [ "$status" -eq 139 ]; then # in a thread of a host, which lets no handler of signals run
        echo "$plant: caught after $(($(date +%s) - begin)) s: it died of a wrong address"
        continue
    elif [ ! -e "${found[0]}" ]; then
        echo "$plant: NOT CAUGHT in $seconds s"
    elif ! "$fuzzer" -detect_leaks=0 -timeout=60 "${found[0]}" >"$scratch/$plant.log" 2>&1; then
        cp "${found[0]}" "$build/$name-found"
        echo "$plant: $build/$name-found breaks the fuzzer without it, too"
    else
        echo "$plant: caught after $(($(date +%s) - begin)) s"
        continue
    fi
    missed="$missed $plant"
done
for fuzzer in "${fuzzers[@]}"; do
    name=${fuzzer##*/fuzz_}
    "$fuzzer" --plants | grep -q "^$name-" || missed="$missed fuzz_$name(none)"
done
if [ -n "$missed" ]; then
    echo "not caught:$missed"
    exit 1
fi
