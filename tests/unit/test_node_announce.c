/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Announcements of more neighbours than a record holds: accepted when they are complete, forwarded,
 * and refused if their parts do not match. The tests send records in the name of host 0 of the
 * chain 0-1-2.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "core/link.h"
#include "fabric.h"
#include "hostile_peer.h"

#define HOSTS_MAX 64u
#define PART VIA_LINK_STATE_PART_NEIGHBOURS
#define SEQUENCE 1000u

struct scene {
    struct fabric *fabric;
    struct hostile_peer peer; /* host 0's end of its link to host 1 */
    struct via_announcement head;
    struct via_announcement_neighbour entries[HOSTS_MAX];
};

/* Prepares an announcement of host 0 with `count` neighbours: hosts 1, 2, ... Only host 1 really
 * has the announced session. */
static void scene_init(struct scene *s, unsigned count)
{
    memset(s, 0, sizeof(*s));
    s->fabric = fabric_new(true);
    s->fabric->config.hosts_max = HOSTS_MAX;
    fabric_chain(s->fabric, 3);
    fabric_settle(s->fabric);
    fabric_node(s->fabric, 1)->config.dead_ns =
        1000 * VIA_SEC_NS; /* because host 0 sends no heartbeats any more */
    s->head = (struct via_announcement){
        .kind = VIA_LINK_STATE_KIND,
        .host = 0,
        .session = s->fabric->hosts[0].config.session,
        .sequence = SEQUENCE,
        .neighbours_count = (uint16_t)count,
    };
    for (unsigned i = 0; i < count; i++) {
        s->entries[i].host = (uint16_t)(i + 1);
        s->entries[i].session = i < 1 ? s->fabric->hosts[i + 1].config.session : 5000 + i;
    }
    hostile_peer_become(&s->peer, s->fabric, 0);
}

static void scene_fini(struct scene *s)
{
    fabric_free(s->fabric);
}

static void run(struct scene *s)
{
    struct via_pipe_record record;
    s->fabric->hosts[1].control_deadline = 0;
    for (unsigned i = 0; i < 5; i++) {
        fabric_run(s->fabric, VIA_MSEC_NS);
        while (via_pipe_take(&s->peer.control.reader, &record) == 1) {
            via_pipe_release(&s->peer.control.reader, 1);
        }
    }
}

static void send_part(struct scene *s, const struct via_announcement *head, unsigned entries)
{
    assert_int_equal(via_pipe_send(&s->peer.control.writer, head, sizeof(*head),
                                   &s->entries[head->first], entries * sizeof(s->entries[0])),
                     0);
}

static void send_all(struct scene *s)
{
    struct via_announcement head = s->head;
    do {
        send_part(s, &head, via_announcement_entries(head.neighbours_count, head.first));
        head.first = (uint16_t)(head.first + PART);
    } while (head.first < head.neighbours_count);
}

static void assert_known(const struct scene *s, int at, unsigned count)
{
    uint16_t hosts[HOSTS_MAX];
    assert_int_equal(via_node_neighbours(s->fabric->hosts[at].node, 0, hosts, HOSTS_MAX), count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(hosts[i], i + 1);
    }
    assert_int_equal(via_node_neighbours(s->fabric->hosts[at].node, 0, hosts, 1), count);
}

static void any_number_of_neighbours_is_passed_on(void **state)
{
    (void)state;
    for (unsigned count = 0; count < HOSTS_MAX; count++) {
        struct scene s;
        scene_init(&s, count);
        send_all(&s);
        run(&s);
        assert_known(&s, 1, count);
        assert_known(&s, 2, count);
        assert_int_equal(fabric_link_status(s.fabric, 1, 0).errors, 0);
        assert_int_equal(fabric_link_status(s.fabric, 2, 0).errors, 0);
        scene_fini(&s);
    }
}

/* According to its announcements, host 0 has a link to host 2 and announces itself there. When host
 * 0 loses this link, it announces the loss. */
