/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Operations of one user to a host that is cut off use no place of another user, nor do barriers
 * that no other member enters. Groups of barriers are each user's own. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/attach_server.h"
#include "host/client.h"
#include "tests/system/host_raw.h"

#define VICTIM 65533u
#define ATTACKER 65534u
#define ATTACHMENTS 4u
#define ENTRANTS 12u
#define GROUP 1000u
#define SEGMENT_BYTES 65536u

/* Chain 0 - 1 - 2; the link to host 2 is cut. */
struct fixture {
    struct host_lab lab;
    struct via_attach *owners[3]; /* of segments at hosts 1 and 2 */
    struct via_segment *segments[3];
    pid_t child;
    pid_t attacker;
};

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, via_error_text()); \
            _exit(2);                                                                              \
        }                                                                                          \
    } while (0)

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    const char *const extra[] = {
        "--attach", "user:65533,user:65534", "--quota", "pipes=12", "--channels", "1", NULL};
    host_lab_init(&fixture->lab, 3, false, false);
    *state = fixture;
    assert_int_equal(rmdir(fixture->lab.rundir), 0);
    for (unsigned i = 0; i < 3; i++) {
        host_lab_spawn(&fixture->lab, i, extra);
    }
    host_lab_wait_routes(&fixture->lab);
    for (unsigned i = 1; i < 3; i++) {
        fixture->owners[i] = host_lab_attach(&fixture->lab, i);
        assert_int_equal(via_segment_new(fixture->owners[i], SEGMENT_BYTES, VIADUCT_SEGMENT_WRITE,
                                         &fixture->segments[i]),
                         0);
    }
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    const pid_t children[] = {fixture->attacker, fixture->child};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(children); i++) {
        if (children[i] > 0) {
            kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
    }
    for (unsigned i = 1; i < 3; i++) {
        if (fixture->owners[i] != NULL) {
            via_attach_close(fixture->owners[i]);
        }
    }
    host_lab_fini(&fixture->lab);
    free(fixture);
    return 0;
}

/* A process of this user. It calls report() when it is ready for the cut, and again when it has
 * done its part and others may continue. */
struct child {
    int report_fd; /* the parent's */
    int go_fd;
};

static int report_to, go; /* the child's */

static void report(void)
{
    char byte = '+';
    CHECK(write(report_to, &byte, 1) == 1);
}

static void wait_go(void)
{
    char byte;
    CHECK(read(go, &byte, 1) == 1);
}

static pid_t start(struct fixture *fixture, unsigned uid, void (*run)(struct fixture *fixture),
                   struct child *ret_child)
{
    int up[2];
    int down[2];
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        report_to = up[1];
        go = down[0];
        CHECK(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 &&
              setresuid(uid, uid, uid) == 0);
        run(fixture);
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    *ret_child = (struct child){.report_fd = up[0], .go_fd = down[1]};
    return pid;
}

static void wait_reported(const struct child *child)
{
    char byte;
    struct pollfd pollfd = {.fd = child->report_fd, .events = POLLIN};
    assert_int_equal(poll(&pollfd, 1, 60000), 1);
    assert_int_equal(read(child->report_fd, &byte, 1), 1);
}

static void say_go(const struct child *child)
{
    assert_int_equal(write(child->go_fd, "+", 1), 1);
}

static void assert_ends_well(pid_t *pid)
{
    int status;
    uint64_t deadline_ns = host_lab_now_ns() + 60 * VIA_SEC_NS;
    while (waitpid(*pid, &status, WNOHANG) == 0) {
        assert_true(host_lab_now_ns() < deadline_ns);
        poll(NULL, 0, 5);
    }
    *pid = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static struct via_attach *attach_to(struct fixture *fixture, int host)
{
    struct via_attach_options options = {
        .size = sizeof(options), .rundir = fixture->lab.rundir, .host = host, .channel = 0};
    struct via_attach *attach;
    CHECK(via_attach_open(&options, &attach) == 0);
    return attach;
}

static struct via_remote *open_remote(struct fixture *fixture, struct via_attach *attach,
                                      unsigned host)
{
    struct via_remote *remote;
    CHECK(via_remote_open(attach, host, via_segment_handle(fixture->segments[host]), SEGMENT_BYTES,
                          &remote) == 0);
    return remote;
}

/* First the attacker runs, then the victim. Both are ready before the cut, if there is one, and the
 * victim starts when the attacker has used up all places that it can get. */
static void compete(struct fixture *fixture, void (*attack)(struct fixture *fixture),
                    void (*work)(struct fixture *fixture), bool cut)
{
    struct child attacker;
    struct child victim;
    fixture->attacker = start(fixture, ATTACKER, attack, &attacker);
    fixture->child = start(fixture, VICTIM, work, &victim);
    wait_reported(&attacker);
    wait_reported(&victim);
    if (cut) {
        host_lab_cut(&fixture->lab, 1, 2, "cut");
        host_lab_wait_hops(&fixture->lab, 0, 2, -1);
    }
    say_go(&attacker);
    wait_reported(&attacker);
    say_go(&victim);
    assert_ends_well(&fixture->child);
    const int fds[] = {attacker.report_fd, attacker.go_fd, victim.report_fd, victim.go_fd};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        close(fds[i]);
    }
}

