/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Planted bugs: each is a way to be wrong that a checker must notice. A simulator that does not
 * catch them proves nothing by catching nothing else.
 */
#ifndef SIM_PLANT_H
#define SIM_PLANT_H

enum sim_plant {
    SIM_PLANT_NONE = 0,

    /* The simulated hardware, or the host around the core, breaks its promise. */
    SIM_PLANT_WORD_FIRST,     /* a record's line overtakes its body */
    SIM_PLANT_TORN_WORD,      /* a record cut at link loss shows its last word */
    SIM_PLANT_LOST_PUT,       /* a posted write vanishes on a link that is up */
    SIM_PLANT_FLIPPED_BIT,    /* a body arrives with one bit changed */
    SIM_PLANT_LOST_BELL,      /* doorbells vanish although they must not in this run */
    SIM_PLANT_LOST_LINE,      /* lines that arrive wake nobody where ports promise that */
    SIM_PLANT_HOLLOW_FENCE,   /* a fence is complete without waiting for anything */
    SIM_PLANT_LOST_DELIVERY,  /* a message is taken and forgotten */
    SIM_PLANT_TWICE_DELIVERY, /* a message is handed over twice */
    SIM_PLANT_LOST_COMPLETE,  /* a completion is forgotten */
    SIM_PLANT_SEGMENT_WRITE,  /* a byte of a segment changes by itself */
    SIM_PLANT_NO_FENCE,       /* a write-combining port does not fence between its stores */
    SIM_PLANT_RELAXED_FLAG,   /* lines and words are posted with relaxed ordering, too */
    SIM_PLANT_SHORT_DMA,      /* a DMA is reported done, and the rest of it never comes */
    SIM_PLANT_EARLY_REUSE,    /* a writer takes its bytes back while they are fetched */
    SIM_PLANT_EARLY_KERNEL,   /* a stream that is demoted uses the kernel at once */
    SIM_PLANT_EARLY_END,      /* between hosts the kernel's FIN is taken for the end */
    SIM_PLANT_EARLY_LEAVER,   /* who goes back to the kernel does not wait for the answer */
    SIM_PLANT_NO_SKIP,        /* what is sent again begins with bytes that were read */
    SIM_PLANT_KEPT_AGAIN,     /* what comes again is not thrown away where it was read before */
    SIM_PLANT_EARLY_AGAIN,    /* it is sent before the reader has seen where the pipe began */
    SIM_PLANT_HIDDEN_BEGIN,   /* who waits for the kernel does not see that the pipe is used */
    SIM_PLANT_UNTOLD_END,     /* an end by the kernel, without room in the pipe, is not told */
    SIM_PLANT_DEATH_FIRST,    /* that its peer is dead counts before what is in the pipe */
    SIM_PLANT_UNSEEN_DEATH,   /* who waits for room does not look whether its peer lives */
    SIM_PLANT_ONE_HEARS,      /* of processes that share an end only the first hears its bell */
    SIM_PLANT_FORKED_END,     /* one of several that hold an end is killed, and the end ends */

    /* The core is wrong: only in the library that is built with -DVIA_MUTANTS, and there by
     * via_mutant (base/mutant.h). */
    SIM_PLANT_CORE_FIRST,
};

struct sim_plant_name {
    const char *name;
    const char *text;
};

/* -1 when there is no plant of this name, or this program has no mutants of the core. */
int sim_plant_parse(const char *name);
/* Its name and what it does; NULL past the last. Number 0 is none. */
const struct sim_plant_name *sim_plant_at(int plant);

/* Makes the core wrong or right again; nothing for plants outside the core. */
void sim_plant_apply(int plant);

#endif
