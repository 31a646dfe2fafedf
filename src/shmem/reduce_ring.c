/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Reductions of many bytes round rings of leaders: reduce-scatter, then all-gather. The elements
 * are cut into one share per host. In step s a leader sends share place - s to the right: its own
 * part in step 0; the part from the left plus its own in steps 1 to count - 2; then the complete
 * share (until step 2 count - 3). Each piece is put directly into its place in dest, so a leader
 * whose own part is in dest works on a copy of that part.
 *
 * There is one ring of all hosts, or, in a torus, a ring in each row and column: the rows reduce
 * everything, then the columns reduce the share that is complete at each host, then the columns
 * gather, and last the rows. That moves the same bytes in fewer steps.
 */
#include <stdlib.h>

#include "shmem/group.h"

/* Bytes forwarded at once: hosts compute while the next piece arrives. */
#define RING_PIECE_BYTES ((size_t)64 << 10)

struct ring {
    const struct via_task *task;
    struct viaduct_shmem_team *team;
    unsigned count, place; /* hosts, and mine */
    int left, right;       /* members */
    unsigned share_word, ready_word;
    size_t begin, end;   /* the elements that are reduced */
    const char *mine;    /* this host's part of these; a copy, or the source */
    bool is_host_part;   /* add the parts of the other members of this host, too */
    uint64_t sent, came; /* pieces, over all calls */
};

static char *dest_at(const struct ring *ring, size_t at)
{
    return (char *)ring->task->dest + at * ring->task->element_bytes;
}

static size_t share_begin(const struct ring *ring, unsigned share)
{
    return ring->begin + (ring->end - ring->begin) * share / ring->count;
}

static unsigned share_of_step(const struct ring *ring, unsigned step)
{
    return (ring->place + 2 * ring->count - step) % ring->count;
}

/* The share that is complete here after the first half. */
static unsigned whole_share(const struct ring *ring)
{
    return share_of_step(ring, ring->count - 1);
}

/* Adds this host's part to dest, where the previous leader has put its sum. Nothing is in dest yet
 * for the first share. */
static void add_piece(const struct ring *ring, size_t at, size_t count, bool is_first)
{
    const struct via_task *task = ring->task;
    const struct via_hosts *hosts = &ring->team->hosts;
    const char *mine = ring->mine + (at - ring->begin) * task->element_bytes;

    if (is_first)
        memcpy(dest_at(ring, at), mine, count * task->element_bytes);
    else
        task->kernel(dest_at(ring, at), mine, count);
    if (ring->is_host_part)
        via_reduce_members(task, dest_at(ring, at), at, count, task->group->my_pe + 1,
                           hosts->first[hosts->mine + 1]);
}

static void add_part(const struct ring *ring, size_t at, size_t count, bool is_first)
{
    size_t piece_max = VIA_REDUCE_PIECE_BYTES / ring->task->element_bytes;

    for (size_t end = at + count; at < end; at += piece_max)
        add_piece(ring, at, via_min(piece_max, end - at), is_first);
}

static void send_right(struct ring *ring, size_t at, size_t count)
{
    const struct via_task *task = ring->task;
    int pe = via_team_pe(ring->team, ring->right);

    via_put(task->call, dest_at(ring, at), dest_at(ring, at), count * task->element_bytes, pe);
    via_put_word(via_hosts_word(ring->team, ring->right, ring->share_word), ++ring->sent, pe);
}

/* The steps of a leader with the pieces of a share. */
enum doing { RECEIVE = 1, ADD = 2, SEND = 4 };

static void pass_share(struct ring *ring, unsigned share, int doing)
{
    size_t piece_max = RING_PIECE_BYTES / ring->task->element_bytes;

    for (size_t at = share_begin(ring, share), end = share_begin(ring, share + 1); at < end;
         at += piece_max) {
        size_t piece = via_min(piece_max, end - at);
        if (doing & RECEIVE)
            via_hosts_await(ring->team, ring->share_word, ++ring->came);
        if (doing & ADD)
            add_part(ring, at, piece, !(doing & RECEIVE));
        if (doing & SEND)
            send_right(ring, at, piece);
    }
}

/* Permits the previous leader to write this leader's dest, and waits for the same permission of the
 * next leader. */
static void meet_neighbours(const struct ring *ring)
{
    struct viaduct_shmem_team *team = ring->team;

    via_put_word(via_hosts_word(team, ring->left, ring->ready_word), team->pieces + 1,
                 via_team_pe(team, ring->left));
    via_hosts_await(team, ring->ready_word, team->pieces + 1);
}