/* --- notes ------------------------------------------------------------------------------------ */

/* Posts as many notes as a process may have under way, in each process; they wait for 5 seconds. */
static void posts_without_a_receiver(struct fixture *fixture)
{
    static struct host_raw raws[ATTACHMENTS];
    for (unsigned i = 0; i < ATTACHMENTS; i++) {
        CHECK(host_raw_try_open(&raws[i], &fixture->lab, 0) == 0);
    }
    report();
    wait_go();
    for (unsigned i = 0; i < ATTACHMENTS * 64; i++) {
        struct host_raw *raw = &raws[i % ATTACHMENTS];
        struct via_attach_request post = host_raw_request(raw, VIA_ATTACH_BOARD_POST);
        post.host = 2;
        post.key_bytes = 4;
        memcpy(post.key, "none", 4);
        CHECK(host_raw_send(raw->fd, &post, sizeof(post), NULL, 0) == 0);
    }
    poll(NULL, 0, 200); /* the host reads the commands */
    report();
    pause();
}

static void posts_to_a_neighbour(struct fixture *fixture)
{
    struct via_attach *near = attach_to(fixture, 0);
    struct via_attach *far = attach_to(fixture, 1);
    char value[VIADUCT_BOARD_VALUE_MAX];
    report();
    wait_go();
    for (unsigned i = 0; i < 100; i++) {
        CHECK(via_board_post(near, 1, "key", 3, "value", 5, 60000) == 0);
        CHECK(via_board_take(far, "key", 3, value, sizeof(value)) == 5);
    }
}

static void notes_to_a_host_that_is_cut_off(void **state)
{
    compete(*state, posts_without_a_receiver, posts_to_a_neighbour, true);
}

/* --- commands --------------------------------------------------------------------------------- */

/* Puts that wait for a link, until the host accepts no further put. */
static void put_until_full(struct via_remote *remote)
{
    uint64_t until_ns = host_lab_now_ns() + VIA_SEC_NS / 2;
    while (host_lab_now_ns() < until_ns) {
        int rc = via_remote_try_put(remote, 0, "x", 1, 0);
        CHECK(rc == 0 || rc == -EAGAIN);
        if (rc == -EAGAIN) {
            poll(NULL, 0, 1);
        }
    }
}

static void puts_without_a_receiver(struct fixture *fixture)
{
    struct via_remote *remotes[ATTACHMENTS];
    for (unsigned i = 0; i < ATTACHMENTS; i++) {
        remotes[i] = open_remote(fixture, attach_to(fixture, 0), 2);
    }
    report();
    wait_go();
    for (unsigned i = 0; i < ATTACHMENTS; i++) {
        put_until_full(remotes[i]);
    }
    report();
    pause();
}

/* Puts more to an unreachable host than a process may have under way: operations to another host
 * must not wait behind them. */
static void puts_to_both(struct fixture *fixture)
{
    struct via_attach *near = attach_to(fixture, 0);
    struct via_remote *lost = open_remote(fixture, near, 2);
    struct via_remote *there = open_remote(fixture, near, 1);
    uint64_t word = 0;
    report();
    wait_go();
    for (unsigned i = 0; i < 100; i++) {
        CHECK(via_remote_try_put(lost, 0, "x", 1, 0) == 0);
    }
    for (uint64_t i = 1; i <= 20; i++) {
        CHECK(via_remote_try_put(there, 0, &i, sizeof(i), 0) == 0);
        uint64_t deadline_ns = host_lab_now_ns() + 10 * VIA_SEC_NS;
        while (via_remote_pending(there) != 0) {
            CHECK(host_lab_now_ns() < deadline_ns);
            CHECK(via_attach_poll(near) >= 0);
        }
        word = i;
    }
    CHECK(word == 20);
}

static void commands_for_a_host_that_is_cut_off(void **state)
{
    compete(*state, puts_without_a_receiver, puts_to_both, true);
}

/* --- messages --------------------------------------------------------------------------------- */

#define SILENT_ENDPOINT 4242u

