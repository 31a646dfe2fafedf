/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Bodies by DMA, with an engine that completes each DMA when and how the test demands. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/types.h"
#include "fabric.h"

#define DMA_BYTES_MIN 256u
#define DMA_NS_MAX (10 * VIA_MSEC_NS)
#define BODY_BYTES 1000u
#define DMAS_MAX 16u

struct dma {
    unsigned queue;
    uint64_t off, cookie;
    const unsigned char *src;
    size_t len;
    bool ended;
    int result;
};

/* The engine of host 0's port. */
struct engine {
    struct via_port_ops ops; /* operations of the fabric's port, with the engine's */
    struct fabric_port *port;
    struct dma dmas[DMAS_MAX]; /* in the order they were started, until the node takes them */
    unsigned count;
    unsigned aborts, starts;
    int refuses; /* what starts return; 0: they do */
};
static struct engine engine;

static int engine_dma(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len, uint64_t cookie)
{
    assert_ptr_equal(port, &engine.port->port);
    engine.starts++;
    if (engine.refuses != 0) {
        return engine.refuses;
    }
    assert_true(engine.count < DMAS_MAX && off + len <= port->caps.window_bytes);
    engine.dmas[engine.count++] =
        (struct dma){.queue = queue, .off = off, .src = src, .len = len, .cookie = cookie};
    return 0;
}

static unsigned engine_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                            int *ret_results, unsigned max)
{
    unsigned count = 0;
    assert_ptr_equal(port, &engine.port->port);
    for (unsigned i = 0; i < engine.count && count < max;) {
        struct dma *dma = &engine.dmas[i];
        if (!dma->ended || dma->queue != queue) {
            i++;
            continue;
        }
        ret_cookies[count] = dma->cookie;
        ret_results[count++] = dma->result;
        memmove(dma, dma + 1, (--engine.count - i) * sizeof(*dma));
    }
    return count;
}

static void engine_abort(struct via_port *port, unsigned queue)
{
    assert_ptr_equal(port, &engine.port->port);
    assert_int_equal(queue, 0);
    engine.aborts++;
}

/* Ends a DMA: all its bytes are written when the result is 0, otherwise half of them. */
static void finish(unsigned index, int result)
{
    struct dma *dma = &engine.dmas[index];
    assert_true(index < engine.count && !dma->ended);
    memcpy(engine.port->peer->port.inbox + dma->off, dma->src,
           result == 0 ? dma->len : dma->len / 2);
    dma->ended = true;
    dma->result = result;
    engine.port->events |= VIA_PORT_EVENT_DMA_DONE(dma->queue);
    engine.port->fabric->hosts[engine.port->host].woken[dma->queue] = true;
}

static unsigned char body[BODY_BYTES + DMAS_MAX];

static struct fabric *start_with(uint32_t depth, uint32_t buffers)
{
    struct fabric *fabric = fabric_new(false);
    fabric->config.dma_buffers = buffers;
    fabric->config.dma_ns_max = DMA_NS_MAX;
    fabric->config.retry_ns_min = fabric->config.retry_ns_max = VIA_SEC_NS;
    int a = fabric_add_host(fabric);
    int b = fabric_add_host(fabric);
    fabric->hosts[a].ports[0].dma_bytes_min = DMA_BYTES_MIN;
    fabric->hosts[b].ports[0].dma_bytes_min = DMA_BYTES_MIN;
    struct fabric_link *link = fabric_connect(fabric, a, b);
    engine = (struct engine){.ops = *link->ports[0].port.ops, .port = &link->ports[0]};
    engine.ops.dma = engine_dma;
    engine.ops.dma_take = engine_take;
    engine.ops.dma_abort = engine_abort;
    link->ports[0].port.ops = &engine.ops;
    link->ports[0].port.caps.dma_depth = depth;
    fabric_start(fabric, a);
    fabric_start(fabric, b);
    fabric_settle(fabric);
    for (unsigned i = 0; i < sizeof(body); i++) {
        body[i] = (unsigned char)(i * 29 + (i >> 8));
    }
    return fabric;
}

