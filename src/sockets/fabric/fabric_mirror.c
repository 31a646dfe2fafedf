/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The memory in which records for frames are built. Some of it is lent to the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/client.h"
#include "sockets/fabric/fabric_internal.h"
#include "sockets/io/zcopy.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/real.h"

/* Limit of the mirrors that a process lends: it needs most of its segments for connections. */
#define LENT_MAX 64u
#define RESTS_MAX 256u
/* Frames are under way for longer than stores, and a sleeping reader's wake-up takes longer, too.
 * Long rings keep all threads busy. With more than LONG_RINGS_MAX such connections enough
 * bytes are under way in total, and long rings would only occupy more of the caches. */
#define LONG_RINGS_MAX 2u

static struct via_mutex lock = VIA_MUTEX_INIT(VIA_RANK_MIRRORS);
static unsigned lent_count;
static _Atomic unsigned relayed_count;

/* What closed connections leave until their puts have ended: the daemon still reads lent memory;
 * and when the segment is removed, the peer concludes that all puts have arrived. */
static struct rest {
    struct via_segment *lent;
    struct via_segment *segment;
    struct via_remote *remote; /* NULL: the place is free */
} rests[RESTS_MAX];

/* Connections that only processes forked from this one still hold. The peer writes to them through
 * memory that this process has registered, until the last of these processes has closed. No event
 * reports when a process is killed, so side->refs is checked. */
#define HANDED_MAX 1024u
static struct handed {
    struct via_segment *segment;
    struct via_side *side;
} handed[HANDED_MAX];
static unsigned handed_count;

static bool is_by_frames(const struct via_fabric *fabric)
{
    return (fabric->way & VIA_STATUS_DIRECT) == 0;
}

struct via_pipe_geometry via_fabric_geometry(const struct via_fabric *fabric)
{
    struct via_pipe_geometry geometry = via_ring;
    if (is_by_frames(fabric) &&
        atomic_load_explicit(&relayed_count, memory_order_relaxed) < LONG_RINGS_MAX) {
        geometry.data_bytes = VIA_RING_LONG_BYTES;
    }
    return geometry;
}

/* --- lending --------------------------------------------------------------------------------- */

/* [locked] Other threads' close() needs the lock, so nothing here waits for the daemon. */
static void free_rest(struct rest *rest)
{
    if (rest->remote != NULL) {
        via_remote_close(rest->remote);
    }
    if (rest->lent != NULL) {
        via_client_segment_leave(rest->lent);
        lent_count--;
    }
    if (rest->segment != NULL) {
        via_client_segment_leave(rest->segment);
    }
    *rest = (struct rest){.remote = NULL};
}

/* [locked] */
static void reap_handed(void)
{
    for (unsigned i = handed_count; i-- > 0;) {
        if (atomic_load_explicit(&handed[i].side->refs, memory_order_acquire) == 0) {
            via_client_segment_leave(handed[i].segment);
            via_side_free(handed[i].side);
            handed[i] = handed[--handed_count];
        }
    }
}

/* [locked] Frees the rests and segments that are not needed any more. */
static void reap(void)
{
    reap_handed();
    for (unsigned i = 0; i < RESTS_MAX; i++) {
        if (rests[i].remote != NULL && via_remote_pending(rests[i].remote) == 0) {
            free_rest(&rests[i]);
        }
    }
}

/* [locked] */
static bool keep_rest(const struct rest *rest)
{
    for (unsigned i = 0; i < RESTS_MAX; i++) {
        if (rests[i].remote == NULL) {
            rests[i] = *rest;
            return true;
        }
    }
    return false;
}

static bool is_lending_allowed(const struct via_fabric *fabric)
{
    bool may = via_zcopy_lends && is_by_frames(fabric);
    if (may) {
        via_lock(&lock);
        reap();
        may = lent_count < LENT_MAX;
        lent_count += may ? 1 : 0;
        via_unlock(&lock);
    }
    return may;
}

