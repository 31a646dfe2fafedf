/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Checks that the suite finds planted bugs: for a port with one bug, planted over the emulated
 * port, the test that covers the bug must fail. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform_pair.h"
#include "port_conform.h"

enum flaw {
    NO_FLAW,
    LAST_WORD_FIRST,
    WORD_IN_HALVES,
    FLAG_BEFORE_DATA,
    COMMITS_SWAPPED,
    COMMITS_ANYTHING,
    SOURCE_KEPT,
    BOUNDS_CLIPPED,
    BOUNDS_NOT_COUNTED,
    FENCE_LIES,
    FENCE_OUTLIVES,
    FENCES_SHARED,
    MASK_IGNORED,
    EVENT_TWICE,
    DOORBELL_LOST,
    DOWN_READS_ZERO,
    SCRATCHPAD_SURVIVES,
    EDGE_LOST,
    STORES_WAIT_FOR_UP,
    RING_WHEN_DOWN,
    DMA_PRETENDED,
    DMA_EARLY, /* the following bugs need a port with an engine */
    DMA_TWICE,
    DMA_FOR_EVER,
    DMA_ANYWHERE,
    FENCE_HOLLOW, /* the following bugs need a port whose writes arrive late, in any order */
    SAYS_COHERENT,
    SAYS_ORDERED,
};

struct flawed {
    struct via_port base;
    struct via_port *inner;
    enum flaw flaw;
    struct { /* a body that comes late */
        const void *src;
        unsigned char bytes[CONFORM_DATA_BYTES];
        uint64_t off;
        size_t len;
    } late;
    uint64_t word, word_off;
    bool word_kept;
    uint64_t events_again;
    uint64_t cookie;
    unsigned rings;
    uint32_t scratchpads[VIA_PORT_SCRATCHPADS];
};

static enum flaw planted;

static struct flawed *flawed_of(struct via_port *port)
{
    return via_container_of(port, struct flawed, base);
}

static void put_late(struct flawed *flawed)
{
    if (flawed->late.len != 0) {
        const void *src = flawed->late.src ? flawed->late.src : flawed->late.bytes;
        flawed->inner->ops->body(flawed->inner, 0, flawed->late.off, src, flawed->late.len);
        flawed->late.len = 0;
    }
}

static void keep(struct flawed *flawed, uint64_t off, const void *src, size_t len)
{
    memcpy(flawed->late.bytes, src, len);
    flawed->late.src = NULL;
    flawed->late.off = off;
    flawed->late.len = len;
}

static void flawed_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                        size_t len)
{
    struct flawed *flawed = flawed_of(port);
    struct via_port *inner = flawed->inner;
    bool in_bounds = off <= port->caps.window_bytes && len <= port->caps.window_bytes - off;

    if (flawed->flaw == FLAG_BEFORE_DATA && in_bounds) {
        put_late(flawed);
        keep(flawed, off, src, len);
    } else if (flawed->flaw == SOURCE_KEPT && in_bounds) {
        put_late(flawed);
        flawed->late.src = src;
        flawed->late.off = off;
        flawed->late.len = len;
    } else if (flawed->flaw == BOUNDS_CLIPPED && !in_bounds && off < port->caps.window_bytes) {
        inner->ops->body(inner, queue, off, src, port->caps.window_bytes - off);
        inner->ops->body(inner, queue, off, src, len); /* for the count */
    } else if (flawed->flaw == BOUNDS_NOT_COUNTED && !in_bounds) {
        return;
    } else if (flawed->flaw == STORES_WAIT_FOR_UP && !inner->ops->link_is_up(inner)) {
        keep(flawed, off, src, len);
    } else {
        inner->ops->body(inner, queue, off, src, len);
    }
}

