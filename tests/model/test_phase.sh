#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Both ends of a connection, with the table of src/sockets/stream/phase.c: no record is lost, none comes twice, no end waits forever.
# Each of the broken variants shows.
set -euo pipefail

models=$(cd "$(dirname "$0")" && pwd)
sources=$models/../../src
for program in spin gcc; do
    command -v $program >/dev/null || { echo "skipped: $program is not installed" && exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >table.c <<'END'
#include <stdio.h>
#include "sim/sockets/phase_names.h"
int main(void)
{
    for (enum via_phase p = 0; p < VIA_PHASES_COUNT; p++) {
        printf("#define %s %d\n", via_phase_name(p), p);
    }
    for (enum via_event e = 0; e < VIA_EVENTS_COUNT; e++) {
        printf("#define %s %d\n", via_event_name(e), e);
    }
#define SET(name, set) printf("#define %s %u\n", name, set)
    SET("PIPED", VIA_PHASES_PIPED);
    SET("MAY_SWITCH", VIA_PHASES_MAY_SWITCH);
    SET("LEAVING_SET", VIA_PHASES_LEAVING);
    SET("PLAIN_SET", VIA_PHASES_PLAIN);
    SET("REPLAY_SET", VIA_PHASES_REPLAY);
    SET("FOLLOW_SET", VIA_PHASES_FOLLOW);
    SET("MAY_FOLLOW", VIA_PHASES_MAY_FOLLOW);
    printf("inline apply(who, event) {\n    d_step {\n        if\n");
    for (enum via_phase p = 0; p < VIA_PHASES_COUNT; p++) {
        for (enum via_event e = 0; e < VIA_EVENTS_COUNT; e++) {
            if (via_phase_next(p, e) >= 0) {
                printf("        :: phase[who] == %d && event == %d -> phase[who] = %d\n", p, e,
                       via_phase_next(p, e));
            }
        }
    }
    printf("        :: else -> assert(false)\n        fi\n    }\n}\n");
    return 0;
}
END
gcc -std=gnu17 -I "$sources" -I "$sources/.." -o table table.c "$sources/sockets/stream/phase.c"
./table >table.pml
cp "$models/phase.pml" .

# usage: errors_of OPTION...: how many errors spin finds in all orders of events
errors_of() {
    spin "$@" -a phase.pml >/dev/null
    gcc -O0 -w -DSAFETY -DCOLLAPSE -o pan pan.c
    ./pan -m200000 -w18 >out
    if grep -q 'max search depth too small\|out of memory' out; then
        cat out >&2
        exit 1
    fi
    sed -n 's/.*errors: \([0-9]*\)$/\1/p' out
}

failed=0
errors=$(errors_of)
echo "$(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' out) states, $errors errors"
if [[ $errors != 0 ]]; then
    spin -t -p -g phase.pml | tail -80
    failed=1
fi
for variant in WRITES_ON NO_FOLLOW_TOO NO_TAKE_BACK NO_STAYS NO_LAST_LOOK; do
    if [[ $(errors_of -D$variant) == 0 ]]; then
        echo "$variant: nothing is wrong, but something should be"
        failed=1
    else
        echo "$variant: caught"
    fi
done
exit $failed