static void stop_lending(void)
{
    via_lock(&lock);
    lent_count--;
    via_unlock(&lock);
}

/* Maps memory that can be lent, or returns MAP_FAILED. This file owns the mapping, also after the
 * attachment is closed. */
static void *map_lent(struct via_fabric *fabric, struct via_attach *attach)
{
    void *mirror;
    int fd = via_os_memory("viaduct mirror", fabric->bytes,
                           F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, &mirror);
    if (fd < 0) {
        return MAP_FAILED;
    }
    if (via_segment_adopt(attach, fd, fabric->bytes, mirror, 0, &fabric->lent) != 0) {
        munmap(mirror, fabric->bytes);
        mirror = MAP_FAILED;
    }
    VIA_REAL(close)(fd);
    return mirror;
}

struct via_segment *via_fabric_mirror_lent(const struct via_conn *conn)
{
    const struct via_fabric *fabric = conn->fabric;
    bool is_ours = fabric->lent != NULL && fabric->attach == fabric->lent_to &&
                   fabric->lent_to == via_fabric_attached();
    return is_ours && !conn->side->ever_forked ? fabric->lent : NULL;
}

/* [locked] Keeps the segment that this process has made, for other processes that still read it. */
static void hand_over(struct via_conn *conn)
{
    const struct via_fabric *fabric = conn->fabric;
    if (fabric->segment != NULL && fabric->segment_attach == via_fabric_attached() &&
        handed_count < HANDED_MAX) {
        handed[handed_count++] = (struct handed){.segment = fabric->segment, .side = conn->side};
        conn->side = NULL;
    }
}

void via_fabric_give_back(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    bool last = atomic_load_explicit(&conn->side->refs, memory_order_acquire) == 0;
    /* Segments that a parent has made or lent, or that belong to a closed attachment, are kept. */
    struct via_attach *attach = via_fabric_attached();
    struct rest rest = {
        .lent = fabric->lent_to == attach ? fabric->lent : NULL,
        .segment = last && fabric->segment_attach == attach ? fabric->segment : NULL,
        .remote = fabric->attach == attach ? fabric->remote : NULL,
    };
    via_lock(&lock);
    reap();
    if (!last) {
        hand_over(conn);
    }
    bool waits = rest.remote != NULL && via_remote_pending(rest.remote) != 0;
    if (!waits || !keep_rest(&rest)) {
        free_rest(&rest);
    }
    via_unlock(&lock);
}

/* --- the mirror ------------------------------------------------------------------------------ */

int via_fabric_mirror_new(struct via_fabric *fabric, struct via_attach *attach)
{
    void *mirror = MAP_FAILED;
    if (is_lending_allowed(fabric)) {
        mirror = map_lent(fabric, attach);
        fabric->lent_to = attach;
        if (mirror == MAP_FAILED) {
            fabric->lent = NULL;
            stop_lending();
        }
    }
    if (mirror == MAP_FAILED) {
        mirror = mmap(NULL, fabric->bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (mirror == MAP_FAILED) {
        return -ENOMEM;
    }
    fabric->mirror = mirror;
    fabric->counted = is_by_frames(fabric);
    if (fabric->counted) {
        atomic_fetch_add_explicit(&relayed_count, 1, memory_order_relaxed);
    }
    return 0;
}

void via_fabric_mirror_free(struct via_fabric *fabric)
{
    if (fabric->counted) {
        atomic_fetch_sub_explicit(&relayed_count, 1, memory_order_relaxed);
    }
    if (fabric->mirror != NULL) {
        munmap(fabric->mirror, fabric->bytes);
    }
}

void via_fabric_mirrors_end(void)
{
    via_lock(&lock);
    lent_count = 0;
    memset(rests, 0, sizeof(rests));
    while (handed_count > 0) {
        via_side_free(handed[--handed_count].side);
    }
    via_unlock(&lock);
}

void via_fabric_mirrors_forked(void)
{
    via_lock_reset(&lock);
    via_fabric_mirrors_end();
}
