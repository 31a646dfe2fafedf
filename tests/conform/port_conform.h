/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The conformance suite of core/port.h: every sentence of its contract, for any port. A kind of
 * port makes an end of a link; a place runs the two ends. The suite talks to the ends through
 * agents (conform_agent.h), so that it is the same for two threads, two processes and a simulated
 * world in one thread.
 */
#ifndef VIA_TESTS_CONFORM_PORT_CONFORM_H
#define VIA_TESTS_CONFORM_PORT_CONFORM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/port.h"
#include "port/emu/emu.h"

#define CONFORM_INBOX_BYTES (256u << 10)
#define CONFORM_BELL_LINES 4u
#define CONFORM_BELL_CONTROL 4u /* the control thread's, where a driver wakes it */
#define CONFORM_WORKERS_MAX 2u  /* of one end */

struct conform_kind;

/* One end of a link, in the thread or process that uses it. */
struct conform_end {
    const struct conform_kind *kind;
    struct via_port *port;
    unsigned side;
    struct via_bell *bell; /* the bell that its doorbells wake; NULL: a thread can not sleep */
    void *state;           /* the kind's */
};

struct conform_kind {
    const char *name;
    bool cut_is_own;          /* a cut can be mended only at the end that made it */
    bool only_dma;            /* other tests run with a kind without an engine */
    bool scratchpads_survive; /* their values outlive the link, and the hosts */
    bool doorbells_travel;    /* with scratchpads, as writes do: a fence proves their arrival */
    bool down_reads_anything; /* loads from a window whose link is down do not return all-ones */
    /* Sets up in this directory what both ends need, and returns how to remove it. NULL: nothing is
     * needed. */
    int (*begin)(const char *directory);
    void (*end)(const char *directory);
    /* Makes the end end->side; both ends of a link get the same directory. 0 or negative errno. */
    int (*open)(struct conform_end *end, const char *directory);
    /* Registers the sources of DMA, once. NULL: the engine reads from any memory. */
    int (*memory)(struct conform_end *end, void *memory, size_t bytes);
    /* Descriptor to poll while idle; -1: none. */
    int (*fd)(struct conform_end *end);
    void (*service)(struct conform_end *end, uint64_t now_ns, uint64_t *ret_deadline_ns);
    /* Place CONFORM_INLINE only: the next calls are those of thread `thread` of this end, which is
     * 0 for the suite and 1 + n for worker n. */
    void (*enter)(struct conform_end *end, unsigned thread);
    void (*cut)(struct conform_end *end, bool cut);
    uint64_t (*puts_out_of_bounds)(struct conform_end *end);
    void (*close)(struct conform_end *end);
    /* Place CONFORM_INLINE only: lets time pass for both ends. */
    void (*pass_time)(struct conform_end *ends, uint64_t ns);
};

enum conform_place {
    CONFORM_THREADS,   /* each end in a thread of this process */
    CONFORM_PROCESSES, /* each end in a process of its own, killed with SIGKILL */
    CONFORM_INLINE,    /* both in the calling thread */
};

extern const struct conform_kind conform_emu_direct;
extern const struct conform_kind conform_emu_indirect;
extern const struct conform_kind conform_emu_dma;
extern const struct conform_kind conform_emu_pex; /* as strict as a class of real links */
extern const struct conform_kind conform_emu_pex_dma;
extern const struct conform_kind conform_emu_ivshmem;
extern const struct conform_kind conform_emu_network;
extern const struct conform_kind conform_fault_direct;
extern const struct conform_kind conform_fault_indirect;
extern const struct conform_kind conform_fault_dma;
extern const struct conform_kind conform_pex; /* on the register model */
extern const struct conform_kind conform_pex_alut;
extern const struct conform_kind conform_pex_b2b; /* two chips */
extern const struct conform_kind conform_pex_b2b_dma;
extern const struct conform_kind conform_pex_b2b_alut;
extern const struct conform_kind conform_pex_nt1; /* the second NT port of a chip */
extern const struct conform_kind conform_pex_polls;
extern const struct conform_kind conform_pex_stores;
extern const struct conform_kind conform_pex_dma;
extern const struct conform_kind conform_pex_user_dma;
extern const struct conform_kind conform_pex_user; /* on a model in a process of its own */
extern const struct conform_kind conform_ofi;      /* over libfabric's tcp */
extern const struct conform_kind conform_ofi_dma;
extern const struct conform_kind conform_ofi_unordered;
extern const struct conform_kind conform_ofi_encrypted;
extern const struct conform_kind conform_ofi_unordered_dma;
extern const struct conform_kind conform_sim_posted;
extern const struct conform_kind conform_sim_combining;
extern const struct conform_kind conform_sim_direct;
extern const struct conform_kind conform_sim_dma; /* each with an engine */
extern const struct conform_kind conform_sim_combining_dma;
extern const struct conform_kind conform_sim_direct_dma;

/* Time that a test waits for an event before it fails; 20 s. */
extern unsigned conform_patience_ms;

/* Runs the suite. Returns the number of failed tests. */
int conform_run(const struct conform_kind *kind, enum conform_place place);

#endif
