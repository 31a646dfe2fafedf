/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A ring of three hosts on register models of a PEX 87xx, with messages under way in both
 * directions of each link, while cables are pulled, hosts reset their side of the chip, PCI
 * functions disappear and interrupts get lost. No message may be lost, doubled or reordered, and
 * all flows continue after each fault.
 *
 * VIADUCT_PEX_CUTS and VIADUCT_PEX_RESETS are the numbers of cuts and resets (6 and 3; make
 * cuts-pex uses 100 and 20), VIADUCT_PEX_SEED is the seed from which the test draws them (1).
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/types.h"
#include "host/rundir.h"
#include "model/pex/pex.h"
#include "tests/system/host_lab.h"

#define HOSTS 3u
#define ENDPOINT 5u
#define WORDS 48u
#define PROGRESS 10u /* messages of each flow after a fault */
#define PAUSE_US 200u
#define PATIENCE_NS (60 * VIA_SEC_NS)

struct message {
    uint64_t number; /* from 1 on */
    uint64_t last;   /* it ends the flow */
    uint64_t filling[WORDS];
};

/* The messages from one host to each of its neighbours. */
struct flow {
    struct via_attach *attach;
    unsigned from, to;
    pthread_t thread;
    int rc;
    _Atomic uint64_t sent, received;
};

struct ring {
    struct host_lab lab;
    struct via_pex *models[HOSTS]; /* of the link from host i to the next */
    struct flow flows[2 * HOSTS];
    struct via_attach *receivers[HOSTS];
    pthread_t receiver_threads[HOSTS];

    _Atomic bool stop;
};

static struct ring ring;

static unsigned number_of(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* --- traffic --- */

static void fill(struct message *message, uint64_t number)
{
    message->number = number;
    for (unsigned i = 0; i < WORDS; i++) {
        message->filling[i] = number * 31 + i;
    }
}

static void *send_messages(void *argument)
{
    struct flow *flow = argument;
    struct message message = {0};
    while (flow->rc == 0 && !atomic_load(&ring.stop)) {
        fill(&message, atomic_load(&flow->sent) + 1);
        flow->rc = via_message_send(flow->attach, flow->to, ENDPOINT, flow->from, &message,
                                    sizeof(message));
        atomic_fetch_add(&flow->sent, flow->rc == 0);
        struct timespec pause = {.tv_nsec = PAUSE_US * VIA_USEC_NS};
        nanosleep(&pause, NULL);
    }
    fill(&message, atomic_load(&flow->sent) + 1);
    message.last = 1;
    flow->rc = flow->rc != 0 ? flow->rc
                             : via_message_send(flow->attach, flow->to, ENDPOINT, flow->from,
                                                &message, sizeof(message));
    return NULL;
}

static struct flow *flow_of(unsigned from, unsigned to)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ring.flows); i++) {
        if (ring.flows[i].from == from && ring.flows[i].to == to) {
            return &ring.flows[i];
        }
    }
    return NULL;
}

static bool is_right(const struct message *message, uint64_t number)
{
    struct message expected = {.last = message->last};
    fill(&expected, number);
    return memcmp(&expected, message, sizeof(expected)) == 0;
}

/* Returns the error as a text; NULL if all messages arrived once and in order. */
static void *receive_messages(void *argument)
{
    unsigned host = (unsigned)(uintptr_t)argument;
    static char wrong[HOSTS][128];
    for (unsigned ended = 0; ended < 2;) {
        struct message message;
        struct via_message_info info;
        int bytes = via_message_receive(ring.receivers[host], &message, sizeof(message),
                                        (int)(PATIENCE_NS / VIA_MSEC_NS), &info);
        struct flow *flow = bytes > 0 ? flow_of(info.source_host, host) : NULL;
        if (flow == NULL || bytes != sizeof(message) ||
            !is_right(&message, atomic_load(&flow->received) + 1)) {
            snprintf(wrong[host], sizeof(wrong[host]),
                     "host %u: receive: %d, number %llu after %llu", host, bytes,
                     bytes > 0 ? (unsigned long long)message.number : 0,
                     flow != NULL ? (unsigned long long)atomic_load(&flow->received) : 0);
            return wrong[host];
        }
        ended += message.last != 0;
        atomic_fetch_add(&flow->received, message.last == 0);
    }
    return NULL;
}

/* --- hosts --- */

static struct via_pex *model_of(unsigned a, unsigned b)
{
    struct via_rundir_path path;
    struct via_error err = {0};
    assert_int_equal(via_rundir_link_path(ring.lab.rundir, a, b, 0, &path, &err), 0);
    struct via_pex *model = via_pex_find(path.text);
    assert_non_null(model);
    return model;
}

static void start(void)
{
    host_lab_init(&ring.lab, HOSTS, true, false);
    ring.lab.model = ",window=1MiB";
    host_lab_start_all(&ring.lab);
    for (unsigned host = 0; host < HOSTS; host++) {
        ring.models[host] = model_of(host, (host + 1) % HOSTS);
        ring.receivers[host] = host_lab_attach(&ring.lab, host);
        assert_int_equal(via_endpoint_open(ring.receivers[host], ENDPOINT), 0);
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ring.flows); i++) {
        struct flow *flow = &ring.flows[i];
        flow->from = i / 2;
        flow->to = (i / 2 + 1 + i % 2) % HOSTS;
        flow->attach = host_lab_attach(&ring.lab, flow->from);
    }
    for (unsigned host = 0; host < HOSTS; host++) {
        assert_int_equal(pthread_create(&ring.receiver_threads[host], NULL, receive_messages,
                                        (void *)(uintptr_t)host),
                         0);
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ring.flows); i++) {
        assert_int_equal(pthread_create(&ring.flows[i].thread, NULL, send_messages, &ring.flows[i]),
                         0);
    }
}

