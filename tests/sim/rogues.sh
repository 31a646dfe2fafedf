#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# In runs of the simulator with rogue hosts, each kind of lie that these know happens, and harms nobody else.
set -eu
sim=$1
out=$("$sim" run --first 400501 --count 40 --jobs 2 --set pes=0,streams=0,rogues=2,lies=500,crashes=1)
line=$(grep '^rogues wrote: ' <<<"$out")
echo "$line"
kinds=0
while read -r count name; do
    kinds=$((kinds + 1))
    [ "$count" -gt 0 ] || { echo "in no run: $name"; exit 1; }
done < <(sed 's/^rogues wrote: //' <<<"$line" | tr ',' '\n')
[ "$kinds" -ge 16 ]
