/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Planted bugs: a checker must notice each of them. A simulator that does not catch them would also
 * miss real bugs.
 */
#ifndef SIM_PLANT_H
#define SIM_PLANT_H

enum sim_plant {
    SIM_PLANT_NONE = 0,

    /* Bugs of the simulated hardware, or of the host around the core. */
    SIM_PLANT_WORD_FIRST,     /* a record's line overtakes its body */
    SIM_PLANT_TORN_WORD,      /* a record cut at link loss shows its last word */
    SIM_PLANT_LOST_PUT,       /* a posted write vanishes on a link that is up */
    SIM_PLANT_FLIPPED_BIT,    /* a body arrives with one bit changed */
    SIM_PLANT_LOST_BELL,      /* doorbells vanish although they must not in this run */
    SIM_PLANT_LOST_LINE,      /* arriving lines wake no thread although the port promises it */
    SIM_PLANT_HOLLOW_FENCE,   /* a fence is complete without waiting for anything */
    SIM_PLANT_LOST_DELIVERY,  /* a message is accepted and dropped */
    SIM_PLANT_TWICE_DELIVERY, /* a message is delivered twice */
    SIM_PLANT_LOST_COMPLETE,  /* a completion is forgotten */
    SIM_PLANT_SEGMENT_WRITE,  /* a byte of a segment changes by itself */
    SIM_PLANT_NO_FENCE,       /* a write-combining port does not fence between its stores */
    SIM_PLANT_RELAXED_FLAG,   /* lines and words are posted with relaxed ordering, too */
    SIM_PLANT_SHORT_DMA,      /* a DMA is reported done, but the rest of its bytes never arrive */

    /* The core is wrong: only in the library that is built with -DVIA_MUTANTS, and there by
     * via_mutant (base/mutant.h). */
    SIM_PLANT_CORE_FIRST,
};

struct sim_plant_name {
    const char *name;
    const char *text;
};

/* -1 if there is no plant of this name, or this program has no mutants of the core. */
int sim_plant_parse(const char *name);
/* Its name and effect; NULL past the last. Number 0 is none. */
const struct sim_plant_name *sim_plant_at(int plant);

/* Plants the bug in the core or removes it; no effect for plants outside the core. */
void sim_plant_apply(int plant);

#endif