/* In the last step a share becomes complete; if is_sent, it is also forwarded at once. */
static void scatter(struct ring *ring, bool is_sent)
{
    meet_neighbours(ring);
    pass_share(ring, ring->place, ADD | SEND);
    for (unsigned step = 1; step < ring->count; step++)
        pass_share(ring, share_of_step(ring, step),
                   RECEIVE | ADD | (step + 1 < ring->count || is_sent ? SEND : 0));
}

/* Complete shares: the first one comes from the previous leader. */
static void gather(struct ring *ring)
{
    for (unsigned step = ring->count; step < 2 * ring->count - 1; step++)
        pass_share(ring, share_of_step(ring, step),
                   RECEIVE | (step + 1 < 2 * ring->count - 1 ? SEND : 0));
}

/* A copy, owned by the caller. */
static char *copy_of(const struct via_task *task, const char *from, size_t elements)
{
    char *copy = malloc(via_max(elements * task->element_bytes, (size_t)1));

    if (!copy)
        via_fatal("%s: no memory for %zu elements", task->call, elements);
    memcpy(copy, from, elements * task->element_bytes);
    return copy;
}

static struct ring begin_ring(const struct via_task *task)
{
    struct viaduct_shmem_team *team = task->group->team;

    return (struct ring){.task = task,
                         .team = team,
                         .end = task->elements,
                         .is_host_part = true,
                         .sent = team->pieces,
                         .came = team->pieces};
}

static void reduce_by_ring(const struct via_task *task, const char *mine)
{
    struct ring ring = begin_ring(task);
    const struct via_hosts *hosts = &ring.team->hosts;

    ring.count = hosts->count;
    ring.place = hosts->place;
    ring.left = via_hosts_ring_leader(hosts, hosts->count - 1);
    ring.right = via_hosts_ring_leader(hosts, 1);
    ring.share_word = VIA_WORD_SHARE;
    ring.ready_word = VIA_WORD_READY;
    ring.mine = mine;
    scatter(&ring, true);
    gather(&ring);
}

/* The ring of the hosts first, first + step ...: a row or a column. */
static void place_in(struct ring *ring, unsigned count, unsigned place, unsigned step)
{
    const struct via_hosts *hosts = &ring->team->hosts;
    unsigned first = hosts->mine - place * step;

    ring->count = count;
    ring->place = place;
    ring->left = hosts->first[first + (place + count - 1) % count * step];
    ring->right = hosts->first[first + (place + 1) % count * step];
}

/* The share that is complete in this row is the column's input. */
static void reduce_column(const struct ring *row)
{
    struct ring column = begin_ring(row->task);
    const struct via_hosts *hosts = &column.team->hosts;

    place_in(&column, hosts->count / row->count, hosts->mine / row->count, row->count);
    column.share_word = VIA_WORD_COLUMN_SHARE;
    column.ready_word = VIA_WORD_COLUMN_READY;
    column.begin = share_begin(row, whole_share(row));
    column.end = share_begin(row, whole_share(row) + 1);
    column.is_host_part = false;
    char *copy = copy_of(row->task, dest_at(&column, column.begin), column.end - column.begin);
    column.mine = copy;
    scatter(&column, true);
    gather(&column);
    free(copy);
}

static void reduce_by_torus(const struct via_task *task, const char *mine)
{
    struct ring row = begin_ring(task);
    const struct via_hosts *hosts = &row.team->hosts;

    place_in(&row, hosts->shape.row, hosts->mine % hosts->shape.row, 1);
    row.share_word = VIA_WORD_ROW_SHARE;
    row.ready_word = VIA_WORD_ROW_READY;
    row.mine = mine;
    scatter(&row, false);
    reduce_column(&row);
    pass_share(&row, whole_share(&row), SEND);
    gather(&row);
}

typedef void by_leaders(const struct via_task *task, const char *mine);

static void reduce(const struct via_task *task, by_leaders *run)
{
    struct viaduct_shmem_team *team = task->group->team;
    const struct via_hosts *hosts = via_hosts_of(team);
    size_t share_bytes = (task->elements / hosts->count + 1) * task->element_bytes;

    if (via_hosts_gather(team)) {
        char *copy =
            task->dest == task->source ? copy_of(task, task->source, task->elements) : NULL;
        run(task, copy ? copy : task->source);
        free(copy);
    }
    via_hosts_release(team);
    /* An upper bound of every leader's count in any ring, so that all members continue from the
     * same number. */
    team->pieces += 2 * hosts->count * (share_bytes / (RING_PIECE_BYTES / 2) + 1);
    via_reduce_spread(task, hosts);
}

void via_reduce_ring(const struct via_task *task)
{
    reduce(task, reduce_by_ring);
}

void via_reduce_torus(const struct via_task *task)
{
    reduce(task, reduce_by_torus);
}
