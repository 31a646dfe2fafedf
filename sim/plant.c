/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plant.h"

#include <stddef.h>
#include <string.h>

#include "base/mutant.h"
#include "base/types.h"

#ifdef VIA_MUTANTS
int via_mutant;
#endif

static const struct sim_plant_name names[] = {
    [SIM_PLANT_NONE] = {"none", "nothing is wrong"},
    [SIM_PLANT_WORD_FIRST] = {"word-first", "a record's line overtakes its body"},
    [SIM_PLANT_TORN_WORD] = {"torn-word", "a record cut at link loss shows its last word"},
    [SIM_PLANT_LOST_PUT] = {"lost-put", "a posted write vanishes on a link that is up"},
    [SIM_PLANT_FLIPPED_BIT] = {"flipped-bit", "a body arrives with one bit changed"},
    [SIM_PLANT_LOST_BELL] = {"lost-bell", "doorbells vanish in runs in which they must not"},
    [SIM_PLANT_LOST_LINE] = {"lost-line", "lines that arrive wake no thread of a network's port"},
    [SIM_PLANT_HOLLOW_FENCE] = {"hollow-fence", "a fence does not wait for anything"},
    [SIM_PLANT_LOST_DELIVERY] = {"lost-delivery", "a message is accepted and dropped"},
    [SIM_PLANT_TWICE_DELIVERY] = {"twice-delivery", "a message is delivered twice"},
    [SIM_PLANT_LOST_COMPLETE] = {"lost-complete", "a completion is forgotten"},
    [SIM_PLANT_SEGMENT_WRITE] = {"segment-write", "a byte of a segment changes by itself"},
    [SIM_PLANT_NO_FENCE] = {"no-fence", "a write-combining port does not fence its stores"},
    [SIM_PLANT_SHORT_DMA] = {"short-dma", "a DMA is reported done, and half of it never comes"},
    [SIM_PLANT_RELAXED_FLAG] = {"relaxed-flag", "records and words have relaxed ordering, too"},
#ifdef VIA_MUTANTS
#define SIM_MUTANT_NAME(symbol, name, text) \
    [SIM_PLANT_CORE_FIRST + VIA_MUTANT_##symbol] = {"core-" name, text},
    VIA_MUTANTS_EACH(SIM_MUTANT_NAME)
#endif
};

int sim_plant_parse(const char *name)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(names); i++) {
        if (names[i].name != NULL && strcmp(names[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const struct sim_plant_name *sim_plant_at(int plant)
{
    if (plant < 0 || (unsigned)plant >= VIA_ARRAY_COUNT(names)) {
        return NULL;
    }
    return &names[plant];
}

void sim_plant_apply(int plant)
{
#ifdef VIA_MUTANTS
    via_mutant = plant >= SIM_PLANT_CORE_FIRST ? plant - SIM_PLANT_CORE_FIRST : 0;
#else
    (void)plant;
#endif
}
