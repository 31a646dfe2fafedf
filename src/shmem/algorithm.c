/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/algorithm.h"

#include <errno.h>
#include <string.h>

#include "base/types.h"

static uint64_t bytes_ns(uint64_t bytes, uint64_t picoseconds)
{
    return bytes * picoseconds / 1000;
}

static unsigned rounds_of(unsigned count)
{
    unsigned rounds = 0;

    while (rounds < 31 && 1u << rounds < count)
        rounds++;
    return rounds;
}

static uint64_t next_ns(const struct via_algorithm_case *call, uint64_t bytes)
{
    bool near = call->is_ring || call->is_mesh;

    return near ? call->costs->near_ns + bytes_ns(bytes, call->costs->near_ps)
                : call->costs->far_ns + bytes_ns(bytes, call->costs->far_ps);
}

static uint64_t any_ns(const struct via_algorithm_case *call, uint64_t bytes)
{
    return call->is_mesh ? call->costs->near_ns + bytes_ns(bytes, call->costs->near_ps)
                         : call->costs->far_ns + bytes_ns(bytes, call->costs->far_ps);
}

static uint64_t locals_ns(const struct via_algorithm_case *call)
{
    return (uint64_t)call->locals_max * call->costs->local_ns;
}

/* --- leaders of hosts ------------------------------------------------------------------------ */

static bool return_true(const struct via_algorithm_case *call)
{
    (void)call;
    return true;
}

static uint64_t hosts_ring_ns(const struct via_algorithm_case *call)
{
    return (uint64_t)(call->hosts / 2) * next_ns(call, 2 * call->bytes);
}

static uint64_t hosts_dissemination_ns(const struct via_algorithm_case *call)
{
    unsigned rounds = rounds_of(call->hosts);

    return rounds * any_ns(call, rounds > 0 ? (call->hosts - 1) * call->bytes / rounds : 0);
}

static bool is_torus(const struct via_algorithm_case *call)
{
    return !call->is_active_set && call->row > 0;
}

/* Rings of the rows; then rings of the columns, where each host forwards the blocks of its row. */
static uint64_t hosts_torus_ns(const struct via_algorithm_case *call)
{
    return (uint64_t)(call->row / 2) * next_ns(call, 2 * call->bytes) +
           (uint64_t)(call->hosts / call->row / 2) * next_ns(call, 2 * call->row * call->bytes);
}

/* All members meet; each host contributes `bytes` bytes. */
static uint64_t meet_ns(const struct via_algorithm_case *call, uint64_t bytes)
{
    struct via_algorithm_case hosts = *call;

    hosts.bytes = bytes;
    uint64_t ns = via_min(hosts_ring_ns(&hosts), hosts_dissemination_ns(&hosts));
    if (is_torus(call))
        ns = via_min(ns, hosts_torus_ns(&hosts));
    return 2 * locals_ns(call) + ns;
}

/* --- what several collectives have in common ------------------------------------------------- */

static bool is_exchangeable(const struct via_algorithm_case *call)
{
    return call->bytes > 0 && call->bytes <= call->exchange_max;
}

static uint64_t exchange_ns(const struct via_algorithm_case *call)
{
    return meet_ns(call, (uint64_t)call->bytes * call->locals_max) +
           bytes_ns(call->bytes * call->pes, call->costs->local_ps);
}

static bool has_leaders(const struct via_algorithm_case *call)
{
    return !call->is_active_set && call->hosts > 1;
}

/* A put to `count` members. */
static uint64_t puts_ns(const struct via_algorithm_case *call, uint64_t bytes)
{
    uint64_t here = call->locals_max - 1, elsewhere = call->pes - call->locals_max;
    uint64_t local_ns = here * (call->costs->local_ns + bytes_ns(bytes, call->costs->local_ps));

    return local_ns + elsewhere * any_ns(call, bytes);
}

/* --- broadcast ------------------------------------------------------------------------------- */

/* True on several hosts. On one host, puts and a barrier are as fast. */
static bool is_exchangeable_far(const struct via_algorithm_case *call)
{
    return call->hosts > 1 && is_exchangeable(call);
}

