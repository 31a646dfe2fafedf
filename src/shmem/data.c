/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/data.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/hash.h"
#include "shmem/job.h"

#define PAGE UINT64_C(4096)

static struct via_data shared;

/* --- finding ---------------------------------------------------------------------------------- */

/* The first object is the executable itself. */
static int find(struct dl_phdr_info *info, size_t info_bytes, void *argument)
{
    struct via_data *data = argument;
    uintptr_t begin = 0, end = 0, relro_end = 0;
    uint64_t digest = VIA_HASH64_INIT;

    (void)info_bytes;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        digest = via_hash64(digest, header, sizeof(*header));
        if (header->p_type == PT_LOAD && (header->p_flags & PF_W)) {
            begin = info->dlpi_addr + header->p_vaddr;
            end = begin + header->p_memsz;
        } else if (header->p_type == PT_GNU_RELRO) {
            relro_end = info->dlpi_addr + header->p_vaddr + header->p_memsz;
        }
    }
    /* The linker protects whole pages up to the end of RELRO. */
    if (relro_end > begin && relro_end <= end)
        begin = via_align_down(relro_end, PAGE);
    begin = via_align_down(begin, PAGE);
    end = via_align_up(end, PAGE);
    data->base = (char *)begin;
    data->bytes = end - begin;
    data->digest = digest;
    return 1;
}

void via_data_find(struct via_data *ret_data)
{
    memset(ret_data, 0, sizeof(*ret_data));
    dl_iterate_phdr(find, ret_data);
}

/* --- sharing ---------------------------------------------------------------------------------- */

/*
 * AddressSanitizer puts red zones among the variables of a program that it instruments, and checks
 * the arguments of libc's functions. This file copies whole pages, so it does not use those
 * functions.
 */
#define VIA_ALL_OF_A_PAGE __attribute__((no_sanitize("address")))

static VIA_ALL_OF_A_PAGE bool is_zero(const char *page)
{
    const uint64_t *words = (const uint64_t *)(const void *)page;

    for (size_t i = 0; i < PAGE / sizeof(*words); i++)
        if (words[i] != 0)
            return false;
    return true;
}

/* Pages of zeros stay holes: a large .bss takes no memory until the program uses it. */
static int copy_out(const struct via_data *data, int fd, struct via_error *err)
{
    for (size_t off = 0; off < data->bytes; off += PAGE) {
        if (is_zero(data->base + off))
            continue;
        if (syscall(SYS_pwrite64, fd, data->base + off, PAGE, (off_t)off) != (long)PAGE)
            return via_error_set(err, errno ? -errno : -EIO, "program's data: copying: %s",
                                 strerror(errno));
    }
    return 0;
}

/*
 * Without this function, a child of fork would write into its parent's variables. The child gets a
 * private copy before it accesses any variable; it has one thread, and this function uses none of
 * the variables while it replaces their pages.
 */
static VIA_ALL_OF_A_PAGE void make_private_in_child(void)
{
    void *copy =
        mmap(NULL, shared.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED)
        _exit(127);
    for (size_t off = 0; off < shared.bytes; off += PAGE)
        if (!is_zero(shared.base + off))
            via_copy_once((char *)copy + off, shared.base + off, PAGE);
    if (mremap(copy, shared.bytes, shared.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, shared.base) ==
        MAP_FAILED)
        _exit(127);
}

int via_data_share(const struct via_data *data, int fd, struct via_error *err)
{
    sigset_t all, before;
    void *base;

    int result = via_job_size_and_seal(fd, data->bytes, err);
    if (result < 0 || data->bytes == 0)
        return result;
    /* A write by a signal handler between the copy and the mapping would be lost. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    result = copy_out(data, fd, err);
    if (result == 0)
        result = via_job_map_memory(fd, data->bytes, data->base, &base, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result < 0)
        return result;
    shared = *data;
    result = pthread_atfork(NULL, NULL, make_private_in_child);
    return result == 0 ? 0 : via_error_set(err, -result, "program's data: pthread_atfork");
}
