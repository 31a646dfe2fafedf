/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Memory of other processes: opening it, and finding out when it may be accessed directly.
 *
 * The status page of this host says how each host can be reached now. `way_direct` is the state of
 * that word (session, generation, direct) in which the mapping is valid, so one comparison before
 * each burst finds any change. After a change the library checks the path again, once per
 * generation: it requests a mapping if the session is new, and it remembers a refusal.
 *
 * The life page of the owner's host says in the same way whether the segment still exists.
 */
#include "host/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/mutant.h"
#include "host/client_auto.h"
#include "host/client_slice.h"
#include "host/client_sys.h"
#include "wire/frame.h"

#define POLL_EVERY_ACCESSES 1024u

static int check_owner(const struct via_remote *remote)
{
    int rc = atomic_load_explicit(&remote->lost, memory_order_relaxed);
    return rc == 0 ? 0
                   : via_client_error(rc, "host %u, segment: its owner has ended, or has freed it",
                                      remote->host);
}

int via_client_check(const struct via_remote *remote, uint64_t off, uint64_t bytes,
                     const char *attempt)
{
    if (via_unlikely(off > remote->bytes || bytes > remote->bytes - off)) {
        return via_client_error(-ERANGE,
                                "host %u, segment of %llu bytes: %s of %llu bytes at %llu: outside",
                                remote->host, (unsigned long long)remote->bytes, attempt,
                                (unsigned long long)bytes, (unsigned long long)off);
    }
    return check_owner(remote);
}

/* --- mapping -----------------------------------------------------------------------------------*/

static bool fd_is_safe(int fd, size_t bytes)
{
    struct stat st;
    int seals = via_sys_fcntl(fd, F_GET_SEALS, 0);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 && st.st_size >= 0 &&
           (uint64_t)st.st_size >= bytes;
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static bool map_memory(struct via_client_mapping *mapping, int memfd, size_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (base == MAP_FAILED) {
        mapping->read_only = true;
        base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, memfd, 0);
    }
    if (base == MAP_FAILED) {
        return false;
    }
    mapping->base = base;
    mapping->bytes = bytes;
    return true;
}

static size_t life_off(uint64_t handle)
{
    return via_segment_handle_index(handle) * sizeof(uint64_t);
}

/* Maps only the page with the segment's word. The page belongs to this mapping and is unmapped with
 * it. */
static bool map_life(struct via_client_mapping *mapping, int memfd, uint64_t handle)
{
    size_t page_off = life_off(handle) & ~(page_bytes() - 1);
    void *page = mmap(NULL, page_bytes(), PROT_READ, MAP_SHARED, memfd, (off_t)page_off);
    if (page == MAP_FAILED) {
        return false;
    }
    mapping->life_page = page;
    mapping->life_now = (const _Atomic uint64_t *)(const void *)((const unsigned char *)page +
                                                                 life_off(handle) - page_off);
    return true;
}

/* On failure the caller still owns the bell. */
static struct via_client_mapping *mapping_new(const struct via_remote *remote,
                                              const struct via_client_request *request)
{
    struct via_client_mapping *mapping = calloc(1, sizeof(*mapping));
    if (mapping == NULL) {
        return NULL;
    }
    if (!map_memory(mapping, request->fds[0], remote->bytes)) {
        free(mapping);
        return NULL;
    }
    if (!map_life(mapping, request->fds[2], remote->handle)) {
        munmap(mapping->base, mapping->bytes);
        free(mapping);
        return NULL;
    }
    mapping->bell_fd = request->fds[1];
    mapping->life = request->answer.life;
    return mapping;
}

static void mapping_free(struct via_client_mapping *mapping)
{
    munmap(mapping->base, mapping->bytes);
    munmap(mapping->life_page, page_bytes());
    via_client_fd_close(mapping->bell_fd);
    free(mapping);
}

