#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# The models of wake-ups: no wake-up is lost, and each of the broken variants loses one.
set -euo pipefail

models=$(cd "$(dirname "$0")" && pwd)
for program in spin gcc; do
    command -v $program >/dev/null || { echo "skipped: $program is not installed" && exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# usage: errors_of MODEL OPTION...: how many errors spin finds in all orders of events
errors_of() {
    spin "${@:2}" -a "$models/$1" >/dev/null
    gcc -O0 -w -DSAFETY -DCOLLAPSE -o pan pan.c
    ./pan -m200000 -w18 >out
    if grep -q 'max search depth too small\|out of memory' out; then
        cat out >&2
        exit 1
    fi
    sed -n 's/.*errors: \([0-9]*\)$/\1/p' out
}

failed=0

# usage: loses_none MODEL OPTION...
loses_none() {
    local errors
    errors=$(errors_of "$@")
    echo "$*: $(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' out) states, $errors errors"
    if [[ $errors != 0 ]]; then
        echo "a wake-up can be lost; how: spin ${*:2} -a $models/$1; gcc -DSAFETY -o pan pan.c; ./pan;" \
            "spin ${*:2} -t -p -g $models/$1"
        failed=1
    fi
}

# usage: loses_one MODEL VARIANT OPTION...
loses_one() {
    if [[ $(errors_of "$1" "-D$2" "${@:3}") == 0 ]]; then
        echo "$1 $2: nothing is lost, but something should be"
        failed=1
    else
        echo "$1 $2: caught"
    fi
}

one="-DTHREADS=1 -DPEERS=1 -DRECORDS=3"
for sizes in "$one" "-DTHREADS=1 -DPEERS=2 -DRECORDS=1" "-DTHREADS=2 -DPEERS=1 -DRECORDS=1"; do
    loses_none wake.pml $sizes
done
for variant in NO_PEER_FENCE NO_SLEEPER_FENCE NO_SECOND_CHECK RUNG_FOR_GOOD EDGE_TAKEN_FIRST; do
    loses_one wake.pml $variant $one
done
loses_none pipe.pml
for variant in NO_WRITER_FENCE NO_SECOND_CHECK RING_FOR_OLD KEPT_WHILE_HELD KEPT_AFTER_HELD BELL_IN_VAIN; do
    loses_one pipe.pml $variant
done
exit $failed
