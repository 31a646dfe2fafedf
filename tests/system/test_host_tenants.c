/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Two users of one host attack each other through all shared resources. While one user
 * attacks, the other, the victim, works: it puts data to another host, reads it back, and posts and
 * takes notes. It must get neither an error nor a wrong byte, and must make progress.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/control.h"
#include "tests/system/host_raw.h"

#define VICTIM 65533u
#define ATTACKER 65534u
#define STRANGER 65532u /* may not attach */
#define SEGMENT_BYTES (1u << 20)
#define WORK_BYTES 40000u
/* Fewest rounds that the victim completes during each attack. */
#define ROUNDS_MIN 20u
#define QUOTA "segments=20,memory=64M,pipes=8,notes=10"

/* Published by the victim; shared memory. */
struct board {
    _Atomic uint64_t rounds;
    _Atomic bool stop;
    uint64_t handle;           /* handle of a segment of host 1 that others may read and write */
    uint64_t read_only_handle; /* ... of one of host 0 that others may only read */
    char failed[256];
};

struct fixture {
    struct host_lab lab;
    struct board *board; /* board of the victim, for checks in any process */
    pid_t victim;
    unsigned victim_uid;
    int log_fd; /* log of host 0 */
};

static void become(unsigned id)
{
    if (setgroups(0, NULL) != 0 || setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0) {
        _exit(100);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of the user clears this setting */
}

/* Children of the test. tear_down() ends those that a failed test has left. */
static pid_t children[16];

static pid_t start_child(unsigned uid, void (*run)(struct fixture *fixture),
                         struct fixture *fixture)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(children); i++) {
        if (children[i] == 0) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0) {
                become(uid);
                run(fixture);
                _exit(0);
            }
            return children[i];
        }
    }
    fail_msg("too many children");
    return -1;
}

/* Like waitpid(), without waiting. */
static pid_t poll_child_end(pid_t pid, int *ret_status)
{
    pid_t ended = waitpid(pid, ret_status, WNOHANG);
    for (size_t i = 0; ended == pid && i < VIA_ARRAY_COUNT(children); i++) {
        children[i] = children[i] == pid ? 0 : children[i];
    }
    return ended;
}

static void end_children(void)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(children); i++) {
        if (children[i] > 0) {
            kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
        children[i] = 0;
    }
}

/* --- the victim ------------------------------------------------------------------------------- */

#define KEY_BYTES 16u

/* The name of a user's note contains the user's name. */
static size_t key_of(const struct fixture *fixture, char ret_key[KEY_BYTES])
{
    return (size_t)snprintf(ret_key, KEY_BYTES, "note-%u", fixture->victim_uid);
}

struct work {
    struct fixture *fixture;
    struct via_attach *near, *far;
    struct via_segment *segment;
    struct via_remote *remote;
};

static _Noreturn void fail_work(struct fixture *fixture, const char *what)
{
    snprintf(fixture->board->failed, sizeof(fixture->board->failed), "%s: %s", what,
             via_error_text());
    _exit(1);
}

static struct via_attach *attach_to(struct fixture *fixture, int host)
{
    struct via_attach_options options = {
        .size = sizeof(options), .rundir = fixture->lab.rundir, .host = host, .channel = -1};
    struct via_attach *attach = NULL;
    return via_attach_open(&options, &attach) == 0 ? attach : NULL;
}

