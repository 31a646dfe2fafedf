# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# "viaduct-sim paper": a figure outside its bound, a wrong scenario and wrong usage each have their exit code and text.
set -eu
sim=$VIADUCT_BUILD_DIR/viaduct-sim
model=$VIADUCT_BUILD_DIR/tests/viaduct-sim-papers # without sanitizers, whose runtime alone takes most of the time
scenarios=$VIADUCT_SOURCE_DIR/sim/scenarios
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

# expect CODE WORDS ARGUMENTS...: runs it; output and errors together must hold the words.
expect() {
    code=$1 words=$2
    shift 2
    status=0
    text=$("$sim" paper --model "$model" "$@" 2>&1) || status=$?
    [ "$status" = "$code" ] || fail "paper $*: exit code $status, expected $code: $text"
    printf '%s\n' "$text" | grep -qF -- "$words" || fail "paper $*: no '$words' in: $text"
}

expect 2 "which one?"
expect 2 "no such paper: 'Z'" Z
expect 2 "one paper at a time, or all: 'E'" C E
expect 2 "unknown option '--bad'" E --bad
expect 2 "needs a value: '--csv'" E --csv
expect 2 "of one paper only, not of all: '--scenario'" all --scenario "$scenarios/paper-e.ini"
expect 2 "/no/such/file: open: No such file or directory" E --scenario /no/such/file
expect 2 "/dev/null/x: mkdir: Not a directory" E --csv /dev/null/x
expect 0 "Usage: viaduct-sim paper" --help
expect 0 "  does not fit: bandwidth: 1 of 16; zero copy: 1626 MB/s, not 1292..1428" D
expect 0 "held out 6, 1 outside, 2 no evidence (the null model passes, too)" E --bounded
expect 0 "54..66           held out  no evidence" E --bounded

sed 's/^drain = .*/drain = 96 [fitted] x/' "$scenarios/paper-e.ini" >"$folder/unit.ini"
line=$(grep -n '^drain' "$folder/unit.ini" | cut -d: -f1)
expect 2 "$folder/unit.ini:$line: [device kintex] drain: the unit is missing" E --scenario "$folder/unit.ini"
sed 's/^length = 2 m/length = 12 m/' "$scenarios/paper-a.ini" >"$folder/long.ini"
line=$(grep -n '^length = 12 m' "$folder/long.ini" | head -n 1 | cut -d: -f1)
expect 2 "$folder/long.ini:$line: [link cable-a] length: 12 m, but copper reaches no farther than 10 m" \
    A --scenario "$folder/long.ini"
sed 's/\[host xeon: server\]/[host other: server]/; s/^a = xeon/a = other/' "$scenarios/paper-e.ini" >"$folder/name.ini"
expect 2 "$folder/name.ini: there is no host or device to measure from 'xeon'" E --scenario "$folder/name.ini"
sed '/^\[link cable\]/,/^b/ s/^b = pex8733/b = neighbour/' "$scenarios/paper-b.ini" >"$folder/ring.ini"
line=$(grep -n '^b = neighbour' "$folder/ring.ini" | head -n 1 | cut -d: -f1)
expect 2 "$folder/ring.ini:$line: [link cable] b: the ring does not close: expected pex8733, not neighbour" \
    B --scenario "$folder/ring.ini"

mkdir "$folder/bare"
cp "$scenarios/paper-e.ini" "$scenarios/parts.ini" "$folder/bare"
expect 0 "bare has no evidence.json: no intervals" E --bounded --scenarios "$folder/bare"
echo '{' >"$folder/bare/evidence.json"
expect 2 "bare/evidence.json: Expecting" E --bounded --scenarios "$folder/bare"

# Both linked with something, but not with each other.
{ sed 's/^b = kintex/b = other/' "$scenarios/paper-e.ini" && sed -n '/^\[device kintex\]/,/^$/p' "$scenarios/paper-e.ini" |
    sed 's/kintex/other/' && sed -n '/^\[device kintex\]/,/^$/p' "$scenarios/paper-e.ini" | sed 's/kintex/third/' &&
    sed -n '/^\[link slot\]/,/^$/p' "$scenarios/paper-e.ini" | sed 's/slot\]/far]/; s/^a = xeon/a = third/'; } >"$folder/way.ini"
line=$(grep -n '^b = kintex' "$folder/way.ini" | cut -d: -f1)
expect 2 "$folder/way.ini:$line: [link far] b: no links lead from 'xeon' to 'kintex'" E --scenario "$folder/way.ini"

# An endpoint twice as slow fits nothing any more, and is shown so; a claim that is broken fails.
sed 's/^drain = .*/drain = 400 ns [fitted] x/' "$scenarios/paper-e.ini" >"$folder/slow.ini"
expect 1 "does not fit" E --scenario "$folder/slow.ini"
expect 1 "CLAIM BROKEN" E --scenario "$folder/slow.ini"
expect 1 "CLAIM BROKEN" E --set "device kintex drain=400"
expect 0 " claims, 0 broken" E
expect 2 "--set device kintex drain=x: not a number that is allowed" E --set "device kintex drain=x"
expect 2 "--set device kintex drains=1" E --set "device kintex drains=1"
expect 2 "of one paper only, not of all: '--set'" all --set "device kintex drain=1"

expect 0 " claims, 0 broken" E --bounded
printf '%s\n' "$text" | grep -q predicted && fail "figures without a bound: $text"
expect 0 " claims, 0 broken" E --parameters --csv "$folder/csv"
head -n 1 "$folder/csv/paper-e.csv" | grep -q '^system,series,label,' || fail "no header in the CSV"
python3 - "$folder/csv/paper-e.csv" <<'PY' || fail "a row of the CSV has other fields"
import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline="")))
assert len(rows) > 20 and {len(row) for row in rows} == {15}
PY
"$sim" paper E >"$folder/first"
"$sim" paper E >"$folder/second"
cmp "$folder/first" "$folder/second" || fail "the same scenario gave other figures"

if /usr/bin/python3 -c 'import matplotlib' 2>/dev/null; then
    expect 0 "paper-e-rate-by-size.png" E --plot "$folder/plots"
    [ -s "$folder/plots/paper-e-rate-by-size.png" ] || fail "no picture"
fi
