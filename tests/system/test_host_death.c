/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Processes are killed during operations: each operation is completed or cancelled, and leaves no
 * resources behind. The hosts are daemons, so that descriptors and memory can be counted. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/system/host_raw.h"

#define BYTES 65536u
#define PUTTERS 3u

static int set_up(void **state)
{
    struct host_lab *lab = calloc(1, sizeof(*lab));
    host_lab_init(lab, 3, false, false);
    for (unsigned i = 0; i < 3; i++) {
        host_lab_spawn(lab, i, NULL);
    }
    host_lab_wait_routes(lab);
    *state = lab;
    return 0;
}

static void kill_child(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

struct gone {
    struct host_lab *lab;
    unsigned host;
    unsigned processes;
    unsigned fds;
    pid_t daemon;
};

static bool is_gone(void *ctx)
{
    const struct gone *gone = ctx;
    return host_lab_processes(gone->lab, gone->host) == gone->processes &&
           host_lab_fds(gone->daemon) == gone->fds;
}

static void assert_nothing_left(struct host_lab *lab, unsigned host, unsigned fds, const char *what)
{
    struct gone gone = {.lab = lab, .host = host, .fds = fds, .daemon = lab->daemons[host]};
    host_lab_wait(is_gone, &gone, what);
}

/* Shared memory of a process that survives; the processes that die put into it. */
struct target {
    struct via_attach *attach;
    struct via_segment *segment;
    uint64_t handle;
    unsigned host;
};

static void open_target(struct target *target, struct host_lab *lab, unsigned host)
{
    target->host = host;
    target->attach = host_lab_attach(lab, host);
    assert_int_equal(via_segment_new(target->attach, PUTTERS * BYTES,
                                     VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE,
                                     &target->segment),
                     0);
    target->handle = via_segment_handle(target->segment);
}

static void close_target(struct target *target)
{
    via_segment_free(target->segment);
    via_attach_close(target->attach);
}

static uint64_t word_at(const struct target *target, size_t index)
{
    const _Atomic uint64_t *words = via_segment_base(target->segment);
    return atomic_load_explicit(&words[index], memory_order_acquire);
}

/* --- operations that have begun are completed ------------------------------------------------ */

#define LAST_PUTS 200u

static void put_without_a_ring(struct host_lab *lab, void *ctx)
{
    const struct target *target = ctx;
    struct host_raw raw;
    host_raw_open(&raw, lab, 0);
    /* All commands enter the pipe at once, and the process is killed before any command can arrive:
     * it does not even ring the host. */
    for (uint64_t i = 0; i < LAST_PUTS; i++) {
        uint64_t value = i + 1;
        struct via_command command = {.kind = VIA_OP_PUT,
                                      .source = VIA_SOURCE_BODY,
                                      .destination = (uint16_t)target->host,
                                      .bytes = 8,
                                      .segment = target->handle,
                                      .offset = 8 * i};
        if (via_pipe_send(&raw.commands[0], &command, sizeof(command), &value, 8) != 0) {
            abort();
        }
    }
    kill(getpid(), SIGKILL);
}

static bool all_have_arrived(void *ctx)
{
    for (size_t i = 0; i < LAST_PUTS; i++) {
        if (word_at(ctx, i) != i + 1) {
            return false;
        }
    }
    return true;
}

static void accepted_commands_of_a_killed_process_are_finished(void **state)
{
    struct host_lab *lab = *state;
    struct target target;
    unsigned fds = host_lab_fds(lab->daemons[0]);
    open_target(&target, lab, 2);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        put_without_a_ring(lab, &target);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    host_lab_wait(all_have_arrived, &target, "the last puts of the dead");
    close_target(&target);
    assert_nothing_left(lab, 0, fds, "the dead process to be forgotten");
}

/* --- operations that can not complete are cancelled ------------------------------------------- */

static void use_everything(struct host_lab *lab, void *ctx)
{
    const struct target *target = ctx;
    struct via_attach *attach = host_lab_attach(lab, 0);
    struct via_segment *segment;
    struct via_remote *remote;
    char data[4096] = {0};
    /* Host 2 is unreachable: all operations to it wait. */
    if (via_segment_new(attach, BYTES, VIADUCT_SEGMENT_READ, &segment) != 0 ||
        via_endpoint_open(attach, 77) != 0 ||
        via_board_post(attach, 1, "k", 1, "v", 1, 600000) != 0 ||
        via_remote_open(attach, target->host, target->handle, BYTES, &remote) != 0) {
        abort();
    }
    for (unsigned i = 0; i < 50; i++) {
        if (via_remote_put(remote, 0, data, sizeof(data), 0) != 0 ||
            via_remote_put_from(remote, 0, segment, 0, BYTES, 0) != 0 ||
            via_message_send(attach, 2, 77, 77, data, 100) != 0) {
            abort();
        }
    }
}

static bool no_note_hangs(void *ctx)
{
    return host_lab_counter(ctx, 1, "notes") == 0;
}

static void commands_for_an_absent_host_are_given_up(void **state)
{
    struct host_lab *lab = *state;
    struct target target;
    unsigned fds = host_lab_fds(lab->daemons[0]);
    open_target(&target, lab, 2);
    host_lab_cut(lab, 1, 2, "cut");
    host_lab_wait_hops(lab, 0, 2, -1);

    pid_t pid = host_lab_fork(use_everything, lab, &target);
    assert_int_equal(host_lab_processes(lab, 0), 1);
    assert_int_equal(host_lab_counter(lab, 1, "notes"), 1);
    kill_child(pid);
    assert_nothing_left(lab, 0, fds, "the dead process to be forgotten");
    host_lab_wait(no_note_hangs, lab, "its note to be taken down");

    /* A cancelled operation does not arrive later, and the path is not blocked. */
    host_lab_cut(lab, 1, 2, "mend");
    host_lab_wait_hops(lab, 0, 2, 2);
    struct via_attach *attach = host_lab_attach(lab, 0);
    struct via_remote *remote;
    uint64_t value = 5;
    assert_int_equal(via_endpoint_open(attach, 77), 0);
    assert_int_equal(via_remote_open(attach, 2, target.handle, BYTES, &remote), 0);
    assert_int_equal(via_remote_put(remote, 0, &value, 8, 0), 0);
    assert_int_equal(via_attach_quiet(attach), 0);
    assert_int_equal(word_at(&target, 0), 5);
    via_remote_close(remote);
    via_attach_close(attach);
    close_target(&target);
}

/* The index of a segment becomes free when the host has removed its process, not when the process
 * dies. */
static void memory_of_the_living_is_not_forgotten_with_the_dead(void **state)
{
    struct host_lab *lab = *state;
    struct target absent;
    struct target near;
    struct via_segment *segment;
    struct via_remote *remote;
    open_target(&absent, lab, 2);
    open_target(&near, lab, 1);
    struct via_attach *attach = host_lab_attach(lab, 0);
    assert_int_equal(via_remote_open(attach, 1, near.handle, BYTES, &remote), 0);
    assert_int_equal(via_segment_new(attach, BYTES, VIADUCT_SEGMENT_READ, &segment), 0);
    unsigned fds = host_lab_fds(lab->daemons[0]);
    via_segment_free(segment);
    host_lab_cut(lab, 1, 2, "cut");
    host_lab_wait_hops(lab, 0, 2, -1);

    pid_t pid = host_lab_fork(use_everything, lab, &absent);
    kill_child(pid);
    assert_int_equal(via_segment_new(attach, BYTES, VIADUCT_SEGMENT_READ, &segment), 0);
    struct gone gone = {lab, 0, 1, fds, lab->daemons[0]};
    host_lab_wait(is_gone, &gone, "the dead process to be forgotten");
    memset(via_segment_base(segment), 3, 8);
    assert_int_equal(via_remote_put_from(remote, 0, segment, 0, 8, 0), 0);
    assert_int_equal(via_attach_quiet(attach), 0);
    assert_int_equal(word_at(&near, 0), UINT64_C(0x0303030303030303));

    host_lab_cut(lab, 1, 2, "mend");
    host_lab_wait_hops(lab, 0, 2, 2);
    via_remote_close(remote);
    via_attach_close(attach);
    close_target(&near);
    close_target(&absent);
}

/* --- a receiver that is killed ---------------------------------------------------------------- */

static void receive_nothing(struct host_lab *lab, void *ctx)
{
    (void)ctx;
    struct via_attach *attach = host_lab_attach(lab, 2);
    if (via_endpoint_open(attach, 5) != 0) {
        abort();
    }
}

static void senders_to_a_killed_receiver_get_an_error(void **state)
{
    struct host_lab *lab = *state;
    pid_t pid = host_lab_fork(receive_nothing, lab, NULL);
    struct host_raw raw;
    struct via_reply reply;
    host_raw_open(&raw, lab, 0);
    /* More messages than the pipe holds: the others wait at the process's host. */
    unsigned sent = 0;
    for (uint64_t deadline_ns = host_lab_now_ns() + VIA_SEC_NS;
         sent < 250 && host_lab_now_ns() < deadline_ns;) {
        struct via_command command = {.kind = VIA_OP_MESSAGE,
                                      .source = VIA_SOURCE_BODY,
                                      .destination = 2,
                                      .bytes = 32,
                                      .cookie = sent + 1,
                                      .a.endpoint = 5};
        unsigned char body[32] = {0};
        if (via_pipe_send(&raw.commands[0], &command, sizeof(command), body, sizeof(body)) == 0) {
            sent++;
        }
        host_raw_ring(&raw, 0);
    }
    unsigned taken = 0;
    while (host_raw_reply(&raw, &reply, NULL, 200)) {
        assert_int_equal(reply.status, 0);
        taken++;
    }
    assert_true(taken < sent);
    kill_child(pid);
    for (unsigned i = taken; i < sent; i++) {
        assert_true(host_raw_reply(&raw, &reply, NULL, 60000));
        assert_int_equal(reply.status, -ENOENT);
    }
    host_raw_close(&raw);
}

/* --- the owner of memory is killed ------------------------------------------------------------ */

struct passed {
    uint64_t handle;
};

static void own_memory(struct host_lab *lab, void *ctx)
{
    struct passed *passed = ctx;
    struct via_attach *attach = host_lab_attach(lab, 2);
    struct via_segment *segment;
    if (via_segment_new(attach, BYTES, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &segment) !=
        0) {
        abort();
    }
    passed->handle = via_segment_handle(segment);
}

static void memory_of_a_killed_process_is_out_of_reach(void **state)
{
    struct host_lab *lab = *state;
    struct passed *passed =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned fds = host_lab_fds(lab->daemons[2]);
    pid_t pid = host_lab_fork(own_memory, lab, passed);
    struct via_attach *attach = host_lab_attach(lab, 0);
    struct via_remote *remote;
    assert_int_equal(via_remote_open(attach, 2, passed->handle, BYTES, &remote), 0);
    assert_int_equal(via_remote_put(remote, 0, "x", 1, 0), 0);
    assert_int_equal(via_attach_quiet(attach), 0);
    kill_child(pid);
    assert_nothing_left(lab, 2, fds, "the owner to be forgotten");
    assert_int_equal(via_remote_put(remote, 0, "x", 1, 0), 0);
    int rc = via_attach_quiet(attach);
    assert_true(rc == -EACCES || rc == -ECONNRESET);
    via_remote_close(remote);
    via_attach_close(attach);
    munmap(passed, 4096);
}

/* --- killed under load ------------------------------------------------------------------------ */

/* Each process puts to a place of its own: two writers to one place would leave undefined
 * contents. */
static _Noreturn void put_until_killed(struct host_lab *lab, const struct target *target,
                                       uint64_t off, int ready_fd)
{
    struct via_attach *attach = host_lab_attach(lab, 0);
    struct via_segment *segment;
    struct via_remote *remote;
    static unsigned char data[BYTES];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (via_segment_new(attach, BYTES, VIADUCT_SEGMENT_READ, &segment) != 0 ||
        via_remote_open(attach, target->host, target->handle, PUTTERS * BYTES, &remote) != 0) {
        _exit(1);
    }
    for (bool first = true;; first = false) {
        if (via_remote_put(remote, off, data, BYTES, 0) != 0 ||
            via_remote_put_from(remote, off, segment, 0, BYTES, 0) != 0) {
            _exit(2);
        }
        if (first && write(ready_fd, "+", 1) != 1) {
            _exit(3);
        }
    }
}

static void killed_in_the_middle_of_puts(void **state)
{
    struct host_lab *lab = *state;
    struct target target;
    unsigned fds = host_lab_fds(lab->daemons[0]);
    open_target(&target, lab, 2);
    for (unsigned i = 0; i < 20; i++) {
        pid_t pids[PUTTERS];
        int ready[2];
        char byte;
        assert_int_equal(pipe(ready), 0);
        for (size_t k = 0; k < VIA_ARRAY_COUNT(pids); k++) {
            pids[k] = fork();
            assert_true(pids[k] >= 0);
            if (pids[k] == 0) {
                put_until_killed(lab, &target, k * BYTES, ready[1]);
            }
        }
        for (size_t k = 0; k < VIA_ARRAY_COUNT(pids); k++) {
            assert_int_equal(read(ready[0], &byte, 1), 1);
        }
        close(ready[0]);
        close(ready[1]);
        poll(NULL, 0, (int)i * 3);
        for (size_t k = 0; k < VIA_ARRAY_COUNT(pids); k++) {
            kill_child(pids[k]);
        }
    }
    assert_nothing_left(lab, 0, fds, "all killed processes to be forgotten");
    assert_int_equal(host_lab_counter(lab, 0, "detached"), 60);
    close_target(&target);
}

static void a_thousand_killed_processes_leave_nothing(void **state)
{
    struct host_lab *lab = *state;
    struct target target;
    unsigned fds = host_lab_fds(lab->daemons[0]);
    open_target(&target, lab, 2);
    for (unsigned i = 0; i < 1000; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct host_raw raw;
            void *base;
            host_raw_open(&raw, lab, 0);
            struct via_command command = {.kind = VIA_OP_PUT,
                                          .source = VIA_SOURCE_SEGMENT,
                                          .destination = 2,
                                          .bytes = 4096,
                                          .segment = target.handle,
                                          .a.source_segment = host_raw_segment(&raw, 4096, &base)};
            struct via_attach_request request = host_raw_request(&raw, VIA_ATTACH_ENDPOINT_OPEN);
            request.endpoint = 1 + i;
            host_raw_request_wait(&raw, &request, -1, NULL);
            host_raw_command(&raw, &command, NULL, 0);
            kill(getpid(), SIGKILL);
        }
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    assert_nothing_left(lab, 0, fds, "a thousand processes to be forgotten");
    assert_int_equal(host_lab_counter(lab, 0, "detached"), 1000);
    close_target(&target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(accepted_commands_of_a_killed_process_are_finished, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(commands_for_an_absent_host_are_given_up, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(memory_of_the_living_is_not_forgotten_with_the_dead, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(senders_to_a_killed_receiver_get_an_error, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(memory_of_a_killed_process_is_out_of_reach, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(killed_in_the_middle_of_puts, set_up, host_lab_tear_down),
        cmocka_unit_test_setup_teardown(a_thousand_killed_processes_leave_nothing, set_up,
                                        host_lab_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
