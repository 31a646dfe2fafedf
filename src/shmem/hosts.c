/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/hosts.h"

#include <stdlib.h>

#include "base/mutant.h"
#include "shmem/barrier.h"
#include "shmem/path.h"
#include "shmem/peer.h"
#include "shmem/torus.h"

/* --- the hosts of a team --------------------------------------------------------------------- */

static bool is_world(const struct viaduct_shmem_team *team)
{
    return team == via_team(SHMEM_TEAM_WORLD);
}

static uint32_t node_of(const struct viaduct_shmem_team *team, int number)
{
    return via_world.peers[via_team_pe(team, number)].node;
}

static void find_hosts(struct viaduct_shmem_team *team)
{
    struct via_hosts *hosts = &team->hosts;
    unsigned count = 1, locals_max = 0;

    for (int i = 1; i < team->size; i++)
        count += node_of(team, i) != node_of(team, i - 1);
    hosts->first = malloc((2 * (size_t)count + 1) * sizeof(*hosts->first));
    if (!hosts->first)
        via_fatal("team of %d PEs: out of memory", team->size);
    hosts->ring = hosts->first + count + 1;
    for (unsigned i = 0; i < count; i++)
        hosts->ring[i] = (int)i;
    hosts->count = 0;
    hosts->passed_by = 0;
    for (int i = 0; i < team->size; i++) {
        if (i == 0 || node_of(team, i) != node_of(team, i - 1))
            hosts->first[hosts->count++] = i;
        if (i == team->my_pe)
            hosts->mine = hosts->count - 1;
    }
    hosts->first[hosts->count] = team->size;
    hosts->place = hosts->mine;
    for (unsigned h = 0; h < hosts->count; h++)
        locals_max = via_max(locals_max, (unsigned)(hosts->first[h + 1] - hosts->first[h]));
    size_t partial_max = VIA_BOX_BYTES / hosts->count / 8 * 8;
    hosts->shape = (struct via_algorithm_case){
        .costs = &via_world.job->costs,
        .pes = (unsigned)team->size,
        .hosts = hosts->count,
        .locals_max = locals_max,
        .exchange_max =
            team->mapped ? VIA_SYNC_LINE_BYTES : VIA_BOX_BYTES / (size_t)team->size / 8 * 8,
        .partial_max = partial_max,
    };
}

/* What this host knows about paths, as bits. One bit shows whether the team's next host is a
 * neighbour, one whether all hosts are. One bit for each possible row length of a torus shows
 * whether the next hosts in this host's row and column are neighbours (720 hosts and some larger
 * numbers have more row lengths than there are bits). The rest of the word is the number of the
 * meeting. */
#define SHAPE_RING UINT64_C(1)
#define SHAPE_MESH UINT64_C(2)
#define SHAPE_TORUS UINT64_C(4)
#define TORUS_BITS 22u
#define SHAPE_BITS (2 + TORUS_BITS)

static bool is_neighbour(const struct viaduct_shmem_team *team, unsigned further)
{
    int number = via_hosts_leader(&team->hosts, further);

    return via_attach_hops(via_world.attach, via_world.peers[via_team_pe(team, number)].host) == 1;
}

static bool is_in_torus(const struct viaduct_shmem_team *team, unsigned columns)
{
    unsigned count = team->hosts.count, column = team->hosts.mine % columns;

    return is_neighbour(team, columns) &&
           is_neighbour(team, column + 1 < columns ? 1 : count - column);
}

static uint64_t find_shape(const struct viaduct_shmem_team *team)
{
    unsigned count = team->hosts.count, columns;
    uint64_t flags = SHAPE_MESH;

    for (unsigned i = 1; i < count && flags; i++)
        if (!is_neighbour(team, i))
            flags = 0;
    for (unsigned i = 0; i < TORUS_BITS && (columns = via_torus_columns(count, i)) > 0; i++)
        if (is_in_torus(team, columns))
            flags |= SHAPE_TORUS << i;
    return flags | (is_neighbour(team, 1) ? SHAPE_RING : 0);
}

