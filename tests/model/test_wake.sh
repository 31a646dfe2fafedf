#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# The model of the wake protocol: no wake-up is lost, and each of the broken variants loses one.
set -euo pipefail

model=$(cd "$(dirname "$0")" && pwd)/wake.pml
for program in spin gcc; do
    command -v $program >/dev/null || { echo "skipped: $program is not installed" && exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# usage: errors_of OPTION...: how many errors spin finds in all orders of events
errors_of() {
    spin "$@" -a "$model" >/dev/null
    gcc -O1 -w -DSAFETY -DCOLLAPSE -o pan pan.c
    ./pan -m200000 >out
    if grep -q 'max search depth too small\|out of memory' out; then
        cat out >&2
        exit 1
    fi
    sed -n 's/.*errors: \([0-9]*\)$/\1/p' out
}

one="-DTHREADS=1 -DPEERS=1 -DRECORDS=3"
failed=0
for sizes in "$one" "-DTHREADS=1 -DPEERS=2 -DRECORDS=1" "-DTHREADS=2 -DPEERS=1 -DRECORDS=1"; do
    errors=$(errors_of $sizes)
    echo "$sizes: $(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' out) states, $errors errors"
    if [[ $errors != 0 ]]; then
        echo "a wake-up can be lost; how: spin $sizes -a $model; gcc -DSAFETY -o pan pan.c; ./pan; spin $sizes -t -p -g $model"
        failed=1
    fi
done
for variant in NO_PEER_FENCE NO_SLEEPER_FENCE NO_SECOND_LOOK RUNG_FOR_GOOD EDGE_TAKEN_FIRST; do
    errors=$(errors_of $one -D$variant)
    if [[ $errors == 0 ]]; then
        echo "$variant: nothing is lost, but something should be"
        failed=1
    else
        echo "$variant: caught"
    fi
done
exit $failed
