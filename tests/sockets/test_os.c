/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Children do not inherit cached facts about their parent process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "sockets/process/os.h"

static void assert_well(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_child_has_another_pid(void **state)
{
    (void)state;
    assert_non_null(via_os_pid_word);
    assert_int_equal(*via_os_pid_word, getpid());
    assert_int_equal(via_os_pid(), getpid());
    /* A child made by the bare system call: no atfork handler runs. */
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        _exit(via_os_pid() == getpid() && *via_os_pid_word == 0 ? 0 : 1);
    }
    assert_well(pid);
    pid = fork();
    if (pid == 0) {
        via_os_forked();
        _exit(via_os_pid() == getpid() && *via_os_pid_word == getpid() ? 0 : 1);
    }
    assert_well(pid);
    assert_int_equal(*via_os_pid_word, getpid());
}

static bool write_map(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return done;
}

#define NOT_TO_BE_HAD 77

/* Runs in a user namespace that maps only one user. */
static int with_one_user(void)
{
    char map[32];
    snprintf(map, sizeof(map), "0 %u 1", getuid());
    if (unshare(CLONE_NEWUSER) != 0 || !write_map("/proc/self/uid_map", map)) {
        return NOT_TO_BE_HAD;
    }
    return via_os_uid_is_one(0) && !via_os_uid_is_one(65534) ? 0 : 1;
}

static void users_without_a_number_are_not_one(void **state)
{
    (void)state;
    int status;
    assert_true(via_os_uid_is_one(0) && via_os_uid_is_one(getuid()));
    pid_t pid = fork();
    if (pid == 0) {
        _exit(with_one_user());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_TO_BE_HAD) {
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int sealed_memory(unsigned flags, size_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd >= 0) {
        assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    }
    return fd;
}

static bool is_safe(int fd, uint64_t bytes)
{
    uint64_t found = 0;
    return via_os_is_safe_memory(fd, &found) && found == bytes;
}

#define HUGE_BYTES (UINT64_C(1) << 30) /* a multiple of every size of huge pages below it */

static void memory_of_huge_pages_is_not_safe(void **state)
{
    (void)state;
    int ordinary = sealed_memory(0, HUGE_BYTES, F_SEAL_SHRINK);
    int open_ended = sealed_memory(0, HUGE_BYTES, F_SEAL_GROW);
    int huge = sealed_memory(MFD_HUGETLB, HUGE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_true(is_safe(ordinary, HUGE_BYTES));
    assert_false(is_safe(open_ended, HUGE_BYTES));
    assert_false(is_safe(-1, 0));
    close(ordinary);
    close(open_ended);
    if (huge < 0) {
        skip(); /* a kernel without huge pages */
    }
    assert_false(is_safe(huge, HUGE_BYTES));
    close(huge);
}

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), RETURN(SECCOMP_RET_ALLOW)
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))

/* Kills the process for every system call except those that were allowed before the check for huge
 * pages existed. */
static bool confine(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_fcntl),
        ALLOW(SYS_fstat),
        ALLOW(SYS_newfstatat),
        ALLOW(SYS_exit_group),
        RETURN(SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void the_check_of_memory_is_possible_behind_a_filter(void **state)
{
    (void)state;
    void *memory;
    int fd = via_os_memory("test", 4096, F_SEAL_SHRINK, &memory);
    int status;
    assert_true(fd >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        syscall(SYS_exit_group, !confine() ? NOT_TO_BE_HAD : is_safe(fd, 4096) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    munmap(memory, 4096);
    close(fd);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_TO_BE_HAD) {
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define NAMESPACES 100

/* The space of a process in a pid namespace of its own; 0: there can be none. */
static uint32_t space_of_namespace(void)
{
    uint32_t space = 0;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        via_os_forked();
        pid_t inner = unshare(CLONE_NEWPID) == 0 ? fork() : -1;
        if (inner == 0) {
            via_os_forked();
            _exit(write(fds[1], &via_os_space, sizeof(via_os_space)) > 0 ? 0 : 1);
        }
        _exit(inner < 0 || waitpid(inner, NULL, 0) == inner ? 0 : 1);
    }
    assert_well(pid);
    close(fds[1]);
    (void)!read(fds[0], &space, sizeof(space));
    close(fds[0]);
    return space;
}

/* Two threads of two namespaces have the same number to the kernel, and may use one connection. */
static void each_namespace_has_its_own_space(void **state)
{
    uint32_t found[NAMESPACES];
    (void)state;
    for (unsigned i = 0; i < NAMESPACES; i++) {
        found[i] = space_of_namespace();
        if (found[i] == 0) {
            skip();
        }
        assert_true(found[i] <= UINT32_MAX >> VIA_OS_SPACE_SHIFT);
        for (unsigned j = 0; j < i; j++) {
            assert_int_not_equal(found[i], found[j]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_has_another_pid),
        cmocka_unit_test(users_without_a_number_are_not_one),
        cmocka_unit_test(memory_of_huge_pages_is_not_safe),
        cmocka_unit_test(the_check_of_memory_is_possible_behind_a_filter),
        cmocka_unit_test(each_namespace_has_its_own_space),
    };
    via_os_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