static uint64_t broadcast_direct_ns(const struct via_algorithm_case *call)
{
    return puts_ns(call, call->bytes) + meet_ns(call, 0);
}

static uint64_t broadcast_locals_ns(const struct via_algorithm_case *call)
{
    return (call->locals_max - 1) *
           (call->costs->local_ns + bytes_ns(call->bytes, call->costs->local_ps));
}

static uint64_t broadcast_tree_ns(const struct via_algorithm_case *call)
{
    return rounds_of(call->hosts) * any_ns(call, call->bytes) + broadcast_locals_ns(call) +
           meet_ns(call, 0);
}

/* The bytes travel in both directions round the ring, in pieces: after the first piece they arrive
 * at the bandwidth of two links. */
static uint64_t broadcast_chain_ns(const struct via_algorithm_case *call)
{
    uint64_t piece = via_min((uint64_t)call->bytes, (uint64_t)64 << 10);

    return call->hosts / 2 * next_ns(call, piece) +
           2 * (next_ns(call, call->bytes) - next_ns(call, 0)) + broadcast_locals_ns(call) +
           meet_ns(call, 0);
}

/* The first piece has a shorter path than in a ring, but a host sends four copies instead of
 * two. */
static uint64_t broadcast_torus_ns(const struct via_algorithm_case *call)
{
    uint64_t piece = via_min((uint64_t)call->bytes, (uint64_t)64 << 10);

    return (call->row / 2 + call->hosts / call->row / 2) * next_ns(call, piece) +
           4 * (next_ns(call, call->bytes) - next_ns(call, 0)) + broadcast_locals_ns(call) +
           meet_ns(call, 0);
}

/* --- collect and fcollect -------------------------------------------------------------------- */

static bool is_active_set(const struct via_algorithm_case *call)
{
    return call->is_active_set;
}

static bool is_team(const struct via_algorithm_case *call)
{
    return !call->is_active_set;
}

static uint64_t collect_chain_ns(const struct via_algorithm_case *call)
{
    return call->pes * any_ns(call, 0) + puts_ns(call, call->bytes);
}

static uint64_t fcollect_direct_ns(const struct via_algorithm_case *call)
{
    return puts_ns(call, call->bytes) + meet_ns(call, 0);
}

static uint64_t fcollect_leaders_ns(const struct via_algorithm_case *call)
{
    return meet_ns(call, call->bytes * call->locals_max) + locals_ns(call) +
           bytes_ns((uint64_t)call->bytes * call->pes * (call->locals_max - 1),
                    call->costs->local_ps);
}

/* --- alltoall -------------------------------------------------------------------------------- */

static uint64_t alltoall_ns(const struct via_algorithm_case *call)
{
    return puts_ns(call, call->bytes) + meet_ns(call, 0);
}

static struct via_algorithm_case of_all_pairs(const struct via_algorithm_case *call)
{
    struct via_algorithm_case all = *call;

    all.bytes = call->bytes * call->pes;
    return all;
}

static bool is_alltoall_exchangeable(const struct via_algorithm_case *call)
{
    struct via_algorithm_case all = of_all_pairs(call);

    return call->bytes <= call->exchange_max && is_exchangeable_far(&all);
}

static uint64_t alltoall_exchange_ns(const struct via_algorithm_case *call)
{
    struct via_algorithm_case all = of_all_pairs(call);

    return exchange_ns(&all);
}

/* --- reduce and scan ------------------------------------------------------------------------- */

static uint64_t combine_ns(const struct via_algorithm_case *call, uint64_t bytes, uint64_t parts)
{
    return bytes_ns(bytes * parts, call->costs->combine_ps);
}

static uint64_t reduce_exchange_ns(const struct via_algorithm_case *call)
{
    return exchange_ns(call) + combine_ns(call, call->bytes, call->pes);
}

/* Every PE reads its share of all sources, and puts the result to all. Reading from other hosts
 * takes a round trip. */
static uint64_t reduce_shares_ns(const struct via_algorithm_case *call)
{
    uint64_t share = call->bytes / call->pes + 1;

    return 2 * meet_ns(call, 0) + 3 * puts_ns(call, share) + combine_ns(call, share, call->pes);
}

