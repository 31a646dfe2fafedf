# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# What a failing seed prints reproduces it, in one line; wrong usage says what is wrong.
set -eu
sim=$VIADUCT_BUILD_DIR/viaduct-sim

fail() {
    echo "FAILED: $*"
    exit 1
}

out=$("$sim" run --first 1 --count 200 --plant lost-delivery --quiet) && fail "a lost delivery went unnoticed"
line=$(printf '%s\n' "$out" | sed -n 's/^reproduce: viaduct-sim //p')
[ -n "$line" ] || fail "no reproduction in: $out"
failure=$(printf '%s\n' "$out" | grep '^FAILED')
# shellcheck disable=SC2086 # the line is the arguments
again=$("$sim" $line) && fail "'$line' does not fail"
printf '%s\n' "$again" | grep -qxF "$failure" || fail "'$line' fails otherwise: $again"
# shellcheck disable=SC2086
"$sim" $line --trace | grep -q delivered || fail "no trace"

for args in "seed" "seed x" "run --count 0" "run --graph spiral" "run --plant weeds" "walk" "seed 1 2" "run --bad"; do
    # shellcheck disable=SC2086
    if text=$("$sim" $args 2>&1); then
        fail "'$args' is accepted"
    elif [ $? -ne 2 ]; then
        fail "'$args': exit code is not 2"
    fi
    printf '%s\n' "$text" | grep -q viaduct-sim || fail "'$args': says only '$text'"
done
"$sim" replay "$VIADUCT_SOURCE_DIR/no/such/file" 2>&1 | grep -q 'no/such/file: open: No such file' || fail "replay"

file=$(mktemp)
trap 'rm -f "$file"' EXIT
printf '# two\n7\n8 ring # with its graph\n' >"$file"
"$sim" replay "$file" | grep -qxF "2 seeds of $file: ok" || fail "replay of two seeds"
printf '7\n8 spiral\n' >"$file"
"$sim" replay "$file" 2>&1 | grep -qF "$file:2: not a seed and a graph" || fail "replay of a bad line"