static void one_round(struct work *work, unsigned round)
{
    struct fixture *fixture = work->fixture;
    unsigned char out[WORK_BYTES];
    unsigned char in[WORK_BYTES];
    char note[VIADUCT_BOARD_VALUE_MAX];
    char key[KEY_BYTES];
    size_t key_bytes = key_of(fixture, key);
    size_t off = round * 4096u % (SEGMENT_BYTES - WORK_BYTES);
    memset(out, (int)(round % 251 + 1), sizeof(out));
    if (via_remote_put(work->remote, off, out, sizeof(out), 0) != 0 ||
        via_attach_quiet(work->near) != 0) {
        fail_work(fixture, "put");
    }
    if (memcmp((unsigned char *)via_segment_base(work->segment) + off, out, sizeof(out)) != 0) {
        fail_work(fixture, "the data that was put is not there");
    }
    if (via_remote_get(work->remote, off, in, sizeof(in)) != 0 ||
        memcmp(in, out, sizeof(in)) != 0) {
        fail_work(fixture, "get");
    }
    if (via_board_post(work->near, 1, key, key_bytes, out, 100, 60000) != 0 ||
        via_board_take(work->far, key, key_bytes, note, sizeof(note)) != 100 ||
        memcmp(note, out, 100) != 0) {
        fail_work(fixture, "note");
    }
    atomic_fetch_add(&fixture->board->rounds, 1);
}

static void work(struct fixture *fixture)
{
    struct work work = {.fixture = fixture};
    struct via_segment *read_only;
    struct board *board = fixture->board;
    work.near = attach_to(fixture, 0);
    work.far = work.near != NULL ? attach_to(fixture, 1) : NULL;
    if (work.far == NULL ||
        via_segment_new(work.far, SEGMENT_BYTES, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE,
                        &work.segment) != 0 ||
        via_segment_new(work.near, 4096, VIADUCT_SEGMENT_READ, &read_only) != 0 ||
        via_remote_open(work.near, 1, via_segment_handle(work.segment), SEGMENT_BYTES,
                        &work.remote) != 0) {
        fail_work(fixture, "start");
    }
    memset(via_segment_base(read_only), 'r', 4096);
    board->handle = via_segment_handle(work.segment);
    board->read_only_handle = via_segment_handle(read_only);
    for (unsigned round = 0; !atomic_load(&board->stop); round++) {
        one_round(&work, round);
        if (((unsigned char *)via_segment_base(read_only))[round % 4096] != 'r') {
            fail_work(fixture, "a segment that others may only read was written");
        }
        /* All threads sleep sometimes, so that a lost wake-up has an effect. */
        poll(NULL, 0, (int)(round % 3));
    }
    via_attach_close(work.near);
    via_attach_close(work.far);
    _exit(0);
}

/* --- the attacks ------------------------------------------------------------------------------ */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, via_error_text()); \
            _exit(2);                                                                              \
        }                                                                                          \
    } while (0)

static void sends_a_forbidden_request(struct fixture *fixture, const char *cmd, const char *right)
{
    struct via_error err = {0};
    char expected[96];
    json_t *answer = NULL;
    json_t *request = json_pack("{s:s, s:i}", "cmd", cmd, "peer", 1);
    int rc = via_control_call(fixture->lab.rundir, 0, request, &answer, &err, 60000);
    json_decref(request);
    CHECK(rc == -EREMOTEIO);
    snprintf(expected, sizeof(expected), "user %u has no right to %s host 0", (unsigned)geteuid(),
             right);
    if (strstr(err.text, expected) == NULL) {
        fprintf(stderr, "%s\n", err.text);
        _exit(2);
    }
}

static void administers(struct fixture *fixture)
{
    struct via_error err = {0};
    json_t *answer = NULL;
    static const char *const commands[] = {"stop", "cut", "mend"};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(commands); i++) {
        sends_a_forbidden_request(fixture, commands[i], "administer");
    }
    /* The user may read the status. */
    json_t *request = json_pack("{s:s}", "cmd", "status");
    CHECK(via_control_call(fixture->lab.rundir, 0, request, &answer, &err, 60000) == 0);
    json_decref(answer);
    json_decref(request);
}

static void is_a_stranger(struct fixture *fixture)
{
    CHECK(attach_to(fixture, 0) == NULL);
    CHECK(strstr(via_error_text(), "user 65532 may not attach to host 0") != NULL);
    sends_a_forbidden_request(fixture, "status", "attach to");
    sends_a_forbidden_request(fixture, "stop", "attach to");
}

