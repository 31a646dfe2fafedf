/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The source or destination of viaduct perf device. A target belongs to the thread that opened it.
 * Every call blocks until the bytes have moved, or fails within seconds.
 */
#ifndef VIA_CLI_PERF_TARGET_H
#define VIA_CLI_PERF_TARGET_H

#include "base/types.h"
#include "cli/perf_series.h"
#include "vfio/pci.h"

struct via_perf_target;

struct via_perf_target_ops {
    /* Makes one transfer between the buffer and the beginning of the target; bytes: at most `bytes`
     * of the target. 0 or a negative errno; err has the cause if the errno does not explain it. */
    int (*transfer)(struct via_perf_target *target, enum via_perf_direction direction, size_t bytes,
                    struct via_error *err);
    /* -EIO if the last transfer did not bring the correct bytes. NULL: the target can not be
     * checked. */
    int (*check)(struct via_perf_target *target, enum via_perf_direction direction, size_t bytes,
                 struct via_error *err);
    void (*close)(struct via_perf_target *target); /* frees it */
};

struct via_perf_target {
    const struct via_perf_target_ops *ops;
    char name[160];
    const char *way;   /* how the bytes move, such as "O_DIRECT"; contains no comma */
    uint64_t bytes;    /* accessible bytes */
    unsigned size_min; /* smallest transfer; every size is a multiple of it */
    unsigned
        directions;  /* one bit for each enum via_perf_direction that destroys no data of others */
    bool keeps_data; /* VIA_PERF_TO_DEVICE overwrites data of the owner, so it needs an option */
};

/* Memory for all transfers: bytes_max bytes, aligned to a page. */
struct via_perf_target_options {
    size_t bytes_max; /* of one transfer */
    unsigned bar;
    bool writes;              /* VIA_PERF_TO_DEVICE will be used */
    const char *cuda_library; /* NULL: libcuda.so.1 */
};

/* Each function opens a target; ops->close() closes it. Errors begin with the target. */
VIA_MUST_CHECK int via_perf_target_bar(const char *device,
                                       const struct via_perf_target_options *options,
                                       struct via_perf_target **ret_target, struct via_error *err);
VIA_MUST_CHECK int via_perf_target_file(const char *path,
                                        const struct via_perf_target_options *options,
                                        struct via_perf_target **ret_target, struct via_error *err);
/* The DMA function 87D0 of a PEX 87xx: from this host's memory to the switch and back. */
VIA_MUST_CHECK int via_perf_target_engine(const char *device,
                                          const struct via_perf_target_options *options,
                                          struct via_perf_target **ret_target,
                                          struct via_error *err);
/* A GPU, through the CUDA driver library of this machine, from and to pinned memory. gpu: its
 * number. */
VIA_MUST_CHECK int via_perf_target_gpu(const char *gpu,
                                       const struct via_perf_target_options *options,
                                       struct via_perf_target **ret_target, struct via_error *err);

/* The monotonic clock. */
uint64_t via_perf_target_now_ns(void);
/* A pattern that differs from round to round and from byte to byte. */
void via_perf_target_fill(void *buffer, size_t bytes, unsigned seed);

static inline bool via_perf_target_is_able(const struct via_perf_target *target,
                                           enum via_perf_direction direction, size_t bytes)
{
    return (target->directions >> direction & 1u) != 0 && bytes <= target->bytes &&
           bytes % target->size_min == 0;
}

#endif
