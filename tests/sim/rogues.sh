#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Runs the simulator with rogue hosts: each kind of lie must occur, and harm no honest host. Hosts drop frames in the name of
# a neighbour that arrive over another link: while the neighbour's own link stays up, they do not harm the neighbour either.
set -eu
sim=$1
out=$("$sim" run --first 400501 --count 40 --jobs 2 --set pes=0,streams=0,rogues=2,lies=500,crashes=1)
line=$(grep '^rogues wrote: ' <<<"$out")
echo "$line"
kinds=0
while read -r count name; do
    kinds=$((kinds + 1))
    [ "$name" != "names of others" ] || continue # below
    [ "$count" -gt 0 ] || { echo "in no run: $name"; exit 1; }
done < <(sed 's/^rogues wrote: //' <<<"$line" | tr ',' '\n')
[ "$kinds" -ge 16 ]

out=$("$sim" run --first 400701 --count 40 --jobs 2 --set pes=0,streams=0,rogues=2,names=500,cuts=0,freezes=0,crashes=0)
line=$(grep '^rogues wrote: ' <<<"$out")
echo "$line"
grep -Eq '[1-9][0-9]* names of others' <<<"$line"