static void takes_notes(struct fixture *fixture)
{
    char note[VIADUCT_BOARD_VALUE_MAX];
    char key[KEY_BYTES];
    size_t key_bytes = key_of(fixture, key);
    struct via_attach *near = attach_to(fixture, 0);
    struct via_attach *far = attach_to(fixture, 1);
    CHECK(near != NULL && far != NULL);
    uint64_t until = atomic_load(&fixture->board->rounds) + ROUNDS_MIN;
    unsigned mine = 0;
    while (atomic_load(&fixture->board->rounds) < until) {
        int rc = via_board_take(far, key, key_bytes, note, sizeof(note));
        CHECK(rc == -ENOENT || (rc == 4 && memcmp(note, "mine", 4) == 0));
        mine += rc == 4;
        CHECK(via_board_post(near, 1, key, key_bytes, "mine", 4, 60000) == 0);
    }
    CHECK(mine > 0);
    via_attach_close(near);
    via_attach_close(far);
}

/* Tries handles that are nearly valid, by mapping and over frames. */
static void guesses_keys(struct fixture *fixture)
{
    struct via_attach *near = attach_to(fixture, 0);
    CHECK(near != NULL);
    for (unsigned bit = 16; bit < 64; bit++) {
        struct via_remote *remote;
        char data[8] = "attack";
        int rc =
            via_remote_open(near, 1, fixture->board->handle ^ UINT64_C(1) << bit, 4096, &remote);
        if (rc == 0) {
            (void)!via_remote_put(remote, 0, data, sizeof(data), 0);
            rc = via_attach_quiet(near);
            CHECK(rc == -EACCES);
            CHECK(via_remote_get(remote, 0, data, sizeof(data)) == -EACCES);
            via_remote_close(remote);
        }
        CHECK(rc == -EACCES);
        rc = via_remote_open(near, 0, fixture->board->read_only_handle ^ UINT64_C(1) << bit, 4096,
                             &remote);
        CHECK(rc == -EACCES);
    }
    via_attach_close(near);
}

static void cannot_write(int fd, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int fds[] = {fd, open(path, O_RDWR | O_CLOEXEC)};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        if (fds[i] >= 0) {
            CHECK(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0) == MAP_FAILED);
            CHECK(write(fds[i], "x", 1) < 0);
            CHECK(ftruncate(fds[i], 0) != 0);
            CHECK(fallocate(fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
        }
    }
    close(fds[1]);
    close(fd);
}

/* Opens memory for writing that was passed on for reading. */
static void reopens_for_writing(struct fixture *fixture)
{
    struct host_raw raw;
    struct via_attach_answer answer;
    int fds[HOST_RAW_FDS_MAX];
    unsigned fds_count;
    CHECK(host_raw_try_open(&raw, &fixture->lab, 0) == 0);
    cannot_write(dup(raw.status_fd), sizeof(*raw.status));
    struct via_attach_request map = host_raw_request(&raw, VIA_ATTACH_MAP);
    map.handle = fixture->board->read_only_handle;
    CHECK(host_raw_send(raw.fd, &map, sizeof(map), NULL, 0) == 0);
    CHECK(host_raw_receive(raw.fd, &answer, fds, &fds_count) == 0);
    CHECK(answer.status == 0 && fds_count == 3);
    cannot_write(fds[0], 4096);
    close(fds[1]);
    cannot_write(fds[2], 4096); /* the life page */
    host_raw_close(&raw);
}

/* Continuously changes the words on which the threads of the host sleep. */
static void spoils_bells(struct fixture *fixture)
{
    struct host_raw raw;
    CHECK(host_raw_try_open(&raw, &fixture->lab, 0) == 0);
    uint64_t until = atomic_load(&fixture->board->rounds) + 5 * ROUNDS_MIN;
    uint32_t seed = 1;
    while (atomic_load(&fixture->board->rounds) < until) {
        for (unsigned i = 0; i < 64; i++) {
            seed = seed * 1664525u + 1013904223u;
            atomic_store(&raw.bells[i].sleepers, seed >> 31);
            atomic_store(&raw.bells[i].count, seed >> 16 & 3);
        }
        if ((seed >> 20) % 64 == 0) {
            poll(NULL, 0, 1);
        }
    }
    host_raw_close(&raw);
}