static void end(void)
{
    atomic_store(&ring.stop, true);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ring.flows); i++) {
        pthread_join(ring.flows[i].thread, NULL);
        assert_int_equal(ring.flows[i].rc, 0);
    }
    for (unsigned host = 0; host < HOSTS; host++) {
        void *wrong;
        pthread_join(ring.receiver_threads[host], &wrong);
        if (wrong != NULL) {
            fail_msg("%s", (const char *)wrong);
        }
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ring.flows); i++) {
        assert_int_equal(ring.flows[i].received, ring.flows[i].sent);
        via_attach_close(ring.flows[i].attach);
    }
    for (unsigned host = 0; host < HOSTS; host++) {
        via_attach_close(ring.receivers[host]);
    }
    host_lab_fini(&ring.lab);
}

/* --- faults --- */

static bool all_links_are_up(void *ctx)
{
    (void)ctx;
    for (unsigned host = 0; host < HOSTS; host++) {
        json_t *status = host_lab_status(&ring.lab, host);
        json_t *links = json_object_get(status, "links");
        bool up = json_array_size(links) == 2;
        for (size_t i = 0; i < json_array_size(links); i++) {
            const char *state =
                json_string_value(json_object_get(json_array_get(links, i), "state"));
            up &= state != NULL && strcmp(state, "up") == 0;
        }
        json_decref(status);
        if (!up) {
            return false;
        }
    }
    return true;
}

static bool all_have_moved(void *ctx)
{
    const uint64_t *before = ctx;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ring.flows); i++) {
        if (atomic_load(&ring.flows[i].received) < before[i] + PROGRESS) {
            return false;
        }
    }
    return true;
}

static _Noreturn void fail_hung(const uint64_t *before)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ring.flows); i++) {
        const struct flow *flow = &ring.flows[i];
        printf("flow %u to %u: sent %llu, received %llu, then %llu, rc %d\n", flow->from, flow->to,
               (unsigned long long)atomic_load(&flow->sent), (unsigned long long)before[i],
               (unsigned long long)atomic_load(&flow->received), flow->rc);
    }
    for (unsigned host = 0; host < HOSTS; host++) {
        json_t *status = host_lab_status(&ring.lab, host);
        json_dumpf(status, stdout, JSON_INDENT(1));
        json_decref(status);
    }
    fflush(stdout);
    fail_msg("messages do not go on");
    abort();
}

/* The links come up again, and each flow continues. */
static void recover(void)
{
    uint64_t before[VIA_ARRAY_COUNT(ring.flows)];
    host_lab_wait(all_links_are_up, NULL, "all links are up again");
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ring.flows); i++) {
        before[i] = atomic_load(&ring.flows[i].received);
    }
    uint64_t until_ns = host_lab_now_ns() + PATIENCE_NS;
    while (!all_have_moved(before)) {
        if (host_lab_now_ns() > until_ns) {
            fail_hung(before);
        }
        poll(NULL, 0, 1);
    }
}

static void cut(struct via_rng *rng)
{
    struct via_pex *model = ring.models[via_rng_below(rng, HOSTS)];
    enum via_pex_side side = via_rng_chance(rng, 1, 2) ? VIA_PEX_VIRTUAL : VIA_PEX_LINK;
    int ms = (int)via_rng_below(rng, via_rng_chance(rng, 1, 3) ? 200 : 3);
    if (via_rng_chance(rng, 1, 4)) {
        via_pex_lose_interrupts(model, side, 1 + (unsigned)via_rng_below(rng, 3));
    }
    if (via_rng_chance(rng, 1, 5)) {
        via_pex_remove(model, side, true);
        poll(NULL, 0, ms);
        via_pex_remove(model, side, false);
    } else {
        via_pex_set_link(model, false);
        poll(NULL, 0, ms);
        via_pex_set_link(model, true);
    }
}

static void reset(struct via_rng *rng)
{
    via_pex_reset_host(ring.models[via_rng_below(rng, HOSTS)],
                       via_rng_chance(rng, 1, 2) ? VIA_PEX_VIRTUAL : VIA_PEX_LINK);
}

static void nothing_is_lost(void **state)
{
    struct via_rng rng;
    unsigned cuts = number_of("VIADUCT_PEX_CUTS", 6), resets = number_of("VIADUCT_PEX_RESETS", 3);
    unsigned seed = number_of("VIADUCT_PEX_SEED", 1);
    (void)state;
    via_rng_init(&rng, seed);
    start();
    recover();
    for (unsigned left = cuts + resets; left != 0; left--) {
        if (via_rng_below(&rng, left) < resets) {
            reset(&rng);
            resets--;
        } else {
            cut(&rng);
        }
        recover();
    }
    uint64_t received = 0;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ring.flows); i++) {
        received += atomic_load(&ring.flows[i].received);
    }
    end();
    printf("seed %u: %u cuts, %u resets, more than %llu messages, none lost\n", seed, cuts,
           number_of("VIADUCT_PEX_RESETS", 3), (unsigned long long)received);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