/* The commits of words at two places change their order. */
static void swap_words(struct flawed *flawed, unsigned queue, uint64_t off, const void *src)
{
    struct via_port *inner = flawed->inner;
    if (!flawed->word_kept) {
        memcpy(&flawed->word, src, sizeof(flawed->word));
        flawed->word_off = off;
        flawed->word_kept = true;
        return;
    }
    inner->ops->commit(inner, queue, off, src, sizeof(flawed->word));
    sched_yield();
    inner->ops->commit(inner, queue, flawed->word_off, &flawed->word, sizeof(flawed->word));
    flawed->word_kept = false;
}

static void flawed_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                          size_t len)
{
    struct flawed *flawed = flawed_of(port);
    struct via_port *inner = flawed->inner;
    const unsigned char *from = src;

    if (flawed->flaw == LAST_WORD_FIRST && len == 64) {
        inner->ops->body(inner, queue, off + 56, from + 56, 8);
        sched_yield(); /* so that it has an effect on one CPU, too */
        inner->ops->body(inner, queue, off, from, 56);
    } else if (flawed->flaw == WORD_IN_HALVES && len == 8) {
        inner->ops->body(inner, queue, off, from, 4);
        sched_yield();
        inner->ops->body(inner, queue, off + 4, from + 4, 4);
    } else if (flawed->flaw == COMMITS_SWAPPED && len == 8) {
        swap_words(flawed, queue, off, src);
    } else if (flawed->flaw == COMMITS_ANYTHING) {
        inner->ops->body(inner, queue, off, src, len);
    } else {
        inner->ops->commit(inner, queue, off, src, len);
    }
}

static void flawed_flush(struct via_port *port, unsigned queue)
{
    struct flawed *flawed = flawed_of(port);
    if (flawed->flaw == SOURCE_KEPT) {
        put_late(flawed);
    }
    flawed->inner->ops->flush(flawed->inner, queue);
}

static int flawed_fence_start(struct via_port *port, unsigned queue)
{
    struct flawed *flawed = flawed_of(port);
    if (flawed->flaw == FLAG_BEFORE_DATA || flawed->flaw == SOURCE_KEPT) {
        put_late(flawed);
    }
    if (flawed->flaw == FENCES_SHARED) {
        queue = 0;
    }
    int rc = flawed->inner->ops->fence_start(flawed->inner, queue);
    return flawed->flaw == FENCE_LIES ? 0 : rc;
}

static int flawed_fence_poll(struct via_port *port, unsigned queue)
{
    struct flawed *flawed = flawed_of(port);
    if (flawed->flaw == FENCES_SHARED) {
        queue = 0;
    }
    if (flawed->flaw == FENCE_HOLLOW) {
        return 1;
    }
    int rc = flawed->inner->ops->fence_poll(flawed->inner, queue);
    return flawed->flaw == FENCE_OUTLIVES && rc == -ENOLINK ? 1 : rc;
}

static int flawed_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct flawed *flawed = flawed_of(port);
    if (flawed->flaw == DOORBELL_LOST && ++flawed->rings % 64 == 0) {
        return 0;
    }
    int rc = flawed->inner->ops->ring(flawed->inner, queue, bit);
    return flawed->flaw == RING_WHEN_DOWN && rc != 0 ? 0 : rc;
}

static uint64_t flawed_events(struct via_port *port, uint64_t mask)
{
    struct flawed *flawed = flawed_of(port);
    struct via_port *inner = flawed->inner;
    uint64_t events;
    switch (flawed->flaw) {
    case MASK_IGNORED:
        return inner->ops->events(inner, UINT64_MAX) & mask;
    case EVENT_TWICE:
        events = inner->ops->events(inner, mask) | (flawed->events_again & mask);
        flawed->events_again = events & ~flawed->events_again;
        return events;
    case EDGE_LOST:
        return inner->ops->events(inner, mask) & ~VIA_PORT_EVENT_LINK_DOWN;
    default:
        return inner->ops->events(inner, mask);
    }
}

