/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The client library and the fabric below it, as far as connections use them: puts that arrive in
 * order, late, and a limited number at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/sockets/run.h"
#include "sim/stub.h"

/* Frames under way beyond the limit of records: a record is two puts, and each word is a put of its
 * own. */
#define FRAMES_SPARE 4u

static struct sock_end *owner_of(const struct via_remote *remote)
{
    return via_container_of(remote, struct sock_end, remote);
}

/* The peer's segment is gone, and its host refuses puts. */
static bool is_refused(const struct sock_end *peer)
{
    return peer->closed || (peer->dead && peer->out.fin_arrived);
}

struct frame {
    struct via_list member;
    size_t off, bytes;
    unsigned char data[];
};

/* The oldest frame of a line, which the caller frees; NULL: none is under way. */
static struct frame *pop(struct sock_line *line)
{
    struct via_list *member = via_list_pop_front(&line->frames);
    line->count -= member != NULL;
    return member != NULL ? via_list_entry(member, struct frame, member) : NULL;
}

int via_remote_try_put(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                       unsigned flags)
{
    struct sock_end *end = owner_of(remote);
    struct sock_run *run = end->run;
    struct sock_line *line = &end->line;
    (void)flags;
    if (is_refused(end->peer)) {
        return -EACCES;
    }
    if (line->count >= run->config->frames_max + FRAMES_SPARE) {
        return -EAGAIN;
    }
    if (off + bytes > end->fabric.bytes) {
        sock_fail(run, "a put of %zu bytes at %llu, outside of the segment", bytes,
                  (unsigned long long)off);
        return -EINVAL;
    }
    struct frame *frame = sim_alloc(sizeof(*frame) + bytes);
    *frame = (struct frame){.off = off, .bytes = bytes};
    memcpy(frame->data, src, bytes);
    via_list_push_back(&line->frames, &frame->member);
    line->count++;
    remote->pending++;
    remote->begun++;
    line->last_ns = via_max(line->last_ns,
                            run->clock.now_ns + sock_between(run, 100, run->config->frame_ns_max));
    sim_clock_at(&run->clock, line->last_ns, SIM_EVENT_GUEST, end->number, 0, 0);
    sock_trace(end, "puts at", off);
    return 0;
}

int via_client_try_put(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                       unsigned flags, const struct via_client_reader *reader)
{
    (void)reader; /* no slices here, so the host rings in any case */
    return via_remote_try_put(remote, off, src, bytes, flags);
}

/* The mirror is not lent: via_fabric_mirror_lent() returns NULL. */
SIM_STUB(int, -ENOTSUP, via_remote_try_put_from, struct via_remote *remote, uint64_t off,
         struct via_segment *segment, uint64_t segment_off, uint64_t bytes, unsigned flags)

void sock_frame_arrives(struct sock_end *from)
{
    struct frame *frame = pop(&from->line);
    from->remote.pending--;
    if (!from->peer->closed) {
        memcpy(from->peer->segment + frame->off, frame->data, frame->bytes);
    }
    sock_trace(from, "a put arrives, at", frame->off);
    free(frame);
    sock_wake(from->peer);
    sock_wake(from); /* the line has room again */
}

void sock_line_free(struct sock_line *line)
{
    for (struct frame *frame; (frame = pop(line)) != NULL;) {
        free(frame);
    }
}

/* --- what is asked of the host ---------------------------------------------------------------- */

unsigned via_remote_pending(struct via_remote *remote)
{
    return remote->pending;
}

SIM_STUB(size_t, SIZE_MAX, via_remote_try_max, const struct via_remote *remote)
SIM_STUB(void *, NULL, via_remote_direct, struct via_remote *remote)
SIM_STUB(int, 0, via_remote_ring, struct via_remote *remote)
/* All records are in the mirror. */
SIM_STUB(int, -ENOTSUP, via_remote_get, struct via_remote *remote, uint64_t off, void *dst,
         size_t bytes)

/* Returns whether the peer's segment exists. */
int via_remote_open(struct via_attach *attach, unsigned host, uint64_t handle, uint64_t bytes,
                    struct via_remote **ret_remote)
{
    (void)attach, (void)host, (void)bytes;
    *ret_remote = NULL;
    return is_refused(&sock_run_now->ends[handle]) ? -EACCES : 0;
}

SIM_STUB_VOID(via_remote_close, struct via_remote *remote)

bool via_client_remote_is_gone(struct via_remote *remote)
{
    const struct sock_end *peer = owner_of(remote)->peer;
    return is_refused(peer) && peer->line.count == 0;
}

SIM_STUB(bool, false, via_client_remote_is_held, const struct via_remote *remote)

/* The host keeps the words of a segment after the segment is removed. */
int via_client_remote_word(struct via_remote *remote, uint64_t off, struct via_client_word *word,
                           uint64_t *ret_word)
{
    (void)word;
    memcpy(ret_word, owner_of(remote)->peer->segment + off, sizeof(*ret_word));
    return 0;
}

SIM_STUB(int, 1, via_attach_hops, struct via_attach *attach, unsigned host)
SIM_STUB(int, 0, via_attach_poll, struct via_attach *attach)
