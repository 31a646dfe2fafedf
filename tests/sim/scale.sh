# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# viaduct-sim scale: its JSON says what its table does; fabrics of some hosts; wrong usage says what is wrong.
set -eu
sim=$VIADUCT_BUILD_DIR/viaduct-sim

fail() {
    echo "FAILED: $*"
    exit 1
}

json=$("$sim" scale --hosts 3,5,16 --json - 2>/dev/null) || fail "a small fabric"
printf '%s\n' "$json" | python3 -c '
import json, sys
rows = json.load(sys.stdin)["fabrics"]
assert [(row["shape"], row["hosts"]) for row in rows] == [
    (shape, hosts) for shape in ("ring", "chain", "torus", "star") for hosts in (3, 5, 16)], rows
links = {"ring": lambda n: n, "chain": lambda n: n - 1, "star": lambda n: n - 1}
hops = {"ring": lambda n: n // 2, "chain": lambda n: n - 1, "star": lambda n: 2}
for row in rows:
    assert row["failure"] is None, row
    assert row["bring_up"]["routes_changed"] >= row["hosts"] * (row["hosts"] - 1), row
    assert 0 < row["touched_node_bytes"] <= row["node_bytes"] + 4096, row
    if row["shape"] in links:
        assert row["links"] == links[row["shape"]](row["hosts"]), row
        assert row["hops"] == hops[row["shape"]](row["hosts"]), row
' || fail "not what it is: $json"
for fabric in "ring 128" "chain 300" "torus 144" "star 128"; do
    # shellcheck disable=SC2086
    "$sim" scale-json $fabric >/dev/null || fail "$fabric hosts"
done
for args in "--hosts 2" "--hosts 1025" "--hosts 16," "--hosts x" "--shape spiral" "more" "--bad"; do
    # shellcheck disable=SC2086
    if text=$("$sim" scale $args 2>&1); then
        fail "scale $args: taken"
    elif [ $? -ne 2 ] || [ -z "$text" ]; then
        fail "scale $args: not exit code 2, or no word: $text"
    fi
done
# A bug that is planted in the routes shows: a way that is kept although there is a shorter one.
json=$("$1" scale-json torus 64 core-route-loop) && fail "longer ways are taken for the shortest"
[ $? -eq 1 ] || fail "route-loop: $json"
printf '%s\n' "$json" | grep -q '"failure":"[^"]' || fail "route-loop: $json"
for args in "" "ring" "ring 2" "ring 1025" "spiral 16" "ring 16 weeds" "ring 16 lost-put" "ring 16 core-route-loop more"; do
    # shellcheck disable=SC2086
    if text=$("$1" scale-json $args 2>&1); then
        fail "scale-json $args: taken"
    elif [ $? -ne 2 ] || [ -z "$text" ]; then
        fail "scale-json $args: not exit code 2, or no word: $text"
    fi
done
"$sim" scale --help | grep -q '^Usage: viaduct-sim scale ' || fail "no help"
