# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Every bug that can be planted is caught within a budget of seeds, and how many seeds each took:
#   catch.sh <simulator with mutants> <seeds> [<seeds for rare ones> [<seconds for each>]]
# Rare ones need a coincidence that a budget for every day does not wait for; without the third argument they are
# left out. One that is not caught before its time is up is told, and the next one's turn comes; with a rare one that is
# no failure.
set -u
sim=$1
seeds=$2
rare_seeds=${3-}
seconds=${4-}
rare=" core-held core-unborn core-client-no-want core-no-turn-bubble "
missed=0
late=""
for plant in $("$sim" plants | cut -d' ' -f1); do
    count=$seeds
    is_rare=
    if [ "${rare#* "$plant" }" != "$rare" ]; then
        [ -n "$rare_seeds" ] || continue
        count=$rare_seeds
        is_rare=yes
    fi
    # The parts of a seed in which it can not show only take time.
    case $plant in
    core-shmem-* | core-client-*) parts=ops=1,streams=0,barrier-groups=0 ;;
    core-stall-* | hidden-begin | untold-end) parts=pes=0,ops=1,hosts=2,barrier-groups=0,stream-bursts=1000 ;;
    *) parts=pes=0 ;;
    esac
    "$sim" catch "$plant" --count "$count" --jobs 2 --set "$parts" ${seconds:+--seconds "$seconds"} && continue
    if [ -n "$is_rare" ] && [ -n "$seconds" ]; then
        late="$late $plant"
    else
        missed=$((missed + 1))
    fi
done
[ -z "$late" ] || echo "rare, and not caught this time:$late"
if [ "$missed" -ne 0 ]; then
    echo "$missed planted bugs were not caught"
    exit 1
fi