/* Takes an answer with status 0 and its descriptors. 0 or negative errno. */
static int take_mapping(struct via_remote *remote, struct via_client_request *request)
{
    struct via_client_mapping *mapping = NULL;
    int rc = -EPROTO;
    if (request->fds_count == 3 && fd_is_safe(request->fds[0], request->answer.bytes) &&
        fd_is_safe(request->fds[2], life_off(remote->handle) + sizeof(uint64_t))) {
        rc = remote->bytes > request->answer.bytes ? -ERANGE : 0;
    }
    if (rc == 0) {
        mapping = mapping_new(remote, request);
        rc = mapping == NULL ? -ENOMEM : 0;
    }
    for (unsigned i = 0; i < request->fds_count; i++) {
        if (rc != 0 || i != 1) {
            via_client_fd_close(request->fds[i]);
        }
    }
    if (rc != 0) {
        return rc;
    }
    mapping->next = atomic_load_explicit(&remote->mapping, memory_order_relaxed);
    atomic_store_explicit(&remote->mapping, mapping, memory_order_release);
    return 0;
}

/* [locked, waits] Requests a mapping from the host. Returns 0 also if the segment can not be mapped
 * in this state of the path. */
static int map(struct via_remote *remote, uint64_t way)
{
    struct via_attach_request message = {
        .type = VIA_ATTACH_MAP,
        .host = remote->host,
        .handle = remote->handle,
    };
    struct via_client_request request;
    remote->mapping_now = true;
    int rc = via_client_request_wait(remote->attach, &message, -1, &request);
    remote->mapping_now = false;
    if (rc == 0) {
        rc = take_mapping(remote, &request);
    }
    if (rc == 0) {
        remote->mapped_session = via_status_session(way);
        /* Pairs with the acquire in find_direct(): the mapping is stored before the word. */
        atomic_store_explicit(&remote->way_direct, way, memory_order_release);
        return 0;
    }
    atomic_store_explicit(&remote->way_refused, way, memory_order_relaxed);
    return rc == -EXDEV || rc == -ENOMEM || rc == -EMFILE ? 0 : rc;
}

static bool is_alive(const struct via_client_mapping *mapping)
{
    return atomic_load_explicit(mapping->life_now, memory_order_relaxed) == mapping->life;
}

void via_client_remote_lose(struct via_remote *remote)
{
    atomic_store_explicit(&remote->lost, -ECONNRESET, memory_order_relaxed);
}

/* The segment of the mapping has been freed, or its owner has ended. */
static struct via_client_mapping *handle_loss(struct via_remote *remote,
                                              struct via_client_mapping *mapping)
{
    if (remote->outlives) {
        return mapping;
    }
    via_client_remote_lose(remote);
    return NULL;
}

void via_client_remote_keep_mapping(struct via_remote *remote)
{
    remote->outlives = true;
}

void via_client_remote_set_unordered(struct via_remote *remote)
{
    remote->alone = true;
}

/* The path has changed since the mapping was last used. Returns the mapping for its new state, or
 * NULL. */
static struct via_client_mapping *find_changed_mapping(struct via_remote *remote, uint64_t way)
{
    struct via_client_mapping *mapping;
    if (atomic_load_explicit(&remote->way_refused, memory_order_relaxed) == way) {
        return NULL;
    }
    if (via_client_auto_leave(remote->attach, remote->host) != 0) {
        return NULL; /* a later put or quiet reports the failure */
    }
    via_client_lock(remote->attach);
    mapping = atomic_load_explicit(&remote->mapping, memory_order_relaxed);
    if (mapping != NULL && remote->mapped_session == via_status_session(way)) {
        atomic_store_explicit(&remote->way_direct, way, memory_order_release);
    } else if (!remote->mapping_now) {
        int rc = map(remote, way);
        if (rc == -EACCES || rc == -ENOENT) {
            /* The host has restarted, so the segment no longer exists. */
            via_client_remote_lose(remote);
        }
    }
    if (atomic_load_explicit(&remote->way_direct, memory_order_relaxed) != way) {
        mapping = NULL;
    } else {
        mapping = atomic_load_explicit(&remote->mapping, memory_order_relaxed);
    }
    via_client_unlock(remote->attach);
    return mapping == NULL || is_alive(mapping) ? mapping : handle_loss(remote, mapping);
}

