/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A host with false announcements about others: sequence numbers near the end, sessions that no
 * host has, neighbours that do not exist. In the chain 0-1-2-3 host 0 is the liar. The links
 * between the other hosts stay up, and soon after a lie these hosts reach each other again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/types.h"
#include "core/link.h"
#include "fabric.h"
#include "hostile_peer.h"

#define HOSTS 4
#define FOREIGN_SESSION 0x51515151u
#define LAST_SEQUENCE (VIA_LINK_STATE_SEQUENCE_MAX - 1)

struct scene {
    struct fabric *fabric;
    struct hostile_peer peer; /* host 0's end of its link to host 1 */
};

/* Host 0 begins to lie. */
static void scene_begin(struct scene *s)
{
    fabric_settle(s->fabric);
    /* Host 1 does not notice that host 0 sends no heartbeats any more. */
    fabric_node(s->fabric, 1)->config.dead_ns = 1000 * VIA_SEC_NS;
    hostile_peer_become(&s->peer, s->fabric, 0);
}

static void scene_init(struct scene *s)
{
    memset(s, 0, sizeof(*s));
    s->fabric = fabric_new(true);
    fabric_chain(s->fabric, HOSTS);
    scene_begin(s);
}

/* Hosts 1, 2 and 3 have links to each other. Returns the link between hosts 1 and 2. */
static struct fabric_link *scene_init_triangle(struct scene *s)
{
    struct fabric_link *link;

    memset(s, 0, sizeof(*s));
    s->fabric = fabric_new(true);
    for (int host = 0; host < HOSTS; host++) {
        fabric_add_host(s->fabric);
    }
    fabric_connect(s->fabric, 0, 1);
    link = fabric_connect(s->fabric, 1, 2);
    fabric_connect(s->fabric, 1, 3);
    fabric_connect(s->fabric, 2, 3);
    for (int host = 0; host < HOSTS; host++) {
        fabric_start(s->fabric, host);
    }
    scene_begin(s);
    return link;
}

static void deliver(struct scene *s)
{
    struct via_pipe_record record;
    while (via_pipe_take(&s->peer.control.reader, &record) == 1) {
        via_pipe_release(&s->peer.control.reader, 1);
    }
}

static void run(struct scene *s, uint64_t ns)
{
    for (uint64_t past = 0; past < ns; past += VIA_MSEC_NS) {
        deliver(s);
        fabric_run(s->fabric, VIA_MSEC_NS);
    }
}

/* Announces host `about` with `session`, and with at most the given neighbour. */
static void lie(struct scene *s, uint16_t about, uint32_t session, uint64_t sequence,
                const struct via_announcement_neighbour *neighbour)
{
    struct via_announcement head = {
        .kind = VIA_LINK_STATE_KIND,
        .neighbours_count = neighbour != NULL,
        .host = about,
        .session = session,
        .sequence = sequence,
    };
    deliver(s);
    assert_int_equal(via_pipe_send(&s->peer.control.writer, &head, sizeof(head), neighbour,
                                   neighbour != NULL ? sizeof(*neighbour) : 0),
                     0);
    s->fabric->hosts[1].control_deadline = 0;
}

static uint64_t sequence_of(struct scene *s, int at, uint16_t about)
{
    return fabric_node(s->fabric, at)->lsdb->lsas[about].sequence;
}

/* The links between hosts 1, 2 and 3; host 0 has no node any more. */
static void assert_links_never_failed(const struct scene *s)
{
    for (int host = 1; host < HOSTS; host++) {
        for (unsigned port = host == 1; port < s->fabric->hosts[host].ports_count; port++) {
            struct via_link_status status = fabric_link_status(s->fabric, host, port);
            assert_int_equal(status.state, VIA_LINK_UP);
            assert_int_equal(status.downs_count, 0);
            assert_int_equal(status.errors, 0);
        }
    }
}

static void assert_settles_within(struct scene *s, uint64_t ns)
{
    uint64_t past = 0;
    while (!fabric_is_settled(s->fabric)) {
        assert_true(past < ns);
        run(s, VIA_MSEC_NS);
        past += VIA_MSEC_NS;
    }
}

static void assert_message_arrives(struct scene *s, int from, int to)
{
    static uint64_t cookie;
    struct via_op op = {
        .kind = VIA_OP_MESSAGE, .destination = (uint16_t)to, .flow = 1, .cookie = ++cookie};
    unsigned before = s->fabric->hosts[to].deliveries_count;
    fabric_submit(s->fabric, from, &op);
    assert_true(fabric_drain(s->fabric, VIA_SEC_NS));
    assert_int_equal(fabric_completion(s->fabric, from, cookie)->status, 0);
    assert_int_equal(s->fabric->hosts[to].deliveries_count, before + 1);
}

