/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memfd.h"

static int report_failure(struct via_error *err, const char *what)
{
    int code = errno == EINTR ? EAGAIN : errno;
    return via_error_set(err, -code, "%s: %s", what, strerror(code));
}

static int allocate(int fd, size_t bytes, struct via_error *err)
{
    if (ftruncate(fd, (off_t)bytes) != 0) {
        return report_failure(err, "ftruncate");
    }
    int rc;
    do {
        rc = fallocate(fd, 0, 0, (off_t)bytes);
    } while (rc != 0 && errno == EINTR);
    return rc != 0 ? report_failure(err, "fallocate") : 0;
}

static int map(struct via_host_memory *memory, struct via_error *err)
{
    void *base = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (base == MAP_FAILED) {
        return report_failure(err, "mmap");
    }
    memory->base = base;
    return 0;
}

static int fill(struct via_host_memory *memory, bool reader_only, struct via_error *err)
{
    int rc = allocate(memory->fd, memory->bytes, err);
    if (rc == 0) {
        rc = map(memory, err);
    }
    if (rc != 0) {
        return rc;
    }
    /* After mmap(): F_SEAL_FUTURE_WRITE does not affect existing mappings. */
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (reader_only ? F_SEAL_FUTURE_WRITE : 0);
    if (fcntl(memory->fd, F_ADD_SEALS, seals) != 0) {
        return report_failure(err, "seal");
    }
    return 0;
}

int via_host_memory_open(struct via_host_memory *memory, const char *name, size_t bytes,
                         bool reader_only, struct via_error *err)
{
    *memory = (struct via_host_memory){.fd = -1, .bytes = bytes};
    memory->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int rc = memory->fd < 0 ? report_failure(err, "memfd_create") : fill(memory, reader_only, err);
    if (rc != 0) {
        via_host_memory_close(memory);
        via_error_prefix(err, "%zu bytes of shared memory (%s): ", bytes, name);
    }
    return rc;
}

static int check_fd(int fd, size_t bytes, struct via_error *err)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0) {
        return via_error_set(err, -EINVAL, "is not a memfd");
    }
    if ((seals & F_SEAL_SHRINK) == 0) {
        return via_error_set(err, -EPERM, "is not sealed against shrinking (F_SEAL_SHRINK)");
    }
    if (via_memfd_is_huge(fd)) {
        return via_error_set(err, -EINVAL, "is of huge pages, which are not taken");
    }
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes) {
        return via_error_set(err, -EINVAL, "is smaller than the %zu bytes requested", bytes);
    }
    return 0;
}

int via_host_memory_adopt(struct via_host_memory *memory, int fd, size_t bytes,
                          struct via_error *err)
{
    int rc = check_fd(fd, bytes, err);
    if (rc != 0) {
        via_error_prefix(err, "segment memory: ");
        return rc;
    }
    *memory = (struct via_host_memory){.fd = fd, .bytes = bytes};
    rc = map(memory, err);
    if (rc != 0) {
        memory->fd = -1;
        via_error_prefix(err, "segment memory of %zu bytes: ", bytes);
    }
    return rc;
}

void via_host_memory_close_fd(struct via_host_memory *memory)
{
    if (memory->fd >= 0) {
        close(memory->fd);
        memory->fd = -1;
    }
}

void via_host_memory_close(struct via_host_memory *memory)
{
    via_host_memory_close_fd(memory);
    if (memory->base != NULL) {
        munmap(memory->base, memory->bytes);
        memory->base = NULL;
    }
}
