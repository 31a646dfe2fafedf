/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Run directories, shared memory, and the time that a thread polls before it sleeps. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/types.h"
#include "host/host_memory.h"
#include "host/host_wait.h"
#include "host/rundir.h"

/* --- run directories -------------------------------------------------------------------------- */

static void forget_environment(void)
{
    unsetenv("VIADUCT_RUNDIR");
    unsetenv("VIADUCT_FABRIC");
    unsetenv("XDG_RUNTIME_DIR");
}

static void the_default_directory_is_the_users(void **state)
{
    (void)state;
    struct via_rundir_path path;
    struct via_error err;
    char expected[64];
    forget_environment();
    assert_int_equal(via_rundir_default(NULL, &path, &err), 0);
    if (geteuid() == 0) {
        strcpy(expected, "/run/viaduct/default");
    } else {
        snprintf(expected, sizeof(expected), "/tmp/viaduct-%u/default", (unsigned)geteuid());
    }
    assert_string_equal(path.text, expected);
    setenv("VIADUCT_FABRIC", "lab", 1);
    assert_int_equal(via_rundir_default(NULL, &path, &err), 0);
    assert_non_null(strstr(path.text, "/lab"));
    assert_int_equal(via_rundir_default("other", &path, &err), 0);
    assert_non_null(strstr(path.text, "/other"));
    setenv("VIADUCT_RUNDIR", "/somewhere/else", 1);
    assert_int_equal(via_rundir_default("other", &path, &err), 0);
    assert_string_equal(path.text, "/somewhere/else");
    forget_environment();
}

/* Overrides the function of libc, to act like another user between two calls. */
static const char *swap_for;

int mkdir(const char *path, mode_t mode)
{
    int rc = mkdirat(AT_FDCWD, path, mode);
    if (rc == 0 && swap_for != NULL) {
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(symlink(swap_for, path), 0);
    }
    return rc;
}