static void an_announcement_that_its_host_sends_itself_is_not_forwarded(void **state)
{
    (void)state;
    for (unsigned count = 2; count < 40; count += 19) {
        struct scene s;
        scene_init(&s, count);
        uint32_t earlier = s.entries[1].session;
        s.entries[1].session = s.fabric->hosts[2].config.session;
        send_all(&s);
        run(&s);
        assert_known(&s, 1, count);
        assert_known(&s, 2, 1);
        s.entries[1].session = earlier;
        s.head.sequence++;
        send_all(&s);
        run(&s);
        assert_known(&s, 2, count);
        scene_fini(&s);
    }
}

/* If host 0 announces a link to host 2, host 1 does not forward the announcement to host 2. But
 * host 2 learns of host 0 only from host 1, so host 2 sends its own state, and host 1 answers. */
static void a_link_that_comes_up_brings_what_the_peer_has_not_got(void **state)
{
    (void)state;
    for (unsigned is_current = 0; is_current < 2; is_current++) {
        struct scene s;
        scene_init(&s, 2);
        fabric_cut(&s.fabric->links[1]);
        run(&s);
        s.entries[1].session = is_current != 0 ? s.fabric->hosts[2].config.session : 5000;
        send_all(&s);
        run(&s);
        assert_known(&s, 1, 2);
        fabric_mend(&s.fabric->links[1]);
        for (unsigned i = 0; i < 20; i++) {
            run(&s);
        }
        assert_known(&s, 2, 2);
        scene_fini(&s);
    }
}

static void no_part_counts_before_the_last_one(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, 40);
    struct via_announcement head = s.head;
    for (unsigned part = 0; part < 3; part++) {
        assert_known(&s, 1, 1);
        assert_known(&s, 2, 1);
        head.first = (uint16_t)(part * PART);
        send_part(&s, &head, part < 2 ? PART : 8);
        run(&s);
    }
    assert_known(&s, 1, 40);
    assert_known(&s, 2, 40);
    scene_fini(&s);
}

/* The sender has a newer announcement meanwhile. */
static void abandoned_announcements_leave_nothing(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, 40);
    for (unsigned i = 0; i < 100; i++) {
        send_part(&s, &s.head, PART);
        s.head.sequence++;
        run(&s);
    }
    s.head.neighbours_count = 33;
    send_all(&s);
    run(&s);
    assert_known(&s, 1, 33);
    assert_known(&s, 2, 33);
    /* No announcement of the other hosts is left. */
    const struct via_lsdb *lsdb = fabric_node(s.fabric, 1)->lsdb;
    assert_true(lsdb->chunks_fresh < 40);
    scene_fini(&s);
}

/* A link that goes down discards the received part of an announcement. */
static void half_an_announcement_goes_with_its_link(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, 40);
    send_part(&s, &s.head, PART);
    run(&s);
    fabric_cut(&s.fabric->links[0]);
    run(&s);
    assert_known(&s, 1, 1);
    fabric_mend(&s.fabric->links[0]);
    fabric_start(s.fabric, 0);
    fabric_settle(s.fabric);
    assert_known(&s, 2, 1);
    scene_fini(&s);
}

static void wrong_first(struct scene *s)
{
    s->head.first = 8;
}

static void a_part_left_out(struct scene *s)
{
    send_part(s, &s->head, PART);
    s->head.first = 2 * PART;
}

static void no_beginning(struct scene *s)
{
    s->head.first = PART;
}

static void another_number(struct scene *s)
{
    send_part(s, &s->head, PART);
    s->head.first = PART;
    s->head.sequence++;
}

static void another_session(struct scene *s)
{
    send_part(s, &s->head, PART);
    s->head.first = PART;
    s->head.session++;
}

static void another_host(struct scene *s)
{
    send_part(s, &s->head, PART);
    s->head.first = PART;
    s->head.host = HOSTS_MAX - 1;
}

