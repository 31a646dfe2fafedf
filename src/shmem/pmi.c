/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Finds the launcher that has started this process. */
#include "shmem/pmi.h"

#include <errno.h>
#include <stdlib.h>

/* Variables by which launchers give the number of processes of the job, whatever their protocol. */
static const char *const sizes[][2] = {
    {"OMPI_COMM_WORLD_SIZE", "Open MPI's launcher"},
    {"SLURM_STEP_NUM_TASKS", "srun; try srun --mpi=pmix"},
    {"PMI_SIZE", "a PMI launcher without PMI_FD"},
};

int via_pmi_find(struct via_pmi *ret_pmi, struct via_error *err)
{
    ret_pmi->ops = NULL;
    ret_pmi->used = 0;
    ret_pmi->fd = -1;
    if (getenv("PMIX_NAMESPACE") && getenv("PMIX_RANK"))
        ret_pmi->ops = &via_pmix_ops;
    else if (getenv("PMI_FD") && getenv("PMI_RANK") && getenv("PMI_SIZE"))
        ret_pmi->ops = &via_pmi1_ops;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(sizes) && !ret_pmi->ops; i++) {
        const char *text = getenv(sizes[i][0]);
        if (text && strtol(text, NULL, 10) > 1)
            return via_error_set(err, -ENOTSUP,
                                 "%s=%s: one of several processes that were started by %s, which "
                                 "offers neither PMIx nor PMI-1",
                                 sizes[i][0], text, sizes[i][1]);
    }
    return 0;
}