static struct fabric *start(void)
{
    return start_with(8, 8);
}

static void send(struct fabric *fabric, uint32_t number, uint32_t bytes)
{
    const struct via_op op = {
        .kind = VIA_OP_MESSAGE,
        .destination = 1,
        .source_endpoint = number,
        .source = body + number,
        .bytes = bytes,
        .cookie = number,
    };
    fabric_submit(fabric, 0, &op);
    fabric_run(fabric, VIA_MSEC_NS);
}

/* Messages 0 to count - 1 have arrived, once, in order, complete. */
static void expect_messages(struct fabric *fabric, unsigned count, const uint32_t *bytes)
{
    fabric_run(fabric, VIA_MSEC_NS);
    assert_int_equal(fabric->hosts[1].deliveries_count, count);
    for (unsigned i = 0; i < count; i++) {
        const struct fabric_delivery *delivery = &fabric->hosts[1].deliveries[i];
        uint32_t length = bytes != NULL ? bytes[i] : BODY_BYTES;
        assert_int_equal(delivery->source_endpoint, i);
        assert_int_equal(delivery->bytes, length);
        assert_true(delivery->hash == via_hash64(VIA_HASH64_INIT, body + i, length));
    }
}

static struct via_link_status status_of(const struct fabric *fabric)
{
    return fabric_link_status(fabric, 0, 0);
}

/* --- without faults --------------------------------------------------------------------------- */

static void a_record_is_seen_when_its_dma_is_done_and_so_are_those_behind_it(void **state)
{
    const uint32_t bytes[] = {BODY_BYTES, 100, 300, DMA_BYTES_MIN - 1};
    (void)state;
    struct fabric *fabric = start();
    for (unsigned i = 0; i < 4; i++) {
        send(fabric, i, bytes[i]);
    }
    assert_int_equal(engine.count, 2); /* the others are too small */
    expect_messages(fabric, 0, NULL);
    finish(1, 0); /* the later one is first */
    expect_messages(fabric, 0, NULL);
    finish(0, 0);
    expect_messages(fabric, 4, bytes);
    struct via_link_status status = status_of(fabric);
    assert_true(status.dma_frames == 2 && status.dma_bytes == BODY_BYTES + 300);
    assert_true(status.dma_busy == 0 && status.dma_fallbacks == 0 && status.dma_hangs == 0);
    assert_int_equal(engine.aborts, 0);
    send(fabric, 4, 8); /* nothing waits: at once */
    assert_int_equal(fabric->hosts[1].deliveries_count, 5);
    fabric_free(fabric);
}

static void a_full_engine_is_not_waited_for(void **state)
{
    (void)state;
    const struct {
        uint32_t depth, buffers;
    } sizes[] = {{1, 8}, {8, 1}, {1, 1}};
    for (unsigned s = 0; s < VIA_ARRAY_COUNT(sizes); s++) {
        struct fabric *fabric = start_with(sizes[s].depth, sizes[s].buffers);
        for (unsigned i = 0; i < 3; i++) {
            send(fabric, i, BODY_BYTES);
        }
        assert_int_equal(engine.count, 1);
        assert_true(status_of(fabric).dma_busy == 2);
        expect_messages(fabric, 0, NULL); /* but they are delivered after the first */
        finish(0, 0);
        expect_messages(fabric, 3, NULL);
        send(fabric, 3, BODY_BYTES);
        finish(0, 0);
        expect_messages(fabric, 4, NULL);
        fabric_free(fabric);
    }
}