/* Inline, and its rare branches end in tail calls, so that a few loads and compares remain. */
static inline struct via_client_mapping *find_direct(struct via_remote *remote)
{
    struct via_attach *attach = remote->attach;
    if (via_unlikely(atomic_load_explicit(&attach->dead, memory_order_relaxed))) {
        return NULL;
    }
    uint64_t way = via_client_status(attach, remote->host) & VIA_CLIENT_WAY_MASK;
    if ((way & VIA_STATUS_DIRECT) == 0) {
        return NULL;
    }
    /* Pairs with the releases that decrement the count: at 0 all frames have arrived. */
    if (atomic_load_explicit(&attach->host_pending[remote->host], memory_order_acquire) != 0 &&
        !VIA_MUTANT(CLIENT_OVERTAKE)) {
        return NULL;
    }
    /* Pairs with the releases in map() and find_changed_mapping(). */
    if (via_unlikely(atomic_load_explicit(&remote->way_direct, memory_order_acquire) != way)) {
        return find_changed_mapping(remote, way);
    }
    struct via_client_mapping *mapping =
        atomic_load_explicit(&remote->mapping, memory_order_acquire);
    return via_likely(is_alive(mapping)) ? mapping : handle_loss(remote, mapping);
}

/* Direct accesses make no call to the host and would not notice its end. So every
 * POLL_EVERY_ACCESSES accesses check for it. */
static struct via_client_mapping *check_death_first(struct via_remote *remote)
{
    return via_client_check_death(remote->attach) ? NULL : find_direct(remote);
}

/* Inline, for the two functions below, each of which is called for every access. */
static inline __attribute__((always_inline)) struct via_client_mapping *
count_and_find_direct(struct via_remote *remote)
{
    /* Concurrent threads may lose counts, which is harmless. */
    uint32_t accesses = atomic_load_explicit(&remote->accesses, memory_order_relaxed) + 1;
    atomic_store_explicit(&remote->accesses, accesses, memory_order_relaxed);
    return via_unlikely(accesses % POLL_EVERY_ACCESSES == 0) ? check_death_first(remote)
                                                             : find_direct(remote);
}

struct via_client_mapping *via_client_direct(struct via_remote *remote)
{
    return count_and_find_direct(remote);
}

int via_client_remote_status(struct via_remote *remote, int status)
{
    struct via_client_mapping *mapping =
        atomic_load_explicit(&remote->mapping, memory_order_acquire);
    bool had_slices = atomic_load_explicit(&remote->aperture, memory_order_acquire) != NULL;
    if (status != -EACCES || remote->outlives || (mapping == NULL && !had_slices) ||
        (mapping != NULL && is_alive(mapping))) {
        return status;
    }
    via_client_remote_lose(remote);
    return -ECONNRESET;
}

bool via_client_has_frames_due(const struct via_remote *remote)
{
    uint64_t way = via_client_status(remote->attach, remote->host) & VIA_CLIENT_WAY_MASK;
    return (way & VIA_STATUS_DIRECT) != 0 &&
           atomic_load_explicit(&remote->way_refused, memory_order_relaxed) != way &&
           atomic_load_explicit(&remote->attach->host_pending[remote->host],
                                memory_order_acquire) != 0;
}

static bool frames_have_arrived(struct via_attach *attach, void *ctx)
{
    (void)attach;
    return !via_client_has_frames_due(ctx);
}

int via_client_direct_wait(struct via_remote *remote, struct via_client_mapping **ret_mapping)
{
    struct via_attach *attach = remote->attach;
    for (;;) {
        struct via_client_mapping *mapping = via_client_direct(remote);
        if (via_likely(mapping != NULL)) {
            *ret_mapping = mapping;
            return 0;
        }
        if (!via_client_has_frames_due(remote)) {
            *ret_mapping = NULL;
            return attach->dead ? via_client_dead(attach) : check_owner(remote);
        }
        int rc = via_client_wait_remote(remote, frames_have_arrived, VIA_NEVER_NS);
        if (rc != 0) {
            return rc;
        }
    }
}

static bool is_refused(int rc)
{
    return rc == -EACCES || rc == -ENOENT || rc == -ECONNRESET;
}

bool via_client_remote_is_gone(struct via_remote *remote)
{
    struct via_client_mapping *mapping =
        atomic_load_explicit(&remote->mapping, memory_order_acquire);
    if ((mapping != NULL && !is_alive(mapping)) || via_client_slice_is_gone(remote) ||
        is_refused(atomic_load_explicit(&remote->lost, memory_order_relaxed)) ||
        is_refused(atomic_load_explicit(&remote->error, memory_order_relaxed))) {
        return true;
    }
    if (via_client_direct(remote) == NULL && via_remote_pending(remote) == 0) {
        /* A put of no bytes, whose only effect is to wake the threads of the owner. */
        return is_refused(via_remote_try_put(remote, 0, NULL, 0, VIADUCT_PUT_NOTIFY));
    }
    return false;
}

