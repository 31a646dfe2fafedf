# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# "viaduct-sim calibrate" writes what "viaduct-sim machine" reads, and that says the same each time.
set -eu
sim=$VIADUCT_BUILD_DIR/viaduct-sim
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

expect_usage() {
    status=0
    text=$("$sim" "$@" 2>&1) || status=$?
    [ "$status" = 2 ] || fail "$*: exit code $status, expected 2: $text"
    printf '%s\n' "$text" | grep -q "^viaduct-sim: $1: " || fail "$*: says only '$text'"
}

expect_usage calibrate
expect_usage calibrate --bad
expect_usage calibrate /no/such/folder/file
expect_usage machine
expect_usage machine /no/such/file
expect_usage machine /dev/null
expect_usage machine /dev/null --bad

"$sim" calibrate "$folder/here.ini" || fail "calibrate"
"$sim" machine "$folder/here.ini" >"$folder/first" || fail "machine: $(cat "$folder/here.ini")"
"$sim" machine "$folder/here.ini" >"$folder/second"
cmp "$folder/first" "$folder/second" || fail "the same scenario gave other figures"
[ "$(grep -c ' us .* MB/s$' "$folder/first")" = 8 ] || fail "not eight cases: $(cat "$folder/first")"
"$sim" machine "$folder/here.ini" --json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)) == 8' ||
    fail "not JSON"
