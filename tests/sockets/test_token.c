/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The token, the right to use one direction of a connection: one thread at a time has it, and all
 * threads get turns. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/pause.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/token.h"

#define HOGS 3
#define TIMES 200000u
#define HANG_S 60

static struct via_token token;
static uint64_t taken;   /* in all, with the token */
static uint64_t changes; /* ... by another thread than the previous time */
static uint32_t last;

static void take_and_give(bool alone)
{
    assert_int_equal(via_token_take(&token, alone, via_os_thread()), 0);
    taken++;
    changes += last != via_os_thread();
    last = via_os_thread();
    for (int i = 0; i < 10; i++) {
        via_cpu_pause(); /* a thread that holds the token works */
    }
    via_token_give(&token);
}

static int setup(void **state)
{
    (void)state;
    token = (struct via_token){.frame = 0};
    taken = 0;
    changes = 0;
    last = 0;
    via_os_init();
    return 0;
}

static void *hog(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < TIMES; i++) {
        take_and_give(false);
    }
    return NULL;
}

/* A turn takes some hundred microseconds, in which a thread makes some thousand attempts; an
 * attempt rarely succeeds by chance. */
static void threads_that_want_it_all_the_time_have_turns(void **state)
{
    (void)state;
    pthread_t threads[HOGS];
    for (int i = 0; i < HOGS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, hog, NULL), 0);
    }
    for (int i = 0; i < HOGS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(taken, HOGS * TIMES);
    assert_true(changes < taken / 100);
    assert_int_equal(token.holder, 0);
}

static _Atomic bool over;

static void *hog_until_over(void *unused)
{
    (void)unused;
    while (!over) {
        take_and_give(false);
    }
    return NULL;
}

/* Takes the token 100 times, for any number of competing threads; without turns, this thread may
 * never get it. */
static void an_occasional_caller_gets_the_token(void **state)
{
    (void)state;
    pthread_t threads[HOGS];
    over = false;
    for (int i = 0; i < HOGS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, hog_until_over, NULL), 0);
    }
    for (int i = 0; i < 100; i++) {
        take_and_give(false);
        usleep(500);
    }
    over = true;
    for (int i = 0; i < HOGS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(taken > 100);
}

static void *take_once(void *unused)
{
    (void)unused;
    take_and_give(false);
    return NULL;
}

/* Simulates that one side's store was reordered after the other side's load. */
static void a_lost_ring_is_made_up_for(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(via_token_take(&token, false, via_os_thread()), 0);
    assert_int_equal(pthread_create(&thread, NULL, take_once, NULL), 0);
    while ((token.requests & VIA_TOKEN_SLEEPS) == 0) {
        usleep(100);
    }
    token.requests = 0;
    token.holder = 0;
    pthread_join(thread, NULL);
    assert_int_equal(taken, 1);
}

static void giving_the_token_wakes_the_sleeper(void **state)
{
    (void)state;
    pthread_t thread;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(via_token_take(&token, false, via_os_thread()), 0);
        assert_int_equal(pthread_create(&thread, NULL, take_once, NULL), 0);
        while ((token.requests & VIA_TOKEN_SLEEPS) == 0) {
            usleep(100);
        }
        via_token_give(&token);
        pthread_join(thread, NULL);
        assert_int_equal(token.requests & VIA_TOKEN_SPINS, 0);
    }
    assert_int_equal(taken, 20);
}

/* reaped: its parent has waited for it; else it is a zombie. */
static void take_from_killed(bool reaped)
{
    struct via_token *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0) {
        via_os_forked();
        _exit(via_token_take(shared, false, via_os_thread()) != 0);
    }
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | (reaped ? 0 : WNOWAIT)), 0);
    assert_int_equal(info.si_status, 0);
    assert_int_equal(shared->holder, pid);
    alarm(HANG_S);
    assert_int_equal(via_token_take(shared, false, via_os_thread()), 0);
    alarm(0);
    via_token_give(shared);
    assert_int_equal(shared->holder, 0);
    munmap(shared, sizeof(*shared));
    assert_true(reaped || waitpid(pid, NULL, 0) == pid);
}

