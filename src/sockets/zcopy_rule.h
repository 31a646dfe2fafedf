/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_ZCOPY_RULE_H
#define VIA_SOCKETS_ZCOPY_RULE_H

#include <stddef.h>
#include <stdint.h>

/*
 * From which size on zero-copy is not slower than copying: what follows from measurements, and the
 * line of text in which the result is kept. Pure.
 */
#define VIA_ZCOPY_LEAST (64u * 1024)
#define VIA_ZCOPY_SIZES 5u /* doubling, to 1 MiB */

/* What a message of one size takes, within one thread. */
struct via_zcopy_times {
    uint64_t fetch_ns;  /* from another process's memory */
    uint64_t copies_ns; /* into the pipe and out of it */
};

/* SIZE_MAX: never. */
size_t via_zcopy_decide(const struct via_zcopy_times times[VIA_ZCOPY_SIZES], unsigned cpus);

/* `machine` is what the result depends on; without spaces. The length, or -1 when it does not fit.
 */
int via_zcopy_format(char *ret_line, size_t max, const char *machine, size_t least);
/* 0 and *ret_least; -1 when it is of another machine, or not such a line. */
int via_zcopy_parse(const char *line, const char *machine, size_t *ret_least);

#endif
