# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# What a failing seed prints reproduces it, in one line; wrong usage says what is wrong.
set -eu
sim=$VIADUCT_BUILD_DIR/viaduct-sim

fail() {
    echo "FAILED: $*"
    exit 1
}

out=$("$sim" run --first 3 --count 200 --plant lost-delivery --quiet) && fail "a lost delivery went unnoticed"
[ "$(printf '%s\n' "$out" | grep -c '^reproduce: ')" -eq 2 ] || fail "not the seed and the shrunk case in: $out"
printf '%s\n' "$out" | grep -q '^shrunk in .* runs to 2 of ' || fail "not shrunk: $out"
for n in 1 2; do
    line=$(printf '%s\n' "$out" | sed -n 's/^reproduce: viaduct-sim //p' | sed -n ${n}p)
    failure=$(printf '%s\n' "$out" | grep '^FAILED' | sed -n ${n}p)
    # shellcheck disable=SC2086 # the line is the arguments
    again=$("$sim" $line) && fail "'$line' does not fail"
    printf '%s\n' "$again" | grep -qxF "$failure" || fail "'$line' fails otherwise: $again"
    printf '%s\n' "$again" | grep -q '^--- the end of its history' || fail "'$line': not the end of its history: $again"
done
# The last is the shrunk one. The history shows links, frames both ways, operations, time.
# shellcheck disable=SC2086
trace=$("$sim" $line --trace) && fail "'$line' does not fail with a trace"
for words in '^ *0\.000000 link 0: host . port . - host . port .' \
    ' host [01] > host [01] (link 0, thread [0-9]*): record [0-9]*: MESSAGE [0-9]* of flow' \
    ' host [01] < host [01] (link 0, thread [0-9]*): arrives: ' ': link state of host ' ': ACK [0-9]* of flow' \
    ' FAILURE at '; do
    printf '%s\n' "$trace" | grep -q -- "$words" || fail "the trace of '$line' does not say '$words'"
done
"$sim" seed 5 --set cuts=3,direct=0,crashes=1,graph=ring --trace | grep -q '^ *[0-9.]* link .* is cut for ' ||
    fail "a fault is not told"
out=$("$sim" run --first 3 --count 200 --plant lost-delivery --quiet --no-shrink) && fail "unnoticed"
printf '%s\n' "$out" | grep -q '^shrunk' && fail "shrunk although it must not be"

for args in "seed" "seed x" "run --count 0" "run --graph spiral" "run --plant weeds" "walk" "seed 1 2" "run --bad" \
    "seed 1 --set wheels=4" "seed 1 --set hosts=1" "seed 1 --faults 3-" "seed 1 --work x" "shrink" "keys 1"; do
    # shellcheck disable=SC2086
    if text=$("$sim" $args 2>&1); then
        fail "'$args' is accepted"
    elif [ $? -ne 2 ]; then
        fail "'$args': exit code is not 2"
    fi
    printf '%s\n' "$text" | grep -q viaduct-sim || fail "'$args': says only '$text'"
done