static void a_killed_process_keeps_nothing(void **state)
{
    (void)state;
    take_from_killed(true);
}

/* The parent takes the token before it waits for the child. */
static void a_zombie_keeps_nothing(void **state)
{
    (void)state;
    take_from_killed(false);
}

/* Takes the token deeper in the stack, as a call in a signal handler does. */
static __attribute__((noinline)) int take_deeper(bool alone)
{
    volatile char room[512];
    room[0] = 0;
    int rc = via_token_take(&token, alone, via_os_thread());
    return rc + room[0];
}

static void taking_it_twice_is_a_deadlock_error(void **state)
{
    (void)state;
    for (int alone = 0; alone < 2; alone++) {
        assert_int_equal(via_token_take(&token, alone != 0, via_os_thread()), 0);
        assert_int_equal(take_deeper(alone != 0), -EDEADLK);
        via_token_give(&token);
    }
}

/* The frame was left by longjmp(). */
static void a_frame_that_was_left_holds_no_token(void **state)
{
    (void)state;
    for (int alone = 0; alone < 2; alone++) {
        assert_int_equal(take_deeper(alone != 0), 0);
        assert_int_equal(via_token_take(&token, alone != 0, via_os_thread()), 0);
        via_token_give(&token);
        assert_int_equal(token.holder, 0);
    }
}

static volatile int rc_of_handler;
static volatile bool was_in_handler;

static void take_in_handler(int number, siginfo_t *info, void *context)
{
    struct via_token_stack before = via_token_enter_handler(context, __builtin_frame_address(0));
    (void)number;
    (void)info;
    was_in_handler = via_token_is_in_handler();
    rc_of_handler = via_token_take(&token, false, via_os_thread());
    via_token_stack = before;
}

/* Of two stacks in a row, the thread runs on the first one and its handler on the second, or the
 * other way round. */
#define STACK_BYTES ((size_t)2 << 20) /* ThreadSanitizer needs almost 1 MiB on some CPUs */
static unsigned char stacks[2 * STACK_BYTES] __attribute__((aligned(4096)));
static int stack_flags;