static void a_cancelled_source_is_not_read_any_more(void **state)
{
    (void)state;
    struct fabric *fabric = start();
    unsigned char *source = malloc(BODY_BYTES);
    memcpy(source, body, BODY_BYTES);
    const struct via_op op = {.kind = VIA_OP_MESSAGE,
                              .destination = 1,
                              .source = source,
                              .bytes = BODY_BYTES,
                              .cookie = 77};
    fabric_submit(fabric, 0, &op);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_int_equal(engine.count, 1);
    via_node_cancel(fabric_node(fabric, 0), 0, UINT64_MAX, 77);
    assert_int_equal(fabric_completion(fabric, 0, 77)->status, -ECANCELED);
    free(source); /* ASan reports a later access */
    finish(0, 0);
    expect_messages(fabric, 1, NULL); /* it was under way */
    fabric_free(fabric);
}

/* --- with faults ------------------------------------------------------------------------------ */

static void a_body_whose_dma_fails_goes_by_pio(void **state)
{
    (void)state;
    struct fabric *fabric = start();
    send(fabric, 0, BODY_BYTES);
    send(fabric, 1, BODY_BYTES);
    finish(0, -EIO);
    expect_messages(fabric, 1, NULL);
    finish(0, 0);
    expect_messages(fabric, 2, NULL);
    assert_true(status_of(fabric).dma_fallbacks == 1 && status_of(fabric).dma_frames == 1);
    assert_int_equal(status_of(fabric).downs_count, 0);
    fabric_free(fabric);
}

static void an_engine_that_hangs_is_aborted_and_left_alone_for_a_while(void **state)
{
    (void)state;
    struct fabric *fabric = start();
    send(fabric, 0, BODY_BYTES);
    send(fabric, 1, 100);
    fabric_run(fabric, DMA_NS_MAX - 5 * VIA_MSEC_NS);
    assert_int_equal(engine.aborts, 0);
    fabric_run(fabric, 5 * VIA_MSEC_NS);
    assert_int_equal(engine.aborts, 1);
    fabric_run(fabric, DMA_NS_MAX / 2);
    assert_int_equal(fabric->hosts[1].deliveries_count, 0); /* the engine may still write there */
    finish(0, -ECANCELED);
    expect_messages(fabric, 2, (const uint32_t[]){BODY_BYTES, 100});
    assert_true(status_of(fabric).dma_hangs == 1 && status_of(fabric).dma_fallbacks == 1);

    send(fabric, 2, BODY_BYTES);
    assert_int_equal(engine.count, 0);
    assert_int_equal(fabric->hosts[1].deliveries_count, 3);
    fabric_run(fabric, 50 * DMA_NS_MAX);
    send(fabric, 3, BODY_BYTES);
    assert_int_equal(engine.count, 1);
    finish(0, 0);
    assert_int_equal(status_of(fabric).downs_count, 0);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_int_equal(fabric->hosts[1].deliveries_count, 4);
    fabric_free(fabric);
}

/* If the port knows that the engine's writes do not reach the peer, the node copies a body for the
 * engine once, not each time. */
static void an_engine_of_no_use_is_left_alone_for_a_while(void **state)
{
    (void)state;
    struct fabric *fabric = start();
    static const uint32_t bytes[] = {BODY_BYTES, BODY_BYTES, BODY_BYTES, BODY_BYTES};
    engine.refuses = -EIO; /* this time */
    send(fabric, 0, BODY_BYTES);
    engine.refuses = -ENOTSUP;
    send(fabric, 1, BODY_BYTES);
    send(fabric, 2, BODY_BYTES);
    expect_messages(fabric, 3, bytes);
    assert_int_equal(engine.starts, 2);
    fabric_run(fabric, VIA_SEC_NS);
    engine.refuses = 0;
    send(fabric, 3, BODY_BYTES);
    assert_int_equal(engine.starts, 3);
    finish(0, 0);
    expect_messages(fabric, 4, bytes);
    struct via_link_status status = status_of(fabric);
    assert_true(status.dma_frames == 1 && status.dma_fallbacks == 2 && status.dma_busy == 1);
    fabric_free(fabric);
}