/* Links may fail and recover meanwhile: it matters only that all members assume the same. */
static uint64_t agree_on_shape(struct viaduct_shmem_team *team)
{
    struct via_hosts *hosts = &team->hosts;
    uint64_t flags = find_shape(team);

    for (unsigned round = 0; 1u << round < hosts->count; round++) {
        int to = via_hosts_leader(hosts, 1u << round);
        unsigned word = VIA_WORD_SHAPE_ROUND + round;
        via_put_word(via_hosts_word(team, to, word), team->epoch << SHAPE_BITS | flags,
                     via_team_pe(team, to));
        via_hosts_await(team, word, team->epoch << SHAPE_BITS);
        flags &=
            atomic_load_explicit(via_hosts_word(team, team->my_pe, word), memory_order_relaxed);
    }
    return flags;
}

/* A torus always contains a ring. Hosts in the order of their numbers do not form one, because the
 * last host of a row is not a neighbour of the first host of the next row. */
static void take_shape(struct via_hosts *hosts, uint64_t flags)
{
    uint64_t lengths = (flags & ((UINT64_C(1) << SHAPE_BITS) - 1)) / SHAPE_TORUS;

    hosts->shape.is_ring = (flags & SHAPE_RING) != 0;
    hosts->shape.is_mesh = (flags & SHAPE_MESH) != 0;
    if (hosts->shape.is_ring || hosts->shape.is_mesh || lengths == 0)
        return;
    hosts->shape.row = via_torus_columns(hosts->count, (unsigned)__builtin_ctzll(lengths));
    hosts->shape.is_ring = true;
    via_torus_ring(hosts->shape.row, hosts->count / hosts->shape.row, hosts->ring);
    while (hosts->ring[hosts->place] != (int)hosts->mine)
        hosts->place = (hosts->place + 1) % hosts->count;
}

static struct via_sync_slot *slot_here(const struct viaduct_shmem_team *team, int number);

static void learn_shape(struct viaduct_shmem_team *team)
{
    struct via_hosts *hosts = &team->hosts;
    int leader = hosts->first[hosts->mine];

    if (via_hosts_gather(team))
        atomic_store_explicit(via_hosts_word(team, leader, VIA_WORD_SHAPE), agree_on_shape(team),
                              memory_order_relaxed);
    via_hosts_release(team);
    uint64_t flags =
        atomic_load_explicit(&slot_here(team, leader)->words[VIA_WORD_SHAPE], memory_order_relaxed);
    take_shape(hosts, flags);
}

struct via_hosts *via_hosts_of(struct viaduct_shmem_team *team)
{
    if (via_unlikely(!team->hosts.first)) {
        find_hosts(team);
        if (team->hosts.count > 1)
            learn_shape(team);
    }
    return &team->hosts;
}

/* --- within a host --------------------------------------------------------------------------- */

/* A word of a member on this host. */
static struct via_sync_slot *slot_here(const struct viaduct_shmem_team *team, int number)
{
    char *heap = via_peer_base(VIA_REGION_HEAP, via_team_pe(team, number));

    return &((struct via_internal *)(void *)heap)->teams[via_team_slot(team, number)];
}

/* The words of the world team are adjacent or spread (words_apart), whichever is faster on this
 * machine. */
static _Atomic uint64_t *arrived(const struct viaduct_shmem_team *team, int number)
{
    if (is_world(team))
        return via_node_arrived(via_world.node,
                                (uint32_t)(number - team->hosts.first[team->hosts.mine]));
    return &slot_here(team, number)->lines[0].arrived;
}

static _Atomic uint64_t *released(const struct viaduct_shmem_team *team)
{
    if (is_world(team))
        return &via_world.node->released;
    return &slot_here(team, team->hosts.first[team->hosts.mine])->words[VIA_WORD_RELEASED];
}

bool via_hosts_gather(struct viaduct_shmem_team *team)
{
    struct via_hosts *hosts = via_hosts_of(team);
    struct via_wait wait = VIA_WAIT_INIT;

    team->epoch = VIA_MUTANT(SHMEM_OLD_ROUND) && !is_world(team) ? 1 : team->epoch + 1;
    if (via_hosts_locals(hosts) == 1)
        return true;
    via_store_and_notify(arrived(team, team->my_pe), team->epoch);
    if (!via_hosts_is_leader(team))
        return false;
    for (int i = hosts->first[hosts->mine] + 1;
         i < hosts->first[hosts->mine + 1] && !VIA_MUTANT(SHMEM_NO_GATHER); i++)
        via_wait_here(&wait, arrived(team, i), team->epoch);
    via_wait_done(&wait);
    return true;
}