static uint64_t pieces_of(const struct via_algorithm_case *call)
{
    return (call->bytes + call->partial_max - 1) / via_max(call->partial_max, (size_t)1);
}

/* Each piece costs an exchange among all members, so with many pieces every other algorithm is as
 * fast or faster. */
#define PIECES_MAX 32u

static bool has_partials(const struct via_algorithm_case *call)
{
    return !call->is_active_set && call->bytes > 0 && call->hosts > 1 &&
           call->partial_max >= call->element_bytes && pieces_of(call) <= PIECES_MAX;
}

static uint64_t reduce_leaders_ns(const struct via_algorithm_case *call)
{
    uint64_t pieces = pieces_of(call);

    return pieces * meet_ns(call, call->bytes / via_max(pieces, UINT64_C(1))) +
           combine_ns(call, call->bytes, call->locals_max + call->hosts);
}

/* 2 (count - 1) steps, each with a share of the bytes. */
static uint64_t ring_steps_ns(const struct via_algorithm_case *call, unsigned count, uint64_t bytes)
{
    return 2 * ((uint64_t)count - 1) * next_ns(call, bytes / count + 1);
}

/* The cost of the steps within each host, before and after those of the leaders. */
static uint64_t reduce_locals_ns(const struct via_algorithm_case *call)
{
    return combine_ns(call, call->bytes, call->locals_max) + 3 * locals_ns(call) +
           bytes_ns(call->bytes * (call->locals_max - 1), call->costs->local_ps);
}

static uint64_t reduce_ring_ns(const struct via_algorithm_case *call)
{
    return ring_steps_ns(call, call->hosts, call->bytes) + reduce_locals_ns(call);
}

/* The rows reduce all elements; the columns reduce the share of a row, which is copied before. */
static uint64_t reduce_torus_ns(const struct via_algorithm_case *call)
{
    uint64_t share = call->bytes / call->row + 1;

    return ring_steps_ns(call, call->row, call->bytes) +
           ring_steps_ns(call, call->hosts / call->row, share) +
           bytes_ns(share, call->costs->local_ps) + reduce_locals_ns(call);
}

/* Hops to the host `distance` numbers further. Without a switch, hosts on the way relay. */
static unsigned hops_to(const struct via_algorithm_case *call, unsigned distance)
{
    if (call->is_mesh)
        return 1;
    if (call->row == 0)
        return via_min(distance, call->hosts - distance);
    unsigned columns = distance % call->row, rows = distance / call->row;
    return via_min(columns, call->row - columns) + via_min(rows, call->hosts / call->row - rows);
}

/* A round of halving and doubling, with `bytes` bytes each way. */
static uint64_t halving_round_ns(const struct via_algorithm_case *call, unsigned distance,
                                 uint64_t bytes)
{
    unsigned hops = hops_to(call, distance);

    return 3 * (hops > 1 ? call->costs->far_ns + hops * call->costs->hop_ns : any_ns(call, 0)) +
           2 * hops * (any_ns(call, bytes) - any_ns(call, 0));
}

/* Hosts beyond a power of two send all of their bytes before the rounds, and receive all bytes
 * after them. */
static uint64_t reduce_halving_ns(const struct via_algorithm_case *call)
{
    unsigned power = 1u << (31 - __builtin_clz(via_max(call->hosts, 1u)));
    uint64_t bytes = call->bytes, cost_ns = 0;

    for (unsigned distance = power / 2; distance > 0; distance /= 2) {
        bytes /= 2;
        cost_ns += halving_round_ns(call, distance, bytes);
    }
    if (power < call->hosts)
        cost_ns += halving_round_ns(call, power, call->bytes);
    return cost_ns + reduce_locals_ns(call);
}

/* Member i reads the sources of all before it. */
static uint64_t scan_direct_ns(const struct via_algorithm_case *call)
{
    return 2 * meet_ns(call, 0) + 2 * puts_ns(call, call->bytes) +
           combine_ns(call, call->bytes, call->pes);
}

