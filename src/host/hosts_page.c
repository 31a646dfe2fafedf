/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/hosts_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/types.h"

/* Attempts of a reader while the host writes. */
#define TRIES 1000u

struct path {
    char text[VIA_RUNDIR_PATH_BYTES + 32];
};

static struct path path_of(const char *rundir, unsigned host, const char *end)
{
    struct path path;
    snprintf(path.text, sizeof(path.text), "%s/host-%u.hosts%s", rundir, host, end);
    return path;
}

static bool is_page(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == VIA_HOSTS_PAGE_BYTES;
}

/* --- the host --------------------------------------------------------------------------------- */

/* Allocates all memory of the file before the rename, so that a machine without free memory reports
 * the error here. */
static int make_file(const char *rundir, unsigned host, mode_t mode)
{
    struct path path = path_of(rundir, host, "");
    struct path fresh = path_of(rundir, host, ".new");
    unlink(fresh.text);
    int fd = open(fresh.text, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    int code = fd < 0 ? errno : posix_fallocate(fd, 0, VIA_HOSTS_PAGE_BYTES);
    if (code == 0 && (fchmod(fd, mode) != 0 || rename(fresh.text, path.text) != 0)) {
        code = errno;
    }
    if (code != 0 && fd >= 0) {
        unlink(fresh.text);
        close(fd);
    }
    return code == 0 ? fd : -code;
}

struct via_hosts_page *via_hosts_page_open(const char *rundir, unsigned host, bool passable,
                                           struct via_error *err)
{
    struct path path = path_of(rundir, host, "");
    mode_t mode = passable ? 0644 : 0600;
    int fd = open(path.text, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && (!is_page(fd) || fchmod(fd, mode) != 0)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        fd = make_file(rundir, host, mode);
    }
    void *page = fd >= 0
                     ? mmap(NULL, VIA_HOSTS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    int code = fd < 0 ? -fd : errno;
    if (fd >= 0) {
        close(fd);
    }
    if (page == MAP_FAILED) {
        via_error_set(err, -code, "%s: make: %s", path.text, strerror(code));
        return NULL;
    }
    struct via_hosts_page *hosts = page;
    hosts->host = host;
    atomic_store_explicit(&hosts->magic, VIA_HOSTS_PAGE_MAGIC, memory_order_release);
    return hosts;
}

static int compare(const void *a, const void *b)
{
    const struct via_hosts_entry *left = a;
    const struct via_hosts_entry *right = b;
    return memcmp(left->ip, right->ip, sizeof(left->ip));
}

void via_hosts_page_write(struct via_hosts_page *page, struct via_hosts_entry *entries,
                          unsigned count)
{
    count = via_min(count, VIA_HOSTS_PAGE_ENTRIES_MAX);
    qsort(entries, count, sizeof(*entries), compare);
    uint32_t version = atomic_load_explicit(&page->version, memory_order_relaxed);
    if ((version & 1) == 0 && page->count == count &&
        memcmp(page->entries, entries, count * sizeof(*entries)) == 0) {
        return;
    }
    /* The version may be odd already, if a host was killed while it wrote. The fence keeps the
     * stores to entries after the odd version. Pairs with the reader's acquire load and fence. */
    atomic_store_explicit(&page->version, version | 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    memcpy(page->entries, entries, count * sizeof(*entries));
    page->count = count;
    atomic_store_explicit(&page->version, (version | 1) + 1, memory_order_release);
}

void via_hosts_page_close(struct via_hosts_page *page, const char *rundir, unsigned host)
{
    if (page != NULL) {
        atomic_store_explicit(&page->magic, 0, memory_order_release);
        munmap(page, VIA_HOSTS_PAGE_BYTES);
        unlink(path_of(rundir, host, "").text);
    }
}

/* --- programs --------------------------------------------------------------------------------- */

int via_hosts_page_map(const char *rundir, unsigned host, const struct via_hosts_page **ret_page)
{
    int fd = open(path_of(rundir, host, "").text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return -errno;
    }
    void *page =
        is_page(fd) ? mmap(NULL, VIA_HOSTS_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (page == MAP_FAILED) {
        return -EPROTO;
    }
    *ret_page = page;
    return 0;
}

void via_hosts_page_unmap(const struct via_hosts_page *page)
{
    munmap((void *)(uintptr_t)page, VIA_HOSTS_PAGE_BYTES);
}

/* Entries may change during the search; the caller detects that by the version. */
static int search(const struct via_hosts_page *page, const unsigned char ip[16],
                  struct via_hosts_entry *ret_entry)
{
    unsigned first = 0;
    unsigned end = via_min(page->count, VIA_HOSTS_PAGE_ENTRIES_MAX);
    while (first < end) {
        unsigned middle = first + (end - first) / 2;
        int order = memcmp(page->entries[middle].ip, ip, sizeof(page->entries[0].ip));
        if (order == 0) {
            *ret_entry = page->entries[middle];
            return 0;
        }
        if (order < 0) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return -ENOENT;
}

int via_hosts_page_find(const struct via_hosts_page *page, const unsigned char ip[16],
                        struct via_hosts_entry *ret_entry)
{
    for (unsigned i = 0; i < TRIES; i++) {
        if (atomic_load_explicit(&page->magic, memory_order_acquire) != VIA_HOSTS_PAGE_MAGIC) {
            return -ENODATA;
        }
        /* Pairs with the release in via_hosts_page_write(). The fence keeps the loads of entries
         * before the second load of the version. */
        uint32_t version = atomic_load_explicit(&page->version, memory_order_acquire);
        struct via_hosts_entry entry = {.host = 0};
        int rc = search(page, ip, &entry);
        atomic_thread_fence(memory_order_acquire);
        if ((version & 1) == 0 &&
            atomic_load_explicit(&page->version, memory_order_relaxed) == version) {
            *ret_entry = entry;
            return rc;
        }
    }
    return -ENOENT; /* the host was killed while it wrote */
}