/* Sends messages on every flow to a process that takes none, until a message waits in each flow. */
static void sends_to_a_silent_receiver(struct fixture *fixture)
{
    static struct host_raw receiver, sender;
    struct via_reply reply;
    CHECK(host_raw_try_open(&receiver, &fixture->lab, 1) == 0);
    CHECK(host_raw_try_open(&sender, &fixture->lab, 0) == 0);
    struct via_attach_request open = host_raw_request(&receiver, VIA_ATTACH_ENDPOINT_OPEN);
    open.endpoint = SILENT_ENDPOINT;
    CHECK(host_raw_request_wait(&receiver, &open, -1, NULL) == 0);
    report();
    wait_go();
    struct via_command command = {.kind = VIA_OP_MESSAGE,
                                  .source = VIA_SOURCE_BODY,
                                  .destination = 1,
                                  .bytes = 4,
                                  .a.endpoint = SILENT_ENDPOINT,
                                  .b.source_endpoint = SILENT_ENDPOINT};
    uint64_t sent = 0, taken = 0;
    for (;;) {
        command.flow = (uint16_t)(sent % 31);
        command.cookie = ++sent;
        host_raw_command(&sender, &command, "full", 4);
        while (host_raw_reply(&sender, &reply, NULL, sent - taken < 31 ? 0 : 500)) {
            CHECK(reply.status == 0);
            taken++;
        }
        if (sent - taken >= 31) {
            break;
        }
    }
    report();
    pause();
}

static void puts_to_the_same_host(struct fixture *fixture)
{
    struct via_attach *near = attach_to(fixture, 0);
    struct via_remote *there = open_remote(fixture, near, 1);
    report();
    wait_go();
    for (uint64_t i = 1; i <= 20; i++) {
        CHECK(via_remote_try_put(there, 0, &i, sizeof(i), 0) == 0);
        uint64_t deadline_ns = host_lab_now_ns() + 10 * VIA_SEC_NS;
        while (via_remote_pending(there) != 0) {
            CHECK(host_lab_now_ns() < deadline_ns);
            CHECK(via_attach_poll(near) >= 0);
        }
    }
}

static void messages_that_are_not_received(void **state)
{
    compete(*state, sends_to_a_silent_receiver, puts_to_the_same_host, false);
}

/* --- a process that has left its user --------------------------------------------------------- */

#define WORDS 12u

static void put_each_word(struct via_remote *remote, uint64_t number)
{
    for (unsigned i = 0; i < WORDS; i++) {
        CHECK(via_remote_put(remote, i * sizeof(number), &number, sizeof(number), 0) == 0);
    }
}

/* A put of a forked process is ordered after its parent's put, which waits for a link, although
 * users have flows of their own. */
static void puts_behind_its_parent(struct fixture *fixture, struct via_client_order order)
{
    struct via_attach *attach;
    CHECK(setgroups(0, NULL) == 0 && setresgid(VICTIM, VICTIM, VICTIM) == 0 &&
          setresuid(VICTIM, VICTIM, VICTIM) == 0);
    CHECK(setenv("VIADUCT_RUNDIR", fixture->lab.rundir, 1) == 0);
    CHECK(setenv("VIADUCT_HOST", "0", 1) == 0);
    CHECK(via_client_attach_behind(order, &attach) == 0);
    struct via_remote *remote = open_remote(fixture, attach, 2);
    CHECK(via_client_remote_follow(remote) == 0);
    put_each_word(remote, 3);
    CHECK(via_client_hand_over(attach, VIA_NEVER_NS) == 0);
    report();
    CHECK(via_attach_quiet(attach) == 0);
    _exit(0);
}

static void a_child_of_another_user_goes_behind_its_parent(void **state)
{
    struct fixture *fixture = *state;
    struct child child;
    struct via_attach *attach = attach_to(fixture, 0);
    struct via_remote *remote = open_remote(fixture, attach, 2);
    int up[2];
    host_lab_cut(&fixture->lab, 1, 2, "cut");
    host_lab_wait_hops(&fixture->lab, 0, 2, -1);
    put_each_word(remote, 1);
    put_each_word(remote, 2);
    assert_int_equal(via_client_hand_over(attach, VIA_NEVER_NS), 0);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    child.report_fd = up[0];
    fixture->child = fork();
    assert_true(fixture->child >= 0);
    if (fixture->child == 0) {
        report_to = up[1];
        puts_behind_its_parent(fixture, via_client_order_of(attach));
    }
    wait_reported(&child);
    host_lab_cut(&fixture->lab, 1, 2, "mend");
    assert_ends_well(&fixture->child);
    assert_int_equal(via_attach_quiet(attach), 0);
    for (unsigned i = 0; i < WORDS; i++) {
        assert_int_equal(((_Atomic uint64_t *)via_segment_base(fixture->segments[2]))[i], 3);
    }
    via_attach_close(attach);
    close(up[0]);
    close(up[1]);
}