/* Each sequence number up to the last that is well-formed. */
static void any_sequence_number_is_outlived(void **state)
{
    (void)state;
    static const uint64_t numbers[] = {
        1000,
        VIA_LINK_STATE_SEQUENCE_HIGH - 2,
        VIA_LINK_STATE_SEQUENCE_HIGH - 1,
        VIA_LINK_STATE_SEQUENCE_HIGH,
        LAST_SEQUENCE - 1,
        LAST_SEQUENCE,
    };
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(numbers); i++) {
        for (uint16_t victim = 1; victim < HOSTS; victim++) {
            struct scene s;
            scene_init(&s);
            lie(&s, victim, FOREIGN_SESSION, numbers[i], NULL);
            run(&s, 10 * VIA_MSEC_NS);
            assert_settles_within(&s, 2 * VIA_LINK_STATE_FORGET_NS);
            run(&s, 2 * VIA_LINK_STATE_FORGET_NS);
            assert_true(fabric_is_settled(s.fabric));
            assert_links_never_failed(&s);
            /* All hosts have forgotten the number that was too high. */
            for (int at = 1; at < HOSTS; at++) {
                assert_true(sequence_of(&s, at, victim) < VIA_LINK_STATE_SEQUENCE_HIGH);
            }
            assert_message_arrives(&s, 1, 3);
            assert_message_arrives(&s, 3, 1);
            fabric_free(s.fabric);
        }
    }
}

/* A number that the victim can exceed delays the victim only until its next announcement has
 * arrived. */
static void a_number_that_can_be_outnumbered_is(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s);
    lie(&s, 3, FOREIGN_SESSION, LAST_SEQUENCE - 1, NULL);
    run(&s, 2 * VIA_MSEC_NS);
    assert_settles_within(&s, s.fabric->hosts[3].config.heartbeat_ns + 25 * VIA_MSEC_NS);
    assert_int_equal(sequence_of(&s, 1, 3), LAST_SEQUENCE);
    assert_links_never_failed(&s);
    fabric_free(s.fabric);
}

/* Forgetting a number does not discard the contents of the announcement. */
static void going_back_to_low_numbers_costs_no_route(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s);
    lie(&s, 3, FOREIGN_SESSION, VIA_LINK_STATE_SEQUENCE_HIGH, NULL);
    run(&s, 30 * VIA_MSEC_NS);
    assert_settles_within(&s, VIA_MSEC_NS);
    for (unsigned i = 0; i < 3000; i++) {
        run(&s, VIA_MSEC_NS);
        assert_true(fabric_is_settled(s.fabric));
    }
    assert_true(sequence_of(&s, 1, 3) < VIA_LINK_STATE_SEQUENCE_HIGH);
    fabric_free(s.fabric);
}

static void a_restart_of_the_victim_cures_at_once(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s);
    lie(&s, 2, FOREIGN_SESSION, LAST_SEQUENCE, NULL);
    run(&s, VIA_LINK_STATE_FORGET_NS / 2);
    fabric_crash(s.fabric, 2);
    fabric_start(s.fabric, 2);
    assert_settles_within(&s, VIA_LINK_STATE_FORGET_NS);
    fabric_free(s.fabric);
}

/* The lie reaches host 2 later than host 1, so host 2 forgets it later. Between the two times host
 * 1 accepts a true announcement of the victim, which also has a high number. */
static void a_forgotten_lie_does_not_return_from_another_host(void **state)
{
    (void)state;
    struct scene s;
    struct fabric_link *link = scene_init_triangle(&s);
    lie(&s, 3, FOREIGN_SESSION, VIA_LINK_STATE_SEQUENCE_HIGH, NULL);
    run(&s, 30 * VIA_MSEC_NS);
    assert_settles_within(&s, VIA_MSEC_NS);
    fabric_cut(link);
    run(&s, 100 * VIA_MSEC_NS);
    lie(&s, 3, FOREIGN_SESSION, LAST_SEQUENCE, NULL);
    run(&s, VIA_LINK_STATE_FORGET_NS / 4);
    fabric_mend(link);
    run(&s, VIA_LINK_STATE_FORGET_NS / 4);
    assert_int_equal(sequence_of(&s, 1, 3), LAST_SEQUENCE);
    assert_int_equal(sequence_of(&s, 2, 3), LAST_SEQUENCE);
    run(&s, VIA_LINK_STATE_FORGET_NS / 2 + 10 * VIA_MSEC_NS);
    assert_int_equal(sequence_of(&s, 2, 3), LAST_SEQUENCE);
    for (unsigned i = 0; i < 1000; i++, run(&s, VIA_MSEC_NS)) {
        assert_int_not_equal(sequence_of(&s, 1, 3), LAST_SEQUENCE);
    }
    assert_int_not_equal(sequence_of(&s, 2, 3), LAST_SEQUENCE);
    assert_true(fabric_is_settled(s.fabric));
    fabric_free(s.fabric);
}