static int flawed_dma(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len, uint64_t cookie)
{
    struct flawed *flawed = flawed_of(port);
    struct via_port *inner = flawed->inner;
    switch (flawed->flaw) {
    case DMA_PRETENDED:
        return 0;
    case DMA_FOR_EVER:
        return flawed->rings++ < port->caps.dma_depth ? 0 : -EAGAIN;
    case DMA_EARLY:
        put_late(flawed);
        keep(flawed, off, src, len);
        flawed->cookie = cookie;
        return 0;
    case DMA_ANYWHERE:
        return off > port->caps.window_bytes - len
                   ? 0
                   : inner->ops->dma(inner, queue, off, src, len, cookie);
    default:
        return inner->ops->dma(inner, queue, off, src, len, cookie);
    }
}

static unsigned flawed_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                                int *ret_results, unsigned max)
{
    struct flawed *flawed = flawed_of(port);
    struct via_port *inner = flawed->inner;
    if (flawed->cookie != 0) { /* the cookie once more, or before its DMA has ended */
        *ret_cookies = flawed->cookie;
        *ret_results = 0;
        flawed->cookie = 0;
        return 1;
    }
    unsigned count = inner->ops->dma_take(inner, queue, ret_cookies, ret_results, max);
    if (flawed->flaw == DMA_TWICE && count != 0) {
        flawed->cookie = ret_cookies[0];
    }
    return count;
}

static void flawed_dma_abort(struct via_port *port, unsigned queue)
{
    struct via_port *inner = flawed_of(port)->inner;
    inner->ops->dma_abort(inner, queue);
}

static bool flawed_link_is_up(struct via_port *port)
{
    struct flawed *flawed = flawed_of(port);
    bool up = flawed->inner->ops->link_is_up(flawed->inner);
    if (up && flawed->flaw == STORES_WAIT_FOR_UP) {
        put_late(flawed);
    }
    return up;
}

static uint32_t flawed_scratchpad_read(struct via_port *port, unsigned index)
{
    struct flawed *flawed = flawed_of(port);
    struct via_port *inner = flawed->inner;
    if (flawed->flaw == DOWN_READS_ZERO && !inner->ops->link_is_up(inner)) {
        return 0;
    }
    if (flawed->flaw == SCRATCHPAD_SURVIVES && inner->ops->link_is_up(inner) &&
        index / 4 == port->side && index < VIA_PORT_SCRATCHPADS) {
        return flawed->scratchpads[index];
    }
    return inner->ops->scratchpad_read(inner, index);
}

static void flawed_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct flawed *flawed = flawed_of(port);
    if (index < VIA_PORT_SCRATCHPADS && index / 4 == port->side) {
        flawed->scratchpads[index] = value;
    }
    flawed->inner->ops->scratchpad_write(flawed->inner, index, value);
}

static void flawed_close(struct via_port *port)
{
    struct flawed *flawed = flawed_of(port);
    flawed->inner->ops->close(flawed->inner);
    free(flawed);
}

static const struct via_port_ops flawed_ops = {
    .body = flawed_body,
    .commit = flawed_commit,
    .flush = flawed_flush,
    .fence_start = flawed_fence_start,
    .fence_poll = flawed_fence_poll,
    .ring = flawed_ring,
    .dma = flawed_dma,
    .dma_take = flawed_dma_take,
    .dma_abort = flawed_dma_abort,
    .events = flawed_events,
    .link_is_up = flawed_link_is_up,
    .scratchpad_read = flawed_scratchpad_read,
    .scratchpad_write = flawed_scratchpad_write,
    .close = flawed_close,
};

static int open_flawed(struct conform_end *end, const char *directory)
{
    const struct conform_kind *kind = planted >= FENCE_HOLLOW ? &conform_emu_pex
                                      : planted >= DMA_EARLY  ? &conform_emu_dma
                                                              : &conform_emu_indirect;
    int rc = kind->open(end, directory);
    if (rc != 0) {
        return rc;
    }
    struct flawed *flawed = calloc(1, sizeof(*flawed));
    flawed->base = *end->port;
    flawed->base.ops = &flawed_ops;
    flawed->base.caps.coherent |= planted == SAYS_COHERENT;
    flawed->base.caps.writes_ordered |= planted == SAYS_ORDERED;
    flawed->inner = end->port;
    flawed->flaw = planted;
    end->port = &flawed->base;
    return 0;
}