/* --- barriers --------------------------------------------------------------------------------- */

/* Enters as many barriers as a process may have under way, in each process; host 0 enters none of
 * them. */
static void enters_alone(struct fixture *fixture)
{
    static struct host_raw raws[ENTRANTS];
    const uint16_t members[] = {0, 1};
    /* Half of the places at the root remain for other users. */
    const unsigned refused_count = ENTRANTS * VIA_ATTACH_MEMBERS - VIA_BARRIER_ARRIVALS_MAX / 2;
    for (unsigned i = 0; i < ENTRANTS; i++) {
        CHECK(host_raw_try_open(&raws[i], &fixture->lab, 1) == 0);
    }
    report();
    wait_go();
    for (unsigned i = 0; i < ENTRANTS * VIA_ATTACH_MEMBERS; i++) {
        const struct via_command command = {.kind = VIA_OP_BARRIER,
                                            .source = VIA_SOURCE_BODY,
                                            .destination = 1,
                                            .bytes = sizeof(members),
                                            .cookie = i + 1,
                                            .a.group = GROUP + 1 + i};
        host_raw_command(&raws[i % ENTRANTS], &command, members, sizeof(members));
    }
    uint64_t deadline_ns = host_lab_now_ns() + 30 * VIA_SEC_NS;
    for (unsigned i = 0, refused = 0; refused < refused_count; i++) {
        struct via_reply reply;
        CHECK(host_lab_now_ns() < deadline_ns);
        if (host_raw_reply(&raws[i % ENTRANTS], &reply, NULL, 1)) {
            CHECK(reply.status == -ENOSPC);
            refused++;
        }
    }
    report();
    pause();
}

static void meet(struct fixture *fixture, int host, bool reports)
{
    const uint16_t members[] = {0, 1};
    struct via_attach *attach = attach_to(fixture, host);
    if (reports) {
        report();
        wait_go();
    }
    for (unsigned i = 0; i < 20; i++) {
        CHECK(via_barrier(attach, GROUP, members, 2) == 0);
    }
}

static void meets_itself(struct fixture *fixture)
{
    pid_t other = fork();
    int status;
    CHECK(other >= 0);
    if (other == 0) {
        meet(fixture, 0, false);
        _exit(0);
    }
    meet(fixture, 1, true);
    CHECK(waitpid(other, &status, 0) == other && status == 0);
}

static void barriers_that_no_other_host_enters(void **state)
{
    compete(*state, enters_alone, meets_itself, true);
}

/* Waits in a barrier with the number of the victim's group. The process of this user on the other
 * host never enters it. */
static void enters_the_same_number(struct fixture *fixture, unsigned host)
{
    static struct host_raw raw;
    const uint16_t members[] = {0, 1};
    const struct via_command command = {.kind = VIA_OP_BARRIER,
                                        .source = VIA_SOURCE_BODY,
                                        .destination = (uint16_t)host,
                                        .bytes = sizeof(members),
                                        .cookie = 1,
                                        .a.group = GROUP};
    struct via_reply reply;
    CHECK(host_raw_try_open(&raw, &fixture->lab, host) == 0);
    report();
    wait_go();
    host_raw_command(&raw, &command, members, sizeof(members));
    /* The barrier is under way once the host has answered the next command. */
    const struct via_command wrong = {.kind = 99, .cookie = 2};
    host_raw_command(&raw, &wrong, NULL, 0);
    uint64_t deadline_ns = host_lab_now_ns() + 30 * VIA_SEC_NS;
    while (!host_raw_reply(&raw, &reply, NULL, 1)) {
        CHECK(host_lab_now_ns() < deadline_ns);
    }
    CHECK(reply.cookie == 2 && reply.status == -EINVAL);
    report();
    pause();
}

static void enters_the_same_number_at_the_root(struct fixture *fixture)
{
    enters_the_same_number(fixture, 0);
}

static void enters_the_same_number_elsewhere(struct fixture *fixture)
{
    enters_the_same_number(fixture, 1);
}

static void a_group_of_another_user_at_the_root(void **state)
{
    compete(*state, enters_the_same_number_at_the_root, meets_itself, true);
}

static void a_group_of_another_user_elsewhere(void **state)
{
    compete(*state, enters_the_same_number_elsewhere, meets_itself, true);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(notes_to_a_host_that_is_cut_off),
        TEST(commands_for_a_host_that_is_cut_off),
        TEST(messages_that_are_not_received),
        TEST(a_child_of_another_user_goes_behind_its_parent),
        TEST(barriers_that_no_other_host_enters),
        TEST(a_group_of_another_user_at_the_root),
        TEST(a_group_of_another_user_elsewhere),
    };
    if (geteuid() != 0) {
        puts("skipped: only root can be two users");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