void *via_remote_direct(struct via_remote *remote)
{
    struct via_client_mapping *mapping = count_and_find_direct(remote);
    return mapping == NULL ? NULL : mapping->base;
}

/* --- open and close ----------------------------------------------------------------------------*/

/* [locked, waits] */
static int map_first(struct via_remote *remote)
{
    uint64_t way = via_client_status(remote->attach, remote->host) & VIA_CLIENT_WAY_MASK;
    if ((way & VIA_STATUS_DIRECT) == 0) {
        return 0;
    }
    int rc = map(remote, way);
    switch (rc) {
    case 0:
    case -ENOTCONN:
    case -ETIMEDOUT:
    case -ENOBUFS:
        return rc;
    case -ENOENT:
    case -EACCES:
        return via_client_error(-EACCES, "host %u, segment: open: no such segment, or wrong key",
                                remote->host);
    case -ERANGE:
        return via_client_error(rc, "host %u, segment: open: it is smaller than %llu bytes",
                                remote->host, (unsigned long long)remote->bytes);
    default:
        return via_client_error(rc, "host %u, segment: open: %s", remote->host, strerror(-rc));
    }
}

int via_remote_open(struct via_attach *attach, unsigned host, uint64_t handle, size_t bytes,
                    struct via_remote **ret_remote)
{
    if (host >= attach->hosts_max || bytes == 0) {
        return via_client_error(-EINVAL,
                                "host %u, segment of %zu bytes: open: no host of this "
                                "fabric, or no bytes",
                                host, bytes);
    }
    struct via_remote *remote = calloc(1, sizeof(*remote));
    if (remote == NULL) {
        return via_client_error(-ENOMEM, "host %u, segment: open: out of memory", host);
    }
    remote->attach = attach;
    remote->handle = handle;
    remote->bytes = bytes;
    remote->host = (uint16_t)host;
    (void)via_client_watch(attach, host);
    via_client_lock(attach);
    via_list_push_back(&attach->remotes, &remote->link);
    int rc = map_first(remote);
    if (rc != 0) {
        via_client_remote_free(remote);
    }
    via_client_unlock(attach);
    if (rc == 0) {
        *ret_remote = remote;
    }
    return rc;
}

void via_client_remote_free(struct via_remote *remote)
{
    struct via_client_mapping *mapping =
        atomic_load_explicit(&remote->mapping, memory_order_relaxed);
    via_client_slices_free(remote);
    while (mapping != NULL) {
        struct via_client_mapping *next = mapping->next;
        mapping_free(mapping);
        mapping = next;
    }
    if (remote->tcp != NULL) {
        via_client_tcp_release(remote);
    }
    via_list_remove(&remote->link);
    free(remote);
}

void via_client_remote_fail(struct via_remote *remote, int status)
{
    if (atomic_load_explicit(&remote->error, memory_order_relaxed) == 0) {
        atomic_store_explicit(&remote->error, status, memory_order_relaxed);
    }
}

static void free_if_over(struct via_remote *remote)
{
    if (remote->closed && remote->held == 0 &&
        atomic_load_explicit(&remote->pending, memory_order_relaxed) == 0) {
        via_client_remote_free(remote);
    }
}

void via_client_remote_done(struct via_remote *remote)
{
    atomic_fetch_sub_explicit(&remote->pending, 1, memory_order_release);
    free_if_over(remote);
}

void via_client_remote_release(struct via_remote *remote)
{
    remote->held--;
    free_if_over(remote);
}

void via_remote_close(struct via_remote *remote)
{
    if (remote == NULL) {
        return;
    }
    struct via_attach *attach = remote->attach;
    bool over = via_client_auto_close_remote(remote);
    via_client_lock(attach);
    remote->closed = true;
    /* If puts are still under way, the last of them frees the remote, or the end of the attachment
     * does. */
    if (over) {
        free_if_over(remote);
    }
    via_client_unlock(attach);
}

int via_remote_ring(struct via_remote *remote)
{
    struct via_client_mapping *mapping = via_client_direct(remote);
    if (mapping != NULL) {
        via_sys_bell_ring(mapping->bell_fd);
        return 0;
    }
    return via_remote_put(remote, 0, NULL, 0, VIADUCT_PUT_NOTIFY);
}