static void another_count(struct scene *s)
{
    send_part(s, &s->head, PART);
    s->head.first = PART;
    s->head.neighbours_count++;
}

static void beyond_the_end(struct scene *s)
{
    send_all(s);
    s->head.first = 3 * PART;
    s->head.neighbours_count = 3 * PART;
}

static void too_many(struct scene *s)
{
    s->head.neighbours_count = HOSTS_MAX;
}

static void not_ascending(struct scene *s)
{
    s->entries[5].host = s->entries[4].host;
}

static void not_ascending_over_parts(struct scene *s)
{
    send_part(s, &s->head, PART);
    s->head.first = PART;
    s->entries[PART].host = s->entries[PART - 1].host;
}

static void itself(struct scene *s)
{
    s->entries[0].host = 0;
}

static void no_host(struct scene *s)
{
    s->entries[PART - 1].host = HOSTS_MAX;
}

static void no_session(struct scene *s)
{
    s->entries[3].session = 0;
}

static void parts_that_do_not_match_end_the_link(void **state)
{
    (void)state;
    static void (*const spoil[])(struct scene * s) = {
        wrong_first,
        a_part_left_out,
        no_beginning,
        another_number,
        another_session,
        another_host,
        another_count,
        beyond_the_end,
        too_many,
        not_ascending,
        not_ascending_over_parts,
        itself,
        no_host,
        no_session,
    };
    for (size_t i = 0; i < VIA_ARRAY_COUNT(spoil); i++) {
        struct scene s;
        scene_init(&s, 40);
        spoil[i](&s);
        unsigned entries = via_min(40u - via_min((unsigned)s.head.first, 40u), PART);
        send_part(&s, &s.head, entries);
        run(&s);
        assert_int_equal(fabric_link_status(s.fabric, 1, 0).errors, 1);
        assert_int_equal(fabric_link_status(s.fabric, 1, 0).downs_count, 1);
        assert_int_equal(fabric_link_status(s.fabric, 2, 0).errors, 0);
        fabric_start(s.fabric, 0);
        fabric_settle(s.fabric);
        scene_fini(&s);
    }
}

/* The body is longer or shorter than the head says. */
static void lengths_must_agree(void **state)
{
    (void)state;
    for (int entries = 0; entries <= (int)PART; entries++) {
        struct scene s;
        scene_init(&s, 9);
        send_part(&s, &s.head, (unsigned)entries);
        run(&s);
        assert_int_equal(fabric_link_status(s.fabric, 1, 0).errors, entries != 9);
        scene_fini(&s);
    }
}

/* --- changes --------------------------------------------------------------------------------- */

struct change {
    struct via_change head;
    struct via_announcement_neighbour entries[VIA_LINK_STATE_CHANGE_NEIGHBOURS + 1];
};

/* A scene in which all hosts have an announcement of 40 neighbours, and the next change: neighbour
 * 41 is added, 7 removed. */
static void scene_init_change(struct scene *s, struct change *ret_change)
{
    scene_init(s, 40);
    send_all(s);
    run(s);
    assert_known(s, 2, 40);
    struct via_lsa_change change = {.count = 2,
                                    .entries = {{.host = 7}, {.host = 41, .session = 9}}};
    struct via_lsdb *lsdb = fabric_node(s->fabric, 1)->lsdb;
    s->head.kind = VIA_LINK_STATE_CHANGE_KIND;
    s->head.sequence++;
    *ret_change = (struct change){
        .head = {.base = SEQUENCE,
                 .digest = via_lsa_digest_after(lsdb, &lsdb->lsas[0], s->head.sequence, &change)},
        .entries = {change.entries[0], change.entries[1]},
    };
}

