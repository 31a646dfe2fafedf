#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Every bug that can be planted is caught within a budget of seeds, and how many seeds each took:
#   [FIRST=<first seed>] catch.sh <simulator with mutants> <seeds> [<seconds for each> [<plant>...]]
# Some need a coincidence that most seeds do not have. They get the parts and the mood that make it likely: a plant should
# be caught within some hundreds of seeds, wherever they begin, so that it does not depend on how configurations are drawn.
set -u
sim=$1
seeds=$2
seconds=${3-}
shift $(($# < 3 ? $# : 3))
first=${FIRST-1}
missed=0
for plant in ${*:-$("$sim" plants | cut -d' ' -f1)}; do
    one_fabric=pes=0,streams=0
    streams=pes=0,ops=1,hosts=2,barrier-groups=0
    # The parts of a seed in which it can not show only take time.
    case $plant in
    core-no-turn-bubble) parts=$one_fabric,mood=4 ;;
    core-unborn) parts=$one_fabric,crashes=4,rogues=0 ;;
    core-last-number) parts=$one_fabric,rogues=2,lies=700 ;;
    core-held)
        parts=$one_fabric,hosts=2,barrier-groups=0,crashes=0,rogues=0,cuts=0,freezes=0
        parts+=,messages=100,ops=300,flows=2,cancels=64,busy=300,bell-drop=500,stall=1000
        ;;
    core-endless | core-leave-unasked) parts=$one_fabric,give-up=700000000,wait=60000000,barrier-groups=2 ;;
    core-dma-let-go)
        parts=$one_fabric,hosts=2,crashes=0,rogues=0,cuts=40,cut-ns=300000
        parts+=,dma=100,dma-from=1,dma-depth=8,dma-hangs=200,dma-stubborn=500
        ;;
    core-dma-flap)
        parts=$one_fabric,hosts=2,crashes=0,rogues=0,cuts=40,cut-ns=10000
        parts+=,dma=100,dma-from=1,dma-depth=8,dma-ns=30000
        ;;
    core-client-no-want)
        parts=ops=1,streams=0,barrier-groups=0,hosts=2,cuts=0,freezes=0,crashes=0
        parts+=,pe-nodes=2,pe-crash=0,direct=0,pe-replies=16,pe-slots=64,pes=8,pe-elements=4096,pe-stall=100,pe-steps=200
        ;;
    core-client-overtake)
        parts=ops=1,streams=0,barrier-groups=0,hosts=4,graph=ring,direct=100
        parts+=,crashes=0,pe-crash=0,cuts=30,cut-ns=1000000
        ;;
    core-shmem-* | core-client-*) parts=ops=1,streams=0,barrier-groups=0 ;;
    hidden-begin) parts=$streams,streams=16,stream-bursts=1000 ;;
    core-stall-* | untold-end) parts=$streams,stream-bursts=1000 ;;
    death-first | unseen-death | one-hears | forked-end) parts=$streams,stream-kills=500,stream-forks=500 ;;
    *) parts=pes=0 ;;
    esac
    "$sim" catch "$plant" --first "$first" --count "$seeds" --jobs 2 --set "$parts" ${seconds:+--seconds "$seconds"} ||
        missed=$((missed + 1))
done
if [ "$missed" -ne 0 ]; then
    echo "$missed planted bugs were not caught"
    exit 1
fi