/* --- the table ------------------------------------------------------------------------------- */

#define BROADCAST VIA_COLLECTIVE_BROADCAST
#define COLLECT VIA_COLLECTIVE_COLLECT
#define FCOLLECT VIA_COLLECTIVE_FCOLLECT
#define REDUCE VIA_COLLECTIVE_REDUCE
#define SCAN VIA_COLLECTIVE_SCAN

const struct via_algorithm via_algorithms[VIA_ALGORITHMS] = {
    [VIA_HOSTS_RING] = {"ring", VIA_COLLECTIVE_HOSTS,
                        "from neighbour to neighbour, both ways round", return_true, hosts_ring_ns},
    [VIA_HOSTS_DISSEMINATION] = {"dissemination", VIA_COLLECTIVE_HOSTS,
                                 "in round r to the host 2^r further", return_true,
                                 hosts_dissemination_ns},
    [VIA_HOSTS_TORUS] = {"torus", VIA_COLLECTIVE_HOSTS, "round the rows, then round the columns",
                         is_torus, hosts_torus_ns},
    [VIA_BROADCAST_EXCHANGE] = {"exchange", BROADCAST, "with one meeting of all",
                                is_exchangeable_far, exchange_ns},
    [VIA_BROADCAST_DIRECT] = {"direct", BROADCAST, "the root puts to every member", return_true,
                              broadcast_direct_ns},
    [VIA_BROADCAST_TREE] = {"tree", BROADCAST, "a binomial tree of hosts", has_leaders,
                            broadcast_tree_ns},
    [VIA_BROADCAST_CHAIN] = {"chain", BROADCAST, "in pieces from host to host, both ways round",
                             has_leaders, broadcast_chain_ns},
    [VIA_BROADCAST_TORUS] = {"torus", BROADCAST,
                             "in pieces along the root's column, and from there along the rows",
                             is_torus, broadcast_torus_ns},
    [VIA_COLLECT_CHAIN] = {"chain", COLLECT, "each sends the next the offset of its part",
                           is_active_set, collect_chain_ns},
    [VIA_COLLECT_DIRECT] = {"direct", COLLECT, "each puts to every member", is_team,
                            fcollect_direct_ns},
    [VIA_COLLECT_LEADERS] = {"leaders", COLLECT, "leaders forward the parts of their hosts",
                             has_leaders, fcollect_leaders_ns},
    [VIA_FCOLLECT_EXCHANGE] = {"exchange", FCOLLECT, "with one meeting of all", is_exchangeable_far,
                               exchange_ns},
    [VIA_FCOLLECT_DIRECT] = {"direct", FCOLLECT, "each puts to every member", return_true,
                             fcollect_direct_ns},
    [VIA_FCOLLECT_LEADERS] = {"leaders", FCOLLECT, "leaders forward the parts of their hosts",
                              has_leaders, fcollect_leaders_ns},
    [VIA_ALLTOALL_DIRECT] = {"direct", VIA_COLLECTIVE_ALLTOALL, "each puts to every member",
                             return_true, alltoall_ns},
    [VIA_ALLTOALL_EXCHANGE] = {"exchange", VIA_COLLECTIVE_ALLTOALL, "all get all sources",
                               is_alltoall_exchangeable, alltoall_exchange_ns},
    [VIA_REDUCE_EXCHANGE] = {"exchange", REDUCE, "all get all sources, and compute in rank order",
                             is_exchangeable, reduce_exchange_ns},
    [VIA_REDUCE_SHARES] = {"shares", REDUCE,
                           "each computes a share, in rank order, and puts it to all", return_true,
                           reduce_shares_ns},
    [VIA_REDUCE_LEADERS] = {"leaders", REDUCE,
                            "within hosts, then leaders exchange the results of the hosts",
                            has_partials, reduce_leaders_ns},
    [VIA_REDUCE_RING] = {"ring", REDUCE,
                         "within hosts, then a ring of leaders: reduce-scatter, all-gather",
                         has_leaders, reduce_ring_ns},
    [VIA_REDUCE_TORUS] =
        {"torus", REDUCE,
         "within hosts, then rings of rows and columns: reduce-scatter, all-gather", is_torus,
         reduce_torus_ns},
    [VIA_REDUCE_HALVING] = {"halving", REDUCE,
                            "within hosts, then leaders 2^r apart: recursive halving, doubling",
                            has_leaders, reduce_halving_ns},
    [VIA_SCAN_EXCHANGE] = {"exchange", SCAN, "all get all sources", is_exchangeable,
                           reduce_exchange_ns},
    [VIA_SCAN_DIRECT] = {"direct", SCAN, "each reads the sources before its own", return_true,
                         scan_direct_ns},
    [VIA_SCAN_LEADERS] = {"leaders", SCAN,
                          "within hosts, then leaders exchange the results of the hosts",
                          has_partials, reduce_leaders_ns},
};