static int add_segment(struct via_attach *attach, size_t bytes, struct via_segment **ret_segment)
{
    int fd = memfd_create("tenant", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    int rc = via_segment_adopt(attach, fd, bytes, NULL, VIADUCT_SEGMENT_READ, ret_segment);
    close(fd);
    return rc;
}

static void exhausts_segments(struct fixture *fixture)
{
    struct via_attach *attaches[2] = {attach_to(fixture, 0), attach_to(fixture, 0)};
    struct via_segment *segments[20];
    struct via_segment *more;
    for (unsigned i = 0; i < 20; i++) {
        CHECK(add_segment(attaches[i % 2], 4096, &segments[i]) == 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        CHECK(add_segment(attaches[i], 4096, &more) == -EDQUOT);
        CHECK(strstr(via_error_text(), "user 65534 is at its quota of segments on host 0: 20"));
    }
    via_segment_free(segments[0]);
    CHECK(add_segment(attaches[0], 4096, &more) == 0);
    via_attach_close(attaches[0]);
    via_attach_close(attaches[1]);
}

/* The memory counts for the quota although no process touches it. */
static void exhausts_memory(struct fixture *fixture)
{
    struct via_attach *attach = attach_to(fixture, 0);
    struct via_segment *some;
    struct via_segment *more;
    CHECK(attach != NULL);
    CHECK(add_segment(attach, (64u << 20) + 1, &more) == -EDQUOT);
    CHECK(strstr(via_error_text(), "quota of bytes of memory on host 0: 67108864"));
    CHECK(add_segment(attach, (size_t)1 << 44, &more) == -EDQUOT);
    CHECK(add_segment(attach, 60u << 20, &some) == 0);
    CHECK(add_segment(attach, 5u << 20, &more) == -EDQUOT);
    CHECK(add_segment(attach, 4u << 20, &more) == 0);
    CHECK(add_segment(attach, 1, &more) == -EDQUOT);
    via_segment_free(some);
    CHECK(add_segment(attach, 60u << 20, &some) == 0);
    via_attach_close(attach);
}

static void exhausts_pipes(struct fixture *fixture)
{
    struct via_attach *attaches[4]; /* of two channels each */
    for (unsigned i = 0; i < 4; i++) {
        attaches[i] = attach_to(fixture, 0);
        CHECK(attaches[i] != NULL);
    }
    for (unsigned i = 0; i < 100; i++) {
        CHECK(attach_to(fixture, 0) == NULL);
        CHECK(strstr(via_error_text(), "user 65534 is at its quota of pipes on host 0: 8"));
    }
    for (unsigned i = 0; i < 4; i++) {
        via_attach_close(attaches[i]);
    }
}

/* Posts notes to its own board, and to that of another host. */
static void exhausts_notes(struct fixture *fixture)
{
    static const char *const expected[] = {"user 65534 is at its quota of notes on host 0: 10",
                                           "user 65534 is at its quota of notes on host 1"};
    struct via_attach *attach = attach_to(fixture, 0);
    CHECK(attach != NULL);
    for (unsigned host = 0; host < 2; host++) {
        for (unsigned i = 0; i < 30; i++) {
            char key[16];
            int bytes = snprintf(key, sizeof(key), "key %u", i);
            int rc = via_board_post(attach, host, key, (size_t)bytes, "x", 1, 600000);
            CHECK(rc == (i < 10 ? 0 : -EDQUOT));
            CHECK(rc == 0 || strstr(via_error_text(), expected[host]) != NULL);
        }
    }
    via_attach_close(attach);
}

/* Uses half of all endpoints; the other half is for other users. */
static void exhausts_endpoints(struct fixture *fixture)
{
    struct via_attach *attach = attach_to(fixture, 0);
    uint32_t count = 0;
    CHECK(attach != NULL);
    while (via_endpoint_open(attach, count + 1) == 0) {
        count++;
    }
    CHECK(count == 8192);
    CHECK(via_endpoint_close(attach, count) == 0);
    CHECK(via_endpoint_open(attach, count) == 0);
    CHECK(via_endpoint_open(attach, count + 1) == -ENOSPC);
    via_attach_close(attach);
}

/* Makes every request that makes the host write a log line. */
static void floods_the_log(struct fixture *fixture)
{
    struct host_raw raw;
    struct via_segment *segment;
    struct via_attach *attach = attach_to(fixture, 0);
    CHECK(attach != NULL);
    for (unsigned i = 0; i < 2000; i++) {
        int fd = host_raw_connect(&fixture->lab, 0);
        raw = (struct host_raw){.fd = fd, .id_next = 1};
        struct via_attach_request hello = host_raw_request(&raw, VIA_ATTACH_HELLO);
        hello.version = 99;
        CHECK(fd >= 0 && host_raw_send(fd, &hello, sizeof(hello), NULL, 0) == 0);
        close(fd);
        CHECK(add_segment(attach, (size_t)1 << 40, &segment) == -EDQUOT);
        sends_a_forbidden_request(fixture, "stop", "administer");
    }
    via_attach_close(attach);
}

static int connect_control(const struct host_lab *lab)
{
    struct via_rundir_path path;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct via_error err;
    CHECK(via_rundir_control_path(lab->rundir, 0, &path, &err) == 0);
    memcpy(address.sun_path, path.text, sizeof(path.text));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

/* Connections that send nothing, or half a request, while other users attach and send requests. */
static void connects_and_sends_nothing(struct fixture *fixture)
{
    int fds[400];
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i += 2) {
        fds[i] = host_raw_connect(&fixture->lab, 0);
        CHECK(fds[i] >= 0);
        fds[i + 1] = connect_control(&fixture->lab);
        CHECK(send(fds[i + 1], "{", 1, MSG_NOSIGNAL) == 1 || errno == EPIPE || errno == ECONNRESET);
    }
    uint64_t until = atomic_load(&fixture->board->rounds) + ROUNDS_MIN;
    while (atomic_load(&fixture->board->rounds) < until) {
        poll(NULL, 0, 1);
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        close(fds[i]);
    }
}

/* --- the tests -------------------------------------------------------------------------------- */

static void start_victim(struct fixture *fixture, unsigned uid)
{
    fixture->board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(fixture->board != MAP_FAILED);
    fixture->victim_uid = uid;
    fixture->victim = start_child(uid, work, fixture);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    const char *const extra[] = {"--attach", "user:65533,user:65534", "--quota", QUOTA, NULL};
    int ready_fd;
    char byte;
    host_lab_init(&fixture->lab, 2, false, false);
    *state = fixture;
    /* The host does not open an existing directory to other users, so the host makes this one
     * itself. */
    assert_int_equal(rmdir(fixture->lab.rundir), 0);
    host_lab_spawn_raw(&fixture->lab, 0, extra, &fixture->log_fd, &ready_fd);
    assert_int_equal(read(ready_fd, &byte, 1), 1);
    close(ready_fd);
    host_lab_spawn(&fixture->lab, 1, extra);
    host_lab_wait_routes(&fixture->lab);
    start_victim(fixture, VICTIM);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    end_children();
    munmap(fixture->board, 4096);
    close(fixture->log_fd);
    host_lab_fini(&fixture->lab);
    free(fixture);
    return 0;
}

struct progress {
    struct fixture *fixture;
    uint64_t until;
};

static bool has_worked(void *ctx)
{
    struct progress *progress = ctx;
    struct fixture *fixture = progress->fixture;
    int status;
    if (poll_child_end(fixture->victim, &status) != 0) {
        fail_msg("the victim has ended: %s", fixture->board->failed);
    }
    return atomic_load(&fixture->board->rounds) >= progress->until;
}

static void let_it_work(struct fixture *fixture)
{
    struct progress progress = {fixture, atomic_load(&fixture->board->rounds) + ROUNDS_MIN};
    host_lab_wait(has_worked, &progress, "the victim to go on");
}

static void finish_attack(struct fixture *fixture, pid_t pid)
{
    int status;
    uint64_t deadline_ns = host_lab_now_ns() + 120 * VIA_SEC_NS;
    while (poll_child_end(pid, &status) == 0) {
        struct progress progress = {.fixture = fixture};
        (void)!has_worked(&progress);
        if (host_lab_now_ns() > deadline_ns) {
            fail_msg("the attack does not end; the victim has done %llu rounds",
                     (unsigned long long)atomic_load(&fixture->board->rounds));
        }
        poll(NULL, 0, 5);
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void attacks(struct fixture *fixture, unsigned uid, void (*attack)(struct fixture *fixture))
{
    let_it_work(fixture);
    finish_attack(fixture, start_child(uid, attack, fixture));
    let_it_work(fixture);
}

/* Receivers take messages with these source numbers for messages of the owner or of root. */
static void speaks_for_the_owner(struct fixture *fixture)
{
    static const uint32_t last = 0xfffffdff;
    struct via_message_info info;
    struct via_attach *attach = attach_to(fixture, 0);
    char word[4];
    CHECK(attach != NULL);
    CHECK(via_endpoint_open(attach, last + 1) == -EACCES);
    CHECK(via_endpoint_open(attach, 0xfffffeff) == -EACCES);
    CHECK(via_endpoint_open(attach, last) == 0);
    CHECK(via_message_send(attach, 0, last, last + 1, "bad", 4) == 0);
    CHECK(via_attach_quiet(attach) == -EACCES);
    CHECK(via_message_send(attach, 0, last, last, "fit", 4) == 0);
    CHECK(via_message_receive(attach, word, sizeof(word), 10000, &info) == 4);
    CHECK(strcmp(word, "fit") == 0 && info.source_endpoint == last);
    via_attach_close(attach);
}

#define ATTACK(name, uid, attack)     \
    static void name(void **state)    \
    {                                 \
        attacks(*state, uid, attack); \
    }

ATTACK(a_user_can_not_stop_or_cut, ATTACKER, administers)
ATTACK(a_stranger_gets_the_reason, STRANGER, is_a_stranger)
ATTACK(notes_are_not_taken_or_replaced, ATTACKER, takes_notes)
ATTACK(keys_are_not_guessed, ATTACKER, guesses_keys)
ATTACK(what_is_read_only_stays_so, ATTACKER, reopens_for_writing)
ATTACK(bells_are_each_users_own, ATTACKER, spoils_bells)
ATTACK(segments_have_a_quota, ATTACKER, exhausts_segments)
ATTACK(memory_has_a_quota, ATTACKER, exhausts_memory)
ATTACK(pipes_have_a_quota, ATTACKER, exhausts_pipes)
ATTACK(notes_have_a_quota, ATTACKER, exhausts_notes)
ATTACK(endpoints_have_a_quota, ATTACKER, exhausts_endpoints)
ATTACK(endpoints_of_the_owner_are_refused, ATTACKER, speaks_for_the_owner)
ATTACK(silent_connections_keep_nobody_out, ATTACKER, connects_and_sends_nothing)

static void the_log_stays_small(void **state)
{
    struct fixture *fixture = *state;
    int bytes = 0;
    attacks(fixture, ATTACKER, floods_the_log);
    /* No process reads the pipe: output that does not fit into it would be lost. */
    assert_int_equal(ioctl(fixture->log_fd, FIONREAD, &bytes), 0);
    assert_in_range(bytes, 1, 16384);
}

/* The entry {"uid":uid} in the status of host 0; NULL: none. */
static json_t *user_of(json_t *status, unsigned uid)
{
    json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(status, "users"), i, entry)
    {
        if (json_integer_value(json_object_get(entry, "uid")) == (json_int_t)uid) {
            return entry;
        }
    }
    return NULL;
}

static bool is_attacker_removed(void *ctx)
{
    json_t *status = host_lab_status(ctx, 0);
    bool gone = user_of(status, ATTACKER) == NULL;
    json_decref(status);
    return gone;
}

static void the_status_shows_the_resources_of_each_user(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *name;
        json_int_t value;
    } fields[] = {{"processes", 1}, {"segments", 1},          {"segments_max", 20},
                  {"memory", 4096}, {"memory_max", 64 << 20}, {"pipes", 2},
                  {"pipes_max", 8}, {"notes_max", 10}};
    attacks(fixture, ATTACKER, exhausts_segments);
    json_t *status = host_lab_status(&fixture->lab, 0);
    json_t *victim = user_of(status, VICTIM);
    assert_non_null(victim);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fields); i++) {
        assert_int_equal(json_integer_value(json_object_get(victim, fields[i].name)),
                         fields[i].value);
    }
    json_decref(status);
    /* No resource of a user remains after the user's processes have ended. */
    host_lab_wait(is_attacker_removed, &fixture->lab, "the attacker to be forgotten");
}