static void an_engine_that_can_not_be_stopped_ends_the_link(void **state)
{
    (void)state;
    struct fabric *fabric = start();
    send(fabric, 0, BODY_BYTES);
    fabric_run(fabric, 10 * DMA_NS_MAX);
    assert_true(engine.aborts > 1);
    assert_int_equal(status_of(fabric).downs_count, 1);
    /* Nor does the link begin a new epoch. */
    assert_int_equal(status_of(fabric).ups_count, 1);
    finish(0, -ECANCELED);
    fabric_settle(fabric);
    fabric_run(fabric, 2 * VIA_SEC_NS);
    expect_messages(fabric, 1, NULL);
    assert_int_equal(status_of(fabric).errors, 0);
    fabric_free(fabric);
}

static void a_link_starts_again_when_its_engine_has_ended(void **state)
{
    (void)state;
    struct fabric *fabric = start();
    send(fabric, 0, BODY_BYTES);
    fabric_cut(&fabric->links[0]);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_int_equal(engine.aborts, 1);
    fabric_mend(&fabric->links[0]);
    fabric_run(fabric, 200 * VIA_MSEC_NS);
    assert_int_equal(status_of(fabric).ups_count, 1);
    finish(0, -ENOLINK);
    fabric_settle(fabric);
    assert_int_equal(status_of(fabric).ups_count, 2);
    /* The lost frame is sent again, without the engine that was slow to stop. */
    expect_messages(fabric, 1, NULL);
    assert_int_equal(engine.count, 0);
    fabric_free(fabric);
}

/* No host has noticed that the link was down, but bodies stored meanwhile may be lost: a record
 * must not be published. */
static void a_link_that_was_down_during_a_dma_starts_again(void **state)
{
    (void)state;
    struct fabric *fabric = start();
    send(fabric, 0, BODY_BYTES);
    fabric->links[0].up = false;
    send(fabric, 1, 100); /* this body vanishes */
    fabric->links[0].up = true;
    finish(0, -ENOLINK);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_int_equal(fabric->hosts[1].deliveries_count, 0);
    for (unsigned i = 0; i < 500; i++) { /* the repeated frames */
        fabric_run(fabric, VIA_MSEC_NS);
        if (engine.count != 0) {
            finish(0, 0);
        }
    }
    assert_int_equal(status_of(fabric).downs_count, 1);
    assert_int_equal(status_of(fabric).ups_count, 2);
    expect_messages(fabric, 2, (const uint32_t[]){BODY_BYTES, 100});
    fabric_free(fabric);
}

static void a_cookie_of_nothing_is_not_believed(void **state)
{
    (void)state;
    struct fabric *fabric = start();
    send(fabric, 0, BODY_BYTES);
    struct dma right = engine.dmas[0];
    const uint64_t wrong[] = {0, right.cookie + 1, right.cookie + (1u << 16), UINT64_MAX};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        engine.dmas[0].cookie = wrong[i];
        finish(0, 0);
        fabric_run(fabric, VIA_MSEC_NS);
        assert_int_equal(engine.count, 0);
        engine.dmas[engine.count++] = right;
    }
    expect_messages(fabric, 0, NULL);
    finish(0, 0);
    expect_messages(fabric, 1, NULL);
    assert_true(status_of(fabric).dma_frames == 1);
    fabric_free(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_seen_when_its_dma_is_done_and_so_are_those_behind_it),
        cmocka_unit_test(a_full_engine_is_not_waited_for),
        cmocka_unit_test(a_cancelled_source_is_not_read_any_more),
        cmocka_unit_test(a_body_whose_dma_fails_goes_by_pio),
        cmocka_unit_test(an_engine_that_hangs_is_aborted_and_left_alone_for_a_while),
        cmocka_unit_test(an_engine_of_no_use_is_left_alone_for_a_while),
        cmocka_unit_test(an_engine_that_can_not_be_stopped_ends_the_link),
        cmocka_unit_test(a_link_starts_again_when_its_engine_has_ended),
        cmocka_unit_test(a_link_that_was_down_during_a_dma_starts_again),
        cmocka_unit_test(a_cookie_of_nothing_is_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
