/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/emu/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memfd.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

static int memfd_open(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) { /* Linux before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    return fd < 0 ? -errno : fd;
}

int via_emu_memfd_new(const char *name, uint64_t bytes, int *ret_fd)
{
    int fd = memfd_open(name);
    if (fd < 0) {
        return fd;
    }
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

int via_emu_memfd_check(int fd, uint64_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS); /* fails if fd is not a memfd */
    struct stat info;

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
        (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0 || via_memfd_is_huge(fd)) {
        return -EPERM;
    }
    if (fstat(fd, &info) != 0) {
        return -errno;
    }
    return info.st_size < 0 || (uint64_t)info.st_size < bytes ? -EMSGSIZE : 0;
}

void *via_emu_range_new(size_t bytes)
{
    void *range = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return range == MAP_FAILED ? NULL : range;
}

void via_emu_range_free(void *range, size_t bytes)
{
    if (range != NULL) {
        munmap(range, bytes);
    }
}

/*
 * Linux replaces the old mapping by the new one while it holds the lock that page faults take
 * (mm/mmap.c, mmap_region), so no thread accesses an unmapped address. The system call is made
 * directly because ThreadSanitizer models mmap() as a write to the whole range.
 */
static int map_over(void *range, size_t bytes, int flags, int fd, uint64_t off)
{
    long at =
        syscall(SYS_mmap, range, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, (long)off);
    return at == -1 ? -errno : 0;
}

int via_emu_range_share(void *range, size_t bytes, int fd)
{
    return map_over(range, bytes, MAP_SHARED, fd, 0);
}

int via_emu_range_share_at(void *range, size_t bytes, int fd, uint64_t off)
{
    return map_over(range, bytes, MAP_SHARED, fd, off);
}

int via_emu_range_zero(void *range, size_t bytes)
{
    return map_over(range, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int via_emu_ones_new(int *ret_fd)
{
    int fd = memfd_open("viaduct-ones");
    if (fd < 0) {
        return fd;
    }
    unsigned char page[4096];
    memset(page, 0xff, sizeof(page));
    for (size_t off = 0; off < VIA_EMU_ONES_BYTES; off += sizeof(page)) {
        ssize_t done = pwrite(fd, page, sizeof(page), (off_t)off);
        if (done != (ssize_t)sizeof(page)) {
            int rc = done < 0 ? -errno : -ENOSPC;
            close(fd);
            return rc;
        }
    }
    *ret_fd = fd;
    return 0;
}

int via_emu_range_fill_ones(void *range, size_t bytes, int ones_fd)
{
    for (size_t off = 0; off < bytes; off += VIA_EMU_ONES_BYTES) {
        size_t chunk = via_min(bytes - off, VIA_EMU_ONES_BYTES);
        int rc =
            map_over((unsigned char *)range + off, chunk, MAP_PRIVATE | MAP_NORESERVE, ones_fd, 0);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