void via_hosts_release(struct viaduct_shmem_team *team)
{
    struct via_wait wait = VIA_WAIT_INIT;

    if (via_hosts_locals(&team->hosts) == 1)
        return;
    if (via_hosts_is_leader(team))
        via_store_and_notify(released(team), team->epoch);
    else
        via_wait_here(&wait, released(team), team->epoch);
    via_wait_done(&wait);
}

/* --- among leaders --------------------------------------------------------------------------- */

void via_hosts_await(const struct viaduct_shmem_team *team, unsigned word, uint64_t value)
{
    const _Atomic uint64_t *mine = via_hosts_word(team, team->my_pe, word);
    struct via_wait wait = VIA_WAIT_INIT;

    /* Pairs with the release of via_put_word, or of the daemon that stores for it. */
    while (atomic_load_explicit(mine, memory_order_acquire) < value)
        via_wait_step(&wait);
    via_wait_done(&wait);
    atomic_store_explicit(&via_world.rounds,
                          atomic_load_explicit(&via_world.rounds, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static size_t block_off(const struct via_load *load, const struct via_hosts *hosts, unsigned host)
{
    if (load->offs)
        return load->offs[host];
    return (load->is_by_host ? host : (size_t)hosts->first[host]) * load->stride;
}

static unsigned box_parity(uint64_t epoch)
{
    return VIA_MUTANT(SHMEM_ONE_BOX) ? 0 : epoch % 2;
}

/* The box of member `number`, at its address in this process. */
static char *box_of(const struct viaduct_shmem_team *team, int number, uint64_t epoch)
{
    return (char *)via_internal()->boxes[via_team_slot(team, number)][box_parity(epoch)];
}

char *via_hosts_box(const struct viaduct_shmem_team *team)
{
    int leader = team->hosts.first[team->hosts.mine];
    char *heap = via_peer_base(VIA_REGION_HEAP, via_team_pe(team, leader));
    struct via_internal *internal = (struct via_internal *)(void *)heap;

    return (char *)internal->boxes[via_team_slot(team, leader)][box_parity(team->epoch)];
}

char *via_hosts_next_box(const struct viaduct_shmem_team *team)
{
    char *box = via_hosts_box(team);

    if (VIA_MUTANT(SHMEM_ONE_BOX))
        return box;
    return team->epoch % 2 ? box - VIA_BOX_BYTES : box + VIA_BOX_BYTES;
}

/* `count` blocks in a row, with wrap-around after the last host. */
static void pass_blocks(const struct viaduct_shmem_team *team, const struct via_load *load,
                        unsigned block, unsigned count, int to)
{
    const struct via_hosts *hosts = &team->hosts;

    while (load && count > 0) {
        unsigned some = via_min(count, hosts->count - block);
        size_t begin = block_off(load, hosts, block), end = block_off(load, hosts, block + some);
        const char *from = load->base ? load->base : box_of(team, team->my_pe, team->epoch);
        char *dest = load->base ? load->base : box_of(team, to, team->epoch);
        via_put("collective", dest + begin, from + begin, end - begin, via_team_pe(team, to));
        block = 0;
        count -= some;
    }
}

/* A circle of hosts, each of which forwards blocks to both of its neighbours: all hosts in the
 * order of the ring, or those of this host's row or column. */
struct circle {
    const int *ring; /* NULL: the host in place p is first + p * step */
    unsigned first, step;
    unsigned block, blocks; /* it has the blocks from block + p * step on; with a ring, its own */
    unsigned count, place;  /* mine */
    unsigned left_word, right_word;
};

static int leader_at(const struct viaduct_shmem_team *team, const struct circle *circle,
                     unsigned place)
{
    unsigned at = place % circle->count;

    return team->hosts
        .first[circle->ring ? (unsigned)circle->ring[at] : circle->first + at * circle->step];
}

static void notify_next(const struct viaduct_shmem_team *team, const struct via_load *load,
                        const struct circle *circle, unsigned from, int to, unsigned word,
                        uint64_t value)
{
    unsigned at = from % circle->count;
    unsigned block = circle->ring ? (unsigned)circle->ring[at] : circle->block + at * circle->step;

    pass_blocks(team, load, block, circle->blocks, to);
    via_put_word(via_hosts_word(team, to, word), value, via_team_pe(team, to));
}

/* After round r every host has the blocks of the hosts up to r hops away. */
static void run_rounds(const struct viaduct_shmem_team *team, const struct via_load *load,
                       const struct circle *circle)
{
    unsigned count = circle->count, place = circle->place;
    int right = leader_at(team, circle, place + 1),
        left = leader_at(team, circle, place + count - 1);

    for (unsigned round = 1; round <= count / 2; round++) {
        uint64_t value = team->epoch * VIA_JOB_PES_MAX + round;
        notify_next(team, load, circle, place + count - (round - 1), right, circle->left_word,
                    value);
        if (left != right)
            notify_next(team, load, circle, place + round - 1, left, circle->right_word, value);
        via_hosts_await(team, circle->left_word, value);
        if (left != right)
            via_hosts_await(team, circle->right_word, value);
    }
}

static void go_round_ring(const struct viaduct_shmem_team *team, const struct via_load *load)
{
    const struct via_hosts *hosts = &team->hosts;
    const struct circle circle = {.ring = hosts->ring,
                                  .blocks = 1,
                                  .count = hosts->count,
                                  .place = hosts->place,
                                  .left_word = VIA_WORD_LEFT,
                                  .right_word = VIA_WORD_RIGHT};

    run_rounds(team, load, &circle);
}

/* After the first rounds every host has the blocks of its row; after the second, those of all
 * rows. */
static void go_round_torus(const struct viaduct_shmem_team *team, const struct via_load *load)
{
    const struct via_hosts *hosts = &team->hosts;
    unsigned columns = hosts->shape.row, column = hosts->mine % columns;
    const struct circle row = {.first = hosts->mine - column,
                               .step = 1,
                               .block = hosts->mine - column,
                               .blocks = 1,
                               .count = columns,
                               .place = column,
                               .left_word = VIA_WORD_ROW_LEFT,
                               .right_word = VIA_WORD_ROW_RIGHT};
    const struct circle all = {.first = column,
                               .step = columns,
                               .block = 0,
                               .blocks = columns,
                               .count = hosts->count / columns,
                               .place = hosts->mine / columns,
                               .left_word = VIA_WORD_COLUMN_LEFT,
                               .right_word = VIA_WORD_COLUMN_RIGHT};

    run_rounds(team, load, &row);
    run_rounds(team, load, &all);
}

/* Before round r a leader has the blocks of the 2^r hosts that end with its own. */
static void disseminate(const struct viaduct_shmem_team *team, const struct via_load *load)
{
    const struct via_hosts *hosts = &team->hosts;
    unsigned count = hosts->count;

    for (unsigned round = 0; 1u << round < count; round++) {
        unsigned further = VIA_MUTANT(SHMEM_WRONG_MEMBER) ? 1 : 1u << round;
        unsigned blocks = via_min(1u << round, count - (1u << round));
        int to = via_hosts_leader(hosts, further);
        pass_blocks(team, load, (hosts->mine + count - (blocks - 1)) % count, blocks, to);
        via_put_word(via_hosts_word(team, to, VIA_WORD_ROUND + round), team->epoch,
                     via_team_pe(team, to));
        via_hosts_await(team, VIA_WORD_ROUND + round, team->epoch);
    }
}

/* Equal at every leader. */
static size_t block_bytes(const struct via_load *load, const struct via_hosts *hosts)
{
    if (!load)
        return 0;
    return load->offs ? load->offs[hosts->count] / hosts->count
                      : load->stride * (load->is_by_host ? 1 : hosts->shape.locals_max);
}

static unsigned passed_by(struct via_hosts *hosts, size_t bytes)
{
    if (hosts->passed_by == 0 || hosts->passed_bytes != bytes) {
        struct via_algorithm_case call = hosts->shape;
        call.bytes = bytes;
        hosts->passed_bytes = bytes;
        hosts->passed_by =
            1 + via_algorithm_choose(VIA_COLLECTIVE_HOSTS, &call, via_world.job->algorithms);
    }
    return hosts->passed_by - 1;
}

void via_hosts_pass(struct viaduct_shmem_team *team, const struct via_load *load)
{
    struct via_hosts *hosts = &team->hosts;

    if (hosts->count == 1)
        return;
    if (!load && is_world(team) && via_world.job->barrier == VIA_JOB_BARRIER_DOORBELLS) {
        via_barrier_by_doorbells();
        return;
    }
    switch (passed_by(hosts, block_bytes(load, hosts))) {
    case VIA_HOSTS_RING:
        go_round_ring(team, load);
        return;
    case VIA_HOSTS_TORUS:
        go_round_torus(team, load);
        return;
    default:
        disseminate(team, load);
    }
}