static void a_link_in_the_place_of_the_new_directory_is_not_followed(void **state)
{
    (void)state;
    char base[] = "/tmp/viaduct-swap-XXXXXX";
    char path[64];
    char victim[64];
    struct stat st;
    struct via_error err;
    mode_t mask = umask(077);
    assert_non_null(mkdtemp(base));
    snprintf(victim, sizeof(victim), "%s/victim", base);
    snprintf(path, sizeof(path), "%s/run", base);
    assert_int_equal(mkdirat(AT_FDCWD, victim, 0700), 0);
    swap_for = victim;
    assert_true(via_rundir_make(path, true, &err) < 0);
    swap_for = NULL;
    assert_int_equal(stat(victim, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(via_rundir_make(path, true, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0711); /* independent of the umask */
    umask(mask);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(victim), 0);
    assert_int_equal(rmdir(base), 0);
}

static void names_that_leave_the_directory_are_no_names(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "", ".", "..", "../x", "a/b", ".hidden", "a b", "123456789012345678901234567890123"};
    struct via_rundir_path path;
    struct via_error err;
    forget_environment();
    for (size_t i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        assert_int_equal(via_rundir_default(wrong[i], &path, &err), -EINVAL);
        assert_non_null(strstr(err.text, "fabric name '"));
    }
}

static void paths_fit_a_socket_address_or_are_refused(void **state)
{
    (void)state;
    struct via_rundir_path path;
    struct via_error err;
    char dir[200];
    assert_int_equal(via_rundir_link_path("/r", 7, 3, 1, &path, &err), 0);
    assert_string_equal(path.text, "/r/link-3-7-1.sock");
    assert_int_equal(via_rundir_attach_path("/r", 7, &path, &err), 0);
    assert_string_equal(path.text, "/r/host-7.attach");
    memset(dir, 'd', sizeof(dir));
    dir[0] = '/';
    dir[107 - strlen("/host-7.ctl")] = '\0';
    assert_int_equal(via_rundir_control_path(dir, 7, &path, &err), 0);
    assert_int_equal(strlen(path.text), 107);
    assert_int_equal(via_rundir_control_path(dir, 17, &path, &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "a socket address holds at most 107"));
}

static void a_directory_is_ours_alone_or_refused(void **state)
{
    (void)state;
    char top[64] = "/tmp/viaduct-test-XXXXXX";
    char path[96];
    char link[96];
    struct stat st;
    struct via_error err;
    assert_non_null(mkdtemp(top));
    snprintf(path, sizeof(path), "%s/a/b/", top);
    snprintf(link, sizeof(link), "%s/link", top);
    assert_int_equal(via_rundir_make(path, false, &err), 0);
    assert_int_equal(via_rundir_make(path, false, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);

    assert_int_equal(chmod(path, 0750), 0);
    assert_int_equal(via_rundir_make(path, false, &err), -EPERM);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(via_rundir_make(link, false, &err), -ELOOP);
    assert_int_equal(unlink(link), 0);
    int fd = open(link, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(via_rundir_make(link, false, &err), -ENOTDIR);
    close(fd);
    assert_int_equal(via_rundir_make("relative/path", false, &err), -EINVAL);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_int_equal(via_rundir_make(path, false, &err), -EPERM);
        assert_non_null(strstr(err.text, "belongs to uid 65534"));
        assert_int_equal(chown(path, 0, 0), 0);
        /* A user that may write to the parent directory may replace the run directory by another
         * one. */
        snprintf(path, sizeof(path), "%s/a", top);
        assert_int_equal(chmod(path, 0777), 0);
        snprintf(path, sizeof(path), "%s/a/b", top);
        assert_int_equal(via_rundir_make(path, false, &err), -EPERM);
        assert_non_null(strstr(err.text, "others may replace what is in it"));
    }
    unlink(link);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/a", top);
    rmdir(path);
    rmdir(top);
}

static void others_may_enter_but_not_list(void **state)
{
    (void)state;
    char top[64] = "/tmp/viaduct-test-XXXXXX";
    char path[96];
    struct stat st;
    struct via_error err;
    assert_non_null(mkdtemp(top));
    mode_t umask_before = umask(077); /* like viaductd's */
    snprintf(path, sizeof(path), "%s/a", top);
    assert_int_equal(via_rundir_make(path, true, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0711);
    assert_int_equal(via_rundir_make(path, true, &err), 0);
    assert_int_equal(via_rundir_make(path, false, &err), 0);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(via_rundir_make(path, true, &err), -EPERM);
    assert_non_null(strstr(err.text, "mode 700 keeps out users that may attach"));
    umask(umask_before);
    rmdir(path);
    rmdir(top);
}

/* --- shared memory ---------------------------------------------------------------------------- */

static void shared_memory_keeps_its_size(void **state)
{
    (void)state;
    struct via_host_memory memory;
    struct via_error err;
    struct stat st;
    assert_int_equal(via_host_memory_open(&memory, "test", 8192, false, &err), 0);
    assert_int_equal(ftruncate(memory.fd, 0), -1);
    assert_int_equal(ftruncate(memory.fd, 1 << 20), -1);
    assert_int_equal(fstat(memory.fd, &st), 0);
    assert_int_equal(st.st_blocks * 512, 8192); /* memory is allocated, not only reserved */
    void *again = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
    assert_true(again != MAP_FAILED);
    strcpy(again, "seen");
    assert_string_equal(memory.base, "seen");
    munmap(again, 8192);
    via_host_memory_close(&memory);
    assert_int_equal(memory.fd, -1);

    assert_int_equal(via_host_memory_open(&memory, "test", 4096, true, &err), 0);
    assert_true(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, memory.fd, 0) == MAP_FAILED);
    strcpy(memory.base, "ours");
    via_host_memory_close(&memory);
}

static void no_memory_is_a_result_not_a_signal(void **state)
{
    (void)state;
    struct via_host_memory memory;
    struct via_error err;
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit little = {.rlim_cur = 4096, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    int rc = via_host_memory_open(&memory, "test", 8192, false, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, -EFBIG);
    assert_string_equal(err.text, "8192 bytes of shared memory (test): ftruncate: File too large");
    assert_int_equal(memory.fd, -1);
}

/* --- polling before sleeping ----------------------------------------------------------------- */

#define MAX_NS (50 * VIA_USEC_NS)

static void a_dialogue_is_waited_for(void **state)
{
    (void)state;
    struct via_host_spin spin;
    via_host_spin_init(&spin, MAX_NS);
    assert_int_equal(spin.budget_ns, 0);
    via_host_spin_learn(&spin, 10 * VIA_USEC_NS, false);
    assert_int_equal(spin.budget_ns, 0); /* one success may be chance */
    for (unsigned i = 0; i < 5; i++) {
        via_host_spin_learn(&spin, 10 * VIA_USEC_NS, false);
    }
    assert_in_range(spin.budget_ns, 10 * VIA_USEC_NS, MAX_NS);
    for (unsigned i = 0; i < 1000; i++) {
        via_host_spin_learn(&spin, 3 * VIA_USEC_NS, true);
    }
    assert_in_range(spin.budget_ns, 3 * VIA_USEC_NS, 8 * VIA_USEC_NS);
}

static void waits_that_are_long_make_it_stop_looking(void **state)
{
    (void)state;
    struct via_host_spin spin;
    via_host_spin_init(&spin, MAX_NS);
    for (unsigned i = 0; i < 10; i++) {
        via_host_spin_learn(&spin, 30 * VIA_USEC_NS, i > 3);
    }
    assert_true(spin.budget_ns > 0);
    for (unsigned i = 0; i < 10; i++) {
        via_host_spin_learn(&spin, VIA_MSEC_NS, false);
    }
    assert_int_equal(spin.budget_ns, 0);
    via_host_spin_init(&spin, 0);
    for (unsigned i = 0; i < 10; i++) {
        via_host_spin_learn(&spin, 0, false);
    }
    assert_int_equal(spin.budget_ns, 0); /* turned off */
}

static void an_oversubscribed_machine_is_recognized(void **state)
{
    (void)state;
    char path[] = "/tmp/viaduct-test-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(unlink(path), 0);
    static const char load[] = "0.20 0.18 0.12 3/80 11206\n";
    assert_int_equal(write(fd, load, sizeof(load) - 1), sizeof(load) - 1);
    assert_true(via_host_spin_is_crowded(fd, 2));
    assert_false(via_host_spin_is_crowded(fd, 3));
    assert_false(via_host_spin_is_crowded(-1, 1));
    close(fd);
    assert_true(via_host_spin_cpus() >= 1);
}

/* --- the actions of a transfer thread between two turns --------------------------------------- */

static bool flag_is_set(void *ctx)
{
    return *(const bool *)ctx;
}

/* Waits of 10 us that end by polling, until the thread has learned to poll. */
static uint64_t teach_to_poll(struct via_host_wait *wait)
{
    uint64_t now_ns = VIA_SEC_NS;
    for (unsigned i = 0; i < 8; i++) {
        (void)via_host_wait_turned(wait, now_ns, 0, VIA_NEVER_NS);
        now_ns += 10 * VIA_USEC_NS;
        assert_int_equal(via_host_wait_turned(wait, now_ns, 1, VIA_NEVER_NS), VIA_HOST_WAIT_TURN);
    }
    return now_ns;
}

static void a_thread_polls_on_for_as_long_as_it_has_learned_then_sleeps(void **state)
{
    (void)state;
    bool crowded = false;
    uint64_t deadline_ns = VIA_NEVER_NS;
    struct via_host_wait wait;
    via_host_wait_init(&wait, MAX_NS, flag_is_set, &crowded);
    assert_int_equal(via_host_wait_turned(&wait, 1, 0, VIA_NEVER_NS), VIA_HOST_WAIT_ARM);
    uint64_t now_ns = teach_to_poll(&wait);
    assert_int_equal(via_host_wait_turned(&wait, now_ns, 0, VIA_NEVER_NS), VIA_HOST_WAIT_POLL);
    assert_in_range(wait.poll_until_ns, now_ns + 10 * VIA_USEC_NS, now_ns + MAX_NS);
    now_ns = wait.poll_until_ns;
    assert_int_equal(via_host_wait_turned(&wait, now_ns, 0, now_ns), VIA_HOST_WAIT_TURN);
    assert_int_equal(via_host_wait_turned(&wait, now_ns, 0, VIA_NEVER_NS), VIA_HOST_WAIT_ARM);
    assert_int_equal(via_host_wait_armed(&wait, now_ns, VIA_ARM_SLEEP, &deadline_ns),
                     VIA_HOST_WAIT_SLEEP);
    assert_int_equal(deadline_ns, VIA_NEVER_NS);
    uint64_t budget_ns = wait.spin.budget_ns;
    via_host_wait_slept(&wait, now_ns + VIA_MSEC_NS);
    assert_true(wait.spin.budget_ns < budget_ns); /* the wait was long */
}

static void on_a_crowded_machine_no_thread_polls_on(void **state)
{
    (void)state;
    bool crowded = false;
    uint64_t deadline_ns = VIA_NEVER_NS;
    struct via_host_wait wait;
    via_host_wait_init(&wait, MAX_NS, flag_is_set, &crowded);
    uint64_t now_ns = teach_to_poll(&wait) + VIA_MSEC_NS;
    crowded = true;
    assert_int_equal(via_host_wait_turned(&wait, now_ns, 0, VIA_NEVER_NS), VIA_HOST_WAIT_ARM);
    assert_int_equal(via_host_wait_armed(&wait, now_ns, VIA_ARM_FENCING, &deadline_ns),
                     VIA_HOST_WAIT_FENCE);
    crowded = false;
    now_ns += VIA_MSEC_NS;
    assert_int_equal(via_host_wait_armed(&wait, now_ns, VIA_ARM_FENCING, &deadline_ns),
                     VIA_HOST_WAIT_POLL);
}

static void what_only_the_control_thread_can_do_is_asked_of_it(void **state)
{
    (void)state;
    bool crowded = false;
    uint64_t deadline_ns = VIA_NEVER_NS;
    struct via_host_wait wait;
    via_host_wait_init(&wait, 0, flag_is_set, &crowded);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(via_host_wait_armed(&wait, 1000, VIA_ARM_BUSY, &deadline_ns),
                         VIA_HOST_WAIT_TURN);
        assert_int_equal(deadline_ns, VIA_NEVER_NS);
    }
    assert_int_equal(via_host_wait_armed(&wait, 1000, VIA_ARM_BUSY, &deadline_ns),
                     VIA_HOST_WAIT_WAKE_CONTROL);
    assert_in_range(deadline_ns, 1001, VIA_MSEC_NS); /* the thread soon polls again nevertheless */
}

static void the_wait_for_a_process_is_learned_apart(void **state)
{
    (void)state;
    bool crowded = false;
    struct via_host_wait wait;
    via_host_wait_init(&wait, MAX_NS, flag_is_set, &crowded);
    uint64_t now_ns = teach_to_poll(&wait);
    wait.rang = true;
    assert_int_equal(via_host_wait_turned(&wait, now_ns, 0, VIA_NEVER_NS), VIA_HOST_WAIT_ARM);
    via_host_wait_slept(&wait, now_ns + 1);
    assert_int_equal(via_host_wait_turned(&wait, now_ns + 2, 0, VIA_NEVER_NS), VIA_HOST_WAIT_POLL);
}

/* A thread whose turn, bell and node the test controls. */
struct loop {
    unsigned work;
    bool has_rung;
    enum via_arm armed;
    unsigned arms_count, acts_count;
    enum via_host_wait_step step;
    uint64_t now_ns, deadline_ns;
};

static unsigned loop_turn(void *ctx, uint64_t now_ns, uint64_t *deadline_ns)
{
    const struct loop *loop = ctx;
    assert_int_equal(*deadline_ns, VIA_NEVER_NS);
    *deadline_ns = now_ns + VIA_SEC_NS;
    return loop->work;
}

static bool loop_arm(void *ctx, enum via_arm *ret_armed)
{
    struct loop *loop = ctx;
    loop->arms_count++;
    *ret_armed = loop->armed;
    return !loop->has_rung;
}

static void loop_act(void *ctx, enum via_host_wait_step step, uint64_t now_ns, uint64_t deadline_ns)
{
    struct loop *loop = ctx;
    loop->acts_count++;
    loop->step = step;
    loop->now_ns = now_ns;
    loop->deadline_ns = deadline_ns;
}

static void a_turn_is_followed_by_one_step(void **state)
{
    (void)state;
    static const struct via_host_wait_ops ops = {
        .turn = loop_turn, .arm = loop_arm, .act = loop_act};
    bool crowded = false;
    struct loop loop = {.work = 1, .armed = VIA_ARM_SLEEP};
    struct via_host_wait wait;
    via_host_wait_init(&wait, 0, flag_is_set, &crowded);
    via_host_wait_turn(&wait, 1000, &ops, &loop);
    assert_int_equal(loop.step, VIA_HOST_WAIT_TURN); /* there was work: it does not arm */
    assert_int_equal(loop.arms_count, 0);
    loop.work = 0;
    loop.has_rung = true;
    via_host_wait_turn(&wait, 2000, &ops, &loop);
    assert_int_equal(loop.step, VIA_HOST_WAIT_TURN); /* no sleep: the bell may bring work */
    assert_int_equal(loop.arms_count, 1);
    loop.has_rung = false;
    via_host_wait_turn(&wait, 3000, &ops, &loop);
    assert_int_equal(loop.step, VIA_HOST_WAIT_SLEEP);
    assert_int_equal(loop.now_ns, 3000);
    assert_int_equal(loop.deadline_ns, 3000 + VIA_SEC_NS);
    loop.armed = VIA_ARM_BUSY;
    for (unsigned i = 0; i < 3; i++) {
        via_host_wait_turn(&wait, 4000 + i, &ops, &loop);
        assert_int_equal(loop.step, i < 2 ? VIA_HOST_WAIT_TURN : VIA_HOST_WAIT_WAKE_CONTROL);
    }
    assert_in_range(loop.deadline_ns, 4003, VIA_MSEC_NS);
    assert_int_equal(loop.acts_count, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_directory_is_the_users),
        cmocka_unit_test(a_link_in_the_place_of_the_new_directory_is_not_followed),
        cmocka_unit_test(names_that_leave_the_directory_are_no_names),
        cmocka_unit_test(paths_fit_a_socket_address_or_are_refused),
        cmocka_unit_test(a_directory_is_ours_alone_or_refused),
        cmocka_unit_test(others_may_enter_but_not_list),
        cmocka_unit_test(shared_memory_keeps_its_size),
        cmocka_unit_test(no_memory_is_a_result_not_a_signal),
        cmocka_unit_test(a_dialogue_is_waited_for),
        cmocka_unit_test(waits_that_are_long_make_it_stop_looking),
        cmocka_unit_test(an_oversubscribed_machine_is_recognized),
        cmocka_unit_test(a_thread_polls_on_for_as_long_as_it_has_learned_then_sleeps),
        cmocka_unit_test(on_a_crowded_machine_no_thread_polls_on),
        cmocka_unit_test(what_only_the_control_thread_can_do_is_asked_of_it),
        cmocka_unit_test(the_wait_for_a_process_is_learned_apart),
        cmocka_unit_test(a_turn_is_followed_by_one_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