static void send_change(struct scene *s, const struct change *change, size_t entries)
{
    assert_int_equal(via_pipe_send(&s->peer.control.writer, &s->head, sizeof(s->head), change,
                                   sizeof(change->head) + entries * sizeof(change->entries[0])),
                     0);
}

static bool is_changed(const struct scene *s, int at)
{
    uint16_t hosts[HOSTS_MAX];
    assert_int_equal(via_node_neighbours(s->fabric->hosts[at].node, 0, hosts, HOSTS_MAX), 40);
    return hosts[6] == 8 && hosts[39] == 41;
}

static uint64_t bytes_sent(const struct scene *s, int at)
{
    struct via_node_counters counters;
    via_node_counters(s->fabric->hosts[at].node, &counters);
    return counters.announcement_bytes_sent;
}

/* Host 1 accepts it, and forwards only the changes. */
static void a_change_is_forwarded(void **state)
{
    (void)state;
    struct scene s;
    struct change change;
    scene_init_change(&s, &change);
    uint64_t sent = bytes_sent(&s, 1);
    send_change(&s, &change, 2);
    run(&s);
    assert_true(is_changed(&s, 1) && is_changed(&s, 2));
    assert_int_equal(bytes_sent(&s, 1) - sent, sizeof(s.head) + sizeof(change.head) + 2 * 8);
    assert_int_equal(fabric_link_status(s.fabric, 1, 0).errors, 0);
    send_change(&s, &change, 2); /* a repeated change has no effect, and is not forwarded */
    run(&s);
    assert_int_equal(bytes_sent(&s, 1) - sent, sizeof(s.head) + sizeof(change.head) + 2 * 8);
    scene_fini(&s);
}

static void another_base(struct scene *s, struct change *change)
{
    (void)s;
    change->head.base--;
}

static void another_digest(struct scene *s, struct change *change)
{
    (void)s;
    change->head.digest ^= 1;
}

static void another_neighbour(struct scene *s, struct change *change)
{
    (void)s;
    change->entries[1].session++;
}

static void another_life(struct scene *s, struct change *change)
{
    (void)change;
    s->head.session++;
}

static void the_same_number(struct scene *s, struct change *change)
{
    change->head.base--;
    s->head.sequence--;
}

/* Host 1 answers with its own state, and so gets the rest. */
static void a_change_of_something_else_is_answered(void **state)
{
    (void)state;
    static void (*const spoil[])(struct scene * s, struct change * change) = {
        another_base, another_digest, another_neighbour, another_life, the_same_number,
    };
    for (size_t i = 0; i < VIA_ARRAY_COUNT(spoil); i++) {
        struct scene s;
        struct change change;
        scene_init_change(&s, &change);
        spoil[i](&s, &change);
        uint64_t sent = bytes_sent(&s, 1);
        send_change(&s, &change, 2);
        run(&s);
        assert_known(&s, 1, 40);
        assert_known(&s, 2, 40);
        assert_int_equal(bytes_sent(&s, 1) - sent, 3 * sizeof(s.head) + 40 * 8);
        assert_int_equal(fabric_link_status(s.fabric, 1, 0).errors, 0);
        scene_fini(&s);
    }
}

static void no_base(struct scene *s, struct change *change)
{
    (void)s;
    change->head.base = 0;
}

static void base_not_before(struct scene *s, struct change *change)
{
    change->head.base = s->head.sequence;
}

static void change_in_parts(struct scene *s, struct change *change)
{
    (void)change;
    s->head.first = PART;
}

static void change_not_ascending(struct scene *s, struct change *change)
{
    (void)s;
    change->entries[1].host = 7;
}

static void change_of_itself(struct scene *s, struct change *change)
{
    (void)s;
    change->entries[0].host = 0;
}

static void change_of_no_host(struct scene *s, struct change *change)
{
    (void)s;
    change->entries[1].host = HOSTS_MAX;
}

static void change_to_another_count(struct scene *s, struct change *change)
{
    (void)change;
    s->head.neighbours_count++;
}

