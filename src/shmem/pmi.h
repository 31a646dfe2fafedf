/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_PMI_H
#define VIA_SHMEM_PMI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/types.h"

/*
 * Other launchers: a process that mpiexec, mpirun, prterun or srun has started gets its rank from
 * them and exchanges a few words with the other processes. Two protocols: PMI-1, a dialogue of
 * lines over an inherited descriptor (Hydra), implemented here; and PMIx, whose library is loaded
 * if the environment has PMIX_NAMESPACE and PMIX_RANK.
 *
 * One thread, in shmem_init and at the end. All calls block until the launcher has answered.
 */
#define VIA_PMI_VALUE_BYTES 1024u
#define VIA_PMI_KVS_BYTES 256u
#define VIA_PMI_LINE_BYTES 4096u

struct via_pmi_ops;

struct via_pmi {
    const struct via_pmi_ops *ops; /* NULL: no launcher */
    uint32_t rank;
    uint32_t size;
    /* PMI-1 */
    int fd;
    char kvs[VIA_PMI_KVS_BYTES];
    uint32_t value_bytes_max;
    uint32_t used; /* bytes of `line` that were read */
    char line[VIA_PMI_LINE_BYTES];
};

struct via_pmi_ops {
    const char *name;
    /* Opens the session with the launcher; sets rank and size. */
    int (*open)(struct via_pmi *pmi, struct via_error *err);
    /* Publishes a word of this process, without white space; the others can get it after a
     * fence. */
    int (*put)(struct via_pmi *pmi, const char *key, const char *value, struct via_error *err);
    /* Returns when every process of the job has called it. */
    int (*fence)(struct via_pmi *pmi, struct via_error *err);
    /* Gets the word of `rank`, at most VIA_PMI_VALUE_BYTES with its NUL. */
    int (*get)(struct via_pmi *pmi, uint32_t rank, const char *key, char *ret_value,
               struct via_error *err);
    /* Ends the session: from now on the launcher accepts the exit of this process. */
    void (*finalize)(struct via_pmi *pmi);
    /* Requests the launcher to end the job; may return. */
    void (*abort)(struct via_pmi *pmi, int code, const char *why);
};

extern const struct via_pmi_ops via_pmi1_ops;
extern const struct via_pmi_ops via_pmix_ops;

/*
 * Finds the launcher that the environment names; ret_pmi->ops stays NULL without one. -ENOTSUP with
 * a text if a launcher has started several processes and speaks neither protocol: they must not
 * become separate jobs of one PE each.
 */
int via_pmi_find(struct via_pmi *ret_pmi, struct via_error *err) VIA_MUST_CHECK;

/* --- pmi_join.c: a job without oshrun -------------------------------------------------------- */

struct via_job;
struct via_node;

struct via_pmi_job {
    struct via_job *job;
    struct via_node *node;
    int life_fd; /* read end of a pipe: after a byte the PE checks whether the job ends */
    int call_fd; /* write end of that pipe */
    uint32_t number;
};

/* Collective. The first PE of each machine makes the machine's memory, and the other PEs get it
 * from that PE. Call it once. */
int via_pmi_join(struct via_pmi *pmi, struct via_pmi_job *ret_job,
                 struct via_error *err) VIA_MUST_CHECK;
/* Copies the published data of the PEs to the job blocks of all machines; the gate that follows
 * orders it. Collective over all PEs, with the same number at each, a new one for each call. */
int via_pmi_exchange(uint32_t number, struct via_error *err) VIA_MUST_CHECK;
/* Poll interval for the launcher's death; -1: no polling needed, there is no launcher. */
int via_pmi_watch_ms(void);
bool via_pmi_launcher_is_gone(void);
/* Called after the last shmem_finalize; further calls have no effect. */
void via_pmi_leave(void);

#endif