static void *take_and_be_interrupted(void *of_handler)
{
    stack_t stack = {.ss_sp = of_handler, .ss_size = STACK_BYTES, .ss_flags = stack_flags};
    struct sigaction action = {.sa_sigaction = take_in_handler,
                               .sa_flags = SA_ONSTACK | SA_SIGINFO};
    stack_t before; /* of the sanitizer, which frees the present one when the thread ends */
    assert_int_equal(sigaltstack(&stack, &before), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(via_token_take(&token, false, via_os_thread()), 0);
    assert_false(via_token_is_in_handler());
    pthread_kill(pthread_self(), SIGUSR1);
    assert_int_equal(rc_of_handler, -EDEADLK);
    assert_true(was_in_handler);
    assert_false(via_token_is_in_handler());
    via_token_give(&token);
    pthread_kill(pthread_self(), SIGUSR1);
    assert_int_equal(rc_of_handler, 0);
    /* The handler's frame is gone. */
    assert_int_equal(via_token_take(&token, false, via_os_thread()), 0);
    via_token_give(&token);
    assert_int_equal(sigaltstack(&before, NULL), 0);
    return NULL;
}

static void interrupt_on_another_stack(int flags)
{
    stack_flags = flags;
    for (unsigned i = 0; i < 2; i++) {
        pthread_attr_t attr;
        pthread_t thread;
        pthread_attr_init(&attr);
        pthread_attr_setstack(&attr, stacks + i * STACK_BYTES, STACK_BYTES);
        assert_int_equal(
            pthread_create(&thread, &attr, take_and_be_interrupted, stacks + (1 - i) * STACK_BYTES),
            0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attr);
    }
}

static void a_handler_may_have_a_stack_of_its_own(void **state)
{
    (void)state;
    interrupt_on_another_stack(0);
}

/* linux/signal.h */
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

/* The kernel does not tell the handler's stack while the handler runs. */
static void a_stack_may_be_disarmed(void **state)
{
    (void)state;
    interrupt_on_another_stack((int)SS_AUTODISARM);
}

static struct via_mutex mutexes[] = {[VIA_RANK_LINKS] = VIA_MUTEX_INIT(VIA_RANK_LINKS),
                                     [VIA_RANK_SET] = VIA_MUTEX_INIT(VIA_RANK_SET),
                                     [VIA_RANK_CONNS] = VIA_MUTEX_INIT(VIA_RANK_CONNS)};

static void *take_with_a_mutex(void *ret_rc)
{
    via_lock(&mutexes[VIA_RANK_SET]);
    *(int *)ret_rc = via_token_take(&token, false, via_os_thread());
    via_unlock(&mutexes[VIA_RANK_SET]);
    return NULL;
}

/* A signal handler that has interrupted the token's holder may wait for that mutex. */
static void a_thread_with_a_mutex_does_not_wait_forever(void **state)
{
    (void)state;
    pthread_t thread;
    int rc = 0;
    assert_int_equal(via_token_take(&token, false, via_os_thread()), 0);
    assert_int_equal(pthread_create(&thread, NULL, take_with_a_mutex, &rc), 0);
    pthread_join(thread, NULL);
    assert_int_equal(rc, -EDEADLK);
    via_token_give(&token);
    take_with_a_mutex(&rc);
    assert_int_equal(rc, 0);
    via_token_give(&token);
}

#ifdef VIA_LOCK_CHECKS
static void mutexes_have_an_order(void **state)
{
    (void)state;
    via_lock(&mutexes[VIA_RANK_SET]);
    assert_false(via_lock_is_in_order(VIA_RANK_LINKS));
    assert_false(via_lock_is_in_order(VIA_RANK_SET));
    assert_true(via_lock_is_in_order(VIA_RANK_CONNS));
    via_unlock(&mutexes[VIA_RANK_SET]);
    via_lock(&mutexes[VIA_RANK_LINKS]);
    via_lock(&mutexes[VIA_RANK_SET]);
    assert_true(via_lock_is_in_order(VIA_RANK_SET));
    via_lock(&mutexes[VIA_RANK_CONNS]);
    assert_false(via_lock_is_in_order(VIA_RANK_SET));
    assert_false(via_lock_is_in_order(VIA_RANK_LINKS));
    for (unsigned rank = VIA_RANK_CONNS + 1; rank-- > 0;) {
        via_unlock(&mutexes[rank]);
    }
    assert_true(via_lock_is_in_order(VIA_RANK_LINKS));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(threads_that_want_it_all_the_time_have_turns, setup),
        cmocka_unit_test_setup(an_occasional_caller_gets_the_token, setup),
        cmocka_unit_test_setup(a_lost_ring_is_made_up_for, setup),
        cmocka_unit_test_setup(giving_the_token_wakes_the_sleeper, setup),
        cmocka_unit_test_setup(a_killed_process_keeps_nothing, setup),
        cmocka_unit_test_setup(a_zombie_keeps_nothing, setup),
        cmocka_unit_test_setup(taking_it_twice_is_a_deadlock_error, setup),
        cmocka_unit_test_setup(a_frame_that_was_left_holds_no_token, setup),
        cmocka_unit_test_setup(a_handler_may_have_a_stack_of_its_own, setup),
        cmocka_unit_test_setup(a_stack_may_be_disarmed, setup),
        cmocka_unit_test_setup(a_thread_with_a_mutex_does_not_wait_forever, setup),
#ifdef VIA_LOCK_CHECKS
        cmocka_unit_test(mutexes_have_an_order),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