const char *via_collective_name(enum via_collective collective)
{
    static const char *const names[VIA_COLLECTIVES] = {
        "hosts", "broadcast", "collect", "fcollect", "alltoall", "reduce", "scan"};

    return names[collective];
}

/* --- choosing -------------------------------------------------------------------------------- */

#define FORCED_BITS 8u
_Static_assert(VIA_COLLECTIVES *FORCED_BITS <= 64 && VIA_ALGORITHMS < 1 << FORCED_BITS,
               "one word names an algorithm of each collective");

/* Returns 1 + the number of the forced algorithm, or 0 if none is forced. */
static unsigned forced_of(uint64_t forced, enum via_collective collective)
{
    return (unsigned)(forced >> collective * FORCED_BITS) & ((1u << FORCED_BITS) - 1);
}

enum via_algorithm_number via_algorithm_choose(enum via_collective collective,
                                               const struct via_algorithm_case *call,
                                               uint64_t forced)
{
    unsigned wanted = forced_of(forced, collective), best = VIA_ALGORITHMS;
    uint64_t best_ns = UINT64_MAX;

    if (wanted > 0 && wanted <= VIA_ALGORITHMS &&
        via_algorithms[wanted - 1].collective == collective &&
        via_algorithms[wanted - 1].applies(call))
        return (enum via_algorithm_number)(wanted - 1);
    for (unsigned i = 0; i < VIA_ALGORITHMS; i++) {
        const struct via_algorithm *algorithm = &via_algorithms[i];
        if (algorithm->collective != collective || !algorithm->applies(call))
            continue;
        uint64_t ns = algorithm->cost_ns(call);
        if (ns < best_ns) {
            best = i;
            best_ns = ns;
        }
    }
    return (enum via_algorithm_number)best;
}

static int find(const char *collective, size_t collective_bytes, const char *name,
                size_t name_bytes)
{
    for (int i = 0; i < VIA_ALGORITHMS; i++) {
        const char *of = via_collective_name(via_algorithms[i].collective);
        if (strlen(of) == collective_bytes && memcmp(of, collective, collective_bytes) == 0 &&
            strlen(via_algorithms[i].name) == name_bytes &&
            memcmp(via_algorithms[i].name, name, name_bytes) == 0)
            return i;
    }
    return -1;
}

int via_algorithms_parse(const char *text, uint64_t *ret_forced, struct via_error *err)
{
    uint64_t forced = 0;

    for (const char *at = text; *at != '\0';) {
        size_t bytes = strcspn(at, ",");
        const char *equals = memchr(at, '=', bytes);
        int number =
            equals ? find(at, (size_t)(equals - at), equals + 1, bytes - (size_t)(equals - at) - 1)
                   : -1;
        if (number < 0)
            return via_error_set(err, -EINVAL,
                                 "\"%.*s\" is not a COLLECTIVE=ALGORITHM that oshinfo --algorithms "
                                 "lists",
                                 (int)via_min(bytes, (size_t)60), at);
        unsigned shift = via_algorithms[number].collective * FORCED_BITS;
        forced &= ~(((UINT64_C(1) << FORCED_BITS) - 1) << shift);
        forced |= ((uint64_t)number + 1) << shift;
        at += bytes + (at[bytes] == ',');
    }
    *ret_forced = forced;
    return 0;
}