/* Each of the two users works, and attacks the other in several ways, all at once. */
static void both_attack_each_other(void **state)
{
    static void (*const ways[])(struct fixture * fixture) = {administers, takes_notes, guesses_keys,
                                                             floods_the_log};
    struct fixture *first = *state;
    static struct fixture second;
    struct fixture *targets[] = {first, &second};
    pid_t pids[2][VIA_ARRAY_COUNT(ways)];
    second = (struct fixture){.lab = first->lab};
    start_victim(&second, ATTACKER);
    for (unsigned i = 0; i < 2; i++) {
        let_it_work(targets[i]);
    }
    for (size_t k = 0; k < VIA_ARRAY_COUNT(ways); k++) {
        pids[0][k] = start_child(ATTACKER, ways[k], first);
        pids[1][k] = start_child(VICTIM, ways[k], &second);
    }
    for (size_t k = 0; k < VIA_ARRAY_COUNT(ways); k++) {
        finish_attack(first, pids[0][k]);
        finish_attack(&second, pids[1][k]);
    }
    for (unsigned i = 0; i < 2; i++) {
        let_it_work(targets[i]);
    }
}

/* Simulates a kernel before 5.16, which can not wait for several words, for this process and its
 * children. */
static bool forbid_futex_waitv(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = VIA_ARRAY_COUNT(code), .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int set_up_old_kernel(void **state)
{
    if (!forbid_futex_waitv()) {
        *state = NULL;
        return 0;
    }
    return set_up(state);
}

static int tear_down_old_kernel(void **state)
{
    return *state != NULL ? tear_down(state) : 0;
}

static void an_old_kernel_wakes_them_too(void **state)
{
    if (*state == NULL) {
        skip();
    }
    attacks(*state, ATTACKER, spoils_bells);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_user_can_not_stop_or_cut),
        TEST(a_stranger_gets_the_reason),
        TEST(notes_are_not_taken_or_replaced),
        TEST(keys_are_not_guessed),
        TEST(what_is_read_only_stays_so),
        TEST(bells_are_each_users_own),
        TEST(segments_have_a_quota),
        TEST(memory_has_a_quota),
        TEST(pipes_have_a_quota),
        TEST(notes_have_a_quota),
        TEST(endpoints_have_a_quota),
        TEST(endpoints_of_the_owner_are_refused),
        TEST(silent_connections_keep_nobody_out),
        TEST(the_log_stays_small),
        TEST(the_status_shows_the_resources_of_each_user),
        TEST(both_attack_each_other),
        /* Must be the last test, because the filter stays. */
        cmocka_unit_test_setup_teardown(an_old_kernel_wakes_them_too, set_up_old_kernel,
                                        tear_down_old_kernel),
    };
    if (geteuid() != 0) {
        puts("skipped: only root can be two users");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