static void a_malformed_change_ends_the_link(void **state)
{
    (void)state;
    static void (*const spoil[])(struct scene * s, struct change * change) = {
        no_base,
        base_not_before,
        change_in_parts,
        change_not_ascending,
        change_of_itself,
        change_of_no_host,
        change_to_another_count,
        NULL,
        NULL,
        NULL,
    };
    for (size_t i = 0; i < VIA_ARRAY_COUNT(spoil); i++) {
        struct scene s;
        struct change change;
        scene_init_change(&s, &change);
        size_t bytes = sizeof(change.head) + 16;
        if (spoil[i] != NULL) {
            spoil[i](&s, &change);
        } else { /* nothing has changed; half an entry; no room for a base */
            bytes = i == 7 ? sizeof(change.head) : i == 8 ? bytes - 4 : 8;
        }
        assert_int_equal(
            via_pipe_send(&s.peer.control.writer, &s.head, sizeof(s.head), &change, bytes), 0);
        run(&s);
        assert_int_equal(fabric_link_status(s.fabric, 1, 0).errors, 1);
        assert_int_equal(fabric_link_status(s.fabric, 2, 0).errors, 0);
        scene_fini(&s);
    }
}

/* A change in the middle of an announcement voids the received parts. */
static void a_change_ends_what_is_incomplete(void **state)
{
    (void)state;
    struct scene s;
    struct change change;
    scene_init_change(&s, &change);
    struct via_announcement whole = s.head;
    whole.kind = VIA_LINK_STATE_KIND;
    whole.sequence += 10;
    send_part(&s, &whole, PART);
    send_change(&s, &change, 2);
    run(&s);
    assert_true(is_changed(&s, 1) && is_changed(&s, 2));
    whole.first = PART;
    send_part(&s, &whole, PART);
    run(&s);
    assert_int_equal(fabric_link_status(s.fabric, 1, 0).errors, 1);
    scene_fini(&s);
}

/* Host 0 begins to wait for room after host 1 has checked for that, and before host 1 reports
 * room. */
static void a_writer_that_waits_for_room_is_woken(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, 1);
    struct via_node *node = fabric_node(s.fabric, 1);
    struct via_link *link = &node->links[0];
    uint64_t deadline_ns = VIA_NEVER_NS;
    send_all(&s);
    assert_int_equal(via_lsdb_receive(node, link, s.fabric->now_ns), 0);
    assert_true(via_pipe_request_room(&s.peer.control.writer));
    assert_int_not_equal(via_pipe_writer_room(&s.peer.control.writer), VIA_CONTROL_PIPE_SLOTS);
    uint64_t rings = s.fabric->links[0].rings[0];
    via_link_finish(node, link, s.fabric->now_ns, &deadline_ns);
    assert_int_equal(via_pipe_writer_room(&s.peer.control.writer), VIA_CONTROL_PIPE_SLOTS);
    assert_int_equal(s.fabric->links[0].rings[0], rings + 1);
    scene_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_neighbours_is_passed_on),
        cmocka_unit_test(an_announcement_that_its_host_sends_itself_is_not_forwarded),
        cmocka_unit_test(a_link_that_comes_up_brings_what_the_peer_has_not_got),
        cmocka_unit_test(no_part_counts_before_the_last_one),
        cmocka_unit_test(abandoned_announcements_leave_nothing),
        cmocka_unit_test(half_an_announcement_goes_with_its_link),
        cmocka_unit_test(parts_that_do_not_match_end_the_link),
        cmocka_unit_test(lengths_must_agree),
        cmocka_unit_test(a_change_is_forwarded),
        cmocka_unit_test(a_change_of_something_else_is_answered),
        cmocka_unit_test(a_malformed_change_ends_the_link),
        cmocka_unit_test(a_change_ends_what_is_incomplete),
        cmocka_unit_test(a_writer_that_waits_for_room_is_woken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