/* The number of failed tests among those whose name fits. */
static int run(enum flaw flaw, const char *filter)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct conform_kind kind = conform_emu_indirect;
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        kind.open = open_flawed;
        planted = flaw;
        conform_patience_ms = 2500;
        cmocka_set_test_filter(filter);
        _exit(conform_run(&kind, CONFORM_THREADS));
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void the_bug_is_found(void **state)
{
    static const struct {
        enum flaw flaw;
        const char *name;
        const char *test;
    } plants[] = {
        {LAST_WORD_FIRST, "last word first", "the_last_word_of_a_line_is_seen_last"},
        {WORD_IN_HALVES, "a word in halves", "eight_bytes_are_seen_whole"},
        {FLAG_BEFORE_DATA, "flag before data", "a_commit_is_seen_after_what_was_posted_before"},
        {COMMITS_SWAPPED, "commits swapped", "a_commit_is_seen_after_what_was_posted_before"},
        {COMMITS_ANYTHING, "any commit", "a_commit_is_a_word_or_a_line"},
        {SOURCE_KEPT, "source kept", "bodies_arrive_and_nothing_else_changes"},
        {BOUNDS_CLIPPED, "clipped at the bound", "a_write_out_of_bounds_is_dropped_and_counted"},
        {BOUNDS_NOT_COUNTED, "not counted", "a_write_out_of_bounds_is_dropped_and_counted"},
        {FENCE_LIES, "fence lies", "nothing_passes_a_link_that_is_down"},
        {FENCE_OUTLIVES, "fence outlives its link", "the_end_of_the_link_ends_a_fence"},
        {FENCES_SHARED, "fences shared", "each_queue_has_its_own_fence"},
        {FENCE_HOLLOW, "fence does not wait", "a_fence_proves_arrival"},
        {FENCE_HOLLOW, "fence does not push", "a_fence_brings_what_the_peer_flushed"},
        {SAYS_COHERENT, "says that it is coherent", "a_coherent_port_needs_no_flush"},
        {SAYS_ORDERED, "says that writes are ordered", "a_port_that_orders_writes*"},
        {MASK_IGNORED, "mask ignored", "events_outside_the_mask_stay"},
        {EVENT_TWICE, "event twice", "each_doorbell_is_its_own_event"},
        {DOORBELL_LOST, "doorbell lost", "a_doorbell_wakes_a_sleeping_thread"},
        {DOWN_READS_ZERO, "down reads zero", "scratchpads_are_all_ones_while_down*"},
        {SCRATCHPAD_SURVIVES, "scratchpads survive", "scratchpads_are_all_ones_while_down*"},
        {EDGE_LOST, "edge lost", "a_short_cut_is_an_edge_at_both_ends"},
        {STORES_WAIT_FOR_UP, "stores wait for up", "nothing_passes_a_link_that_is_down"},
        {RING_WHEN_DOWN, "ring when down", "nothing_passes_a_link_that_is_down"},
        {DMA_PRETENDED, "DMA pretended", "a_port_without_dma_reports_it"},
        {DMA_EARLY, "DMA done early", "dma_that_is_done_comes_before_later_commits"},
        {DMA_TWICE, "DMA done twice", "a_full_engine_reports_it"},
        {DMA_FOR_EVER, "DMA forever", "an_aborted_dma_returns_its_cookie"},
        {DMA_ANYWHERE, "DMA anywhere", "dma_out_of_bounds_is_refused"},
    };
    (void)state;
    assert_int_equal(run(NO_FLAW, "a_short_cut*"), 0); /* the wrapper itself is no bug */
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(plants); i++) {
        if (run(plants[i].flaw, plants[i].test) != 1) {
            fail_msg("planted: %s, and %s did not fail", plants[i].name, plants[i].test);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_bug_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