/* The victim's own session and number, with other contents: hosts on both sides take the lie for
 * the newest announcement. */
static void the_same_number_with_other_words_is_outnumbered(void **state)
{
    (void)state;
    /* As a neighbour: contents that are ordered before or after the true ones. */
    static const uint16_t names[] = {0, 1, 3};
    for (unsigned i = 0; i <= VIA_ARRAY_COUNT(names); i++) {
        for (unsigned ahead = 0; ahead < 3; ahead++) {
            struct scene s;
            scene_init(&s);
            struct via_announcement_neighbour neighbour = {.host = names[i % 3], .session = 77};
            lie(&s, 2, s.fabric->hosts[2].config.session, sequence_of(&s, 1, 2) + ahead,
                i < 3 ? &neighbour : NULL);
            run(&s, 50 * VIA_MSEC_NS);
            assert_settles_within(&s, VIA_MSEC_NS);
            for (int at = 1; at < HOSTS; at++) {
                assert_int_equal(fabric_node(s.fabric, at)->lsdb->lsas[2].neighbours_count, 2);
            }
            assert_links_never_failed(&s);
            fabric_free(s.fabric);
        }
    }
}

/* The lie names host 2 as a neighbour of the victim. If host 1 therefore did not forward it to host
 * 2, the victim would never receive the lie. Simulator, seed 881313 with two rogues. */
static void a_lie_that_names_those_it_would_reach_next_reaches_its_victim(void **state)
{
    (void)state;
    for (int same_session = 0; same_session < 2; same_session++) {
        struct scene s;
        scene_init(&s);
        struct via_announcement_neighbour named = {.host = 2,
                                                   .session = s.fabric->hosts[2].config.session};
        uint32_t session = same_session != 0 ? s.fabric->hosts[3].config.session : FOREIGN_SESSION;
        lie(&s, 3, session, sequence_of(&s, 1, 3) + 1000, &named);
        run(&s, 100 * VIA_MSEC_NS);
        assert_int_equal(sequence_of(&s, 1, 3), sequence_of(&s, 3, 3));
        assert_settles_within(&s, 2 * VIA_LINK_STATE_FORGET_NS);
        assert_message_arrives(&s, 1, 3);
        assert_links_never_failed(&s);
        fabric_free(s.fabric);
    }
}

/* The liar never stops. The other hosts keep its announcements of hosts without neighbours. */
static void lies_without_end_break_no_link(void **state)
{
    (void)state;
    struct scene s;
    struct via_rng rng;
    scene_init(&s);
    via_rng_init(&rng, 7);
    for (unsigned i = 0; i < 3000; i++) {
        struct via_announcement_neighbour neighbour = {
            .host = (uint16_t)via_rng_below(&rng, FABRIC_HOSTS_MAX),
            .session = (uint32_t)via_rng_next(&rng) | 1};
        uint16_t about = (uint16_t)via_rng_below(&rng, FABRIC_HOSTS_MAX);
        uint64_t sequence = via_rng_chance(&rng, 1, 2)
                                ? LAST_SEQUENCE - via_rng_below(&rng, 3)
                                : 1 + via_rng_below(&rng, VIA_LINK_STATE_SEQUENCE_HIGH);
        neighbour.host = neighbour.host == about ? about ^ 1u : neighbour.host;
        uint32_t session = about < HOSTS && via_rng_chance(&rng, 1, 2)
                               ? s.fabric->hosts[about].config.session
                               : (uint32_t)via_rng_next(&rng) | 1;
        lie(&s, about, session, sequence, via_rng_chance(&rng, 1, 2) ? &neighbour : NULL);
        run(&s, VIA_MSEC_NS);
    }
    assert_links_never_failed(&s);
    assert_settles_within(&s, 2 * VIA_LINK_STATE_FORGET_NS);
    assert_message_arrives(&s, 1, 3);
    fabric_free(s.fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_sequence_number_is_outlived),
        cmocka_unit_test(a_number_that_can_be_outnumbered_is),
        cmocka_unit_test(going_back_to_low_numbers_costs_no_route),
        cmocka_unit_test(a_restart_of_the_victim_cures_at_once),
        cmocka_unit_test(a_forgotten_lie_does_not_return_from_another_host),
        cmocka_unit_test(the_same_number_with_other_words_is_outnumbered),
        cmocka_unit_test(a_lie_that_names_those_it_would_reach_next_reaches_its_victim),
        cmocka_unit_test(lies_without_end_break_no_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
