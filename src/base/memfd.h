/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Memory that another process passed as a descriptor. */
#ifndef VIA_BASE_MEMFD_H
#define VIA_BASE_MEMFD_H

#include <linux/magic.h>
#include <stdbool.h>
#include <sys/vfs.h>

/*
 * True if the memory consists of huge pages, or if that is unknown. The kernel takes each huge page
 * from a pool at the first access, and again after the owner has punched a hole, which only
 * F_SEAL_WRITE prevents. If the pool is empty by then, the access raises SIGBUS (mm/hugetlb.c,
 * hugetlb_no_page()).
 */
static inline bool via_memfd_is_huge(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) != 0 || fs.f_type == HUGETLBFS_MAGIC;
}

#endif
