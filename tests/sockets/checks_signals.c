/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Signal handlers: they may make any call during any interrupted call, and the library must not
 * replace the program's handlers. */
#include "checks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

/* --- any call in a handler, during any other ------------------------------------------------- */

#define OPEN_MAX_HERE 8

static int open_fds[OPEN_MAX_HERE];
static volatile sig_atomic_t open_count;
static volatile sig_atomic_t handlers;
static struct pair shared_pair; /* used by the handlers and by the interrupted calls */
static struct sockaddr_in server_addr;
static int server_fd;
static struct sockaddr_in handlers_addr;
static int handlers_fd;

static void close_one(void)
{
    if (open_count > 0) {
        open_count--;
        close(open_fds[open_count]);
    }
}

/* Uses a connection of its own, to a listener for the handlers. */
static void connect_and_close(void)
{
    int client = socket(AF_INET, SOCK_STREAM, 0);
    connect(client, (struct sockaddr *)&handlers_addr, sizeof(handlers_addr));
    int server = accept(handlers_fd, NULL, NULL);
    struct linger reset = {.l_onoff = 1};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    send(server, "x", 1, MSG_NOSIGNAL);
    close(client);
    close(server);
}

static void dup_and_close(void)
{
    int fd = dup(shared_pair.client);
    char byte;
    if (fd >= 0) {
        recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
        close(fd);
    }
}

static void look_at_both(void)
{
    struct pollfd pfds[2] = {{shared_pair.client, POLLIN | POLLOUT, 0},
                             {shared_pair.server, POLLIN | POLLOUT, 0}};
    fd_set readable;
    struct timeval none = {0, 0};
    FD_ZERO(&readable);
    FD_SET(shared_pair.client, &readable);
    poll(pfds, 2, 0);
    select(shared_pair.client + 1, &readable, NULL, NULL, &none);
}

static void move_bytes(void)
{
    char bytes[300];
    send(shared_pair.client, "y", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    recv(shared_pair.server, bytes, sizeof(bytes), MSG_DONTWAIT);
    send(shared_pair.server, "z", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    recv(shared_pair.client, bytes, sizeof(bytes), MSG_DONTWAIT);
}

static void fork_and_end(void)
{
    static unsigned seldom;
    if (++seldom % 32 == 0) {
        pid_t pid = fork();
        if (pid == 0) {
            close_one();
            _exit(0);
        }
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
}

static void (*const in_handler[])(void) = {close_one,    connect_and_close, dup_and_close,
                                           look_at_both, move_bytes,        fork_and_end};
#define IN_HANDLER_COUNT (sizeof(in_handler) / sizeof(in_handler[0]))

static void make_a_call(int number)
{
    static unsigned next;
    int saved = errno;
    (void)number;
    handlers++;
    in_handler[next++ % IN_HANDLER_COUNT]();
    errno = saved;
}

static void block_alarms(bool on)
{
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    CHECK(sigprocmask(on ? SIG_BLOCK : SIG_UNBLOCK, &alarm, NULL) == 0);
}

static void keep_for_handler(int fd)
{
    block_alarms(true);
    if (open_count < OPEN_MAX_HERE) {
        open_fds[open_count] = fd;
        open_count++;
        fd = -1;
    }
    block_alarms(false);
    if (fd >= 0) {
        close(fd);
    }
}

static void come_and_go(void)
{
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(client >= 0);
    while (connect(client, (struct sockaddr *)&server_addr, sizeof(server_addr)) != 0) {
        CHECK(errno == EINTR || errno == EALREADY || errno == EINPROGRESS);
    }
    int server = accept(server_fd, NULL, NULL);
    CHECK(server >= 0);
    for (int i = 0; i < 6; i++) {
        char bytes[8];
        send(client, "12345678", 8, MSG_NOSIGNAL);
        recv(server, bytes, sizeof(bytes), MSG_DONTWAIT);
        send(server, "12345678", 8, MSG_NOSIGNAL);
        recv(client, bytes, sizeof(bytes), MSG_DONTWAIT);
    }
    struct linger reset = {.l_onoff = 1};
    setsockopt(server, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(server);
    keep_for_handler(client);
}

static void use_a_set(void)
{
    struct epoll_event events[4];
    int epfd = set_with(shared_pair.client, EPOLLIN | EPOLLOUT | EPOLLET);
    CHECK(put_in(epfd, shared_pair.server, EPOLLIN) == 0);
    epoll_wait(epfd, events, 4, 0);
    close(epfd);
}

static void (*const interrupted[])(void) = {come_and_go, use_a_set, dup_and_close, look_at_both,
                                            move_bytes};

static void handlers_make_calls(void)
{
    shared_pair = connected();
    server_fd = listener(&server_addr);
    handlers_fd = listener(&handlers_addr);
    nonblocking(handlers_fd);
    double end = now_s() + race_s();
    struct sigaction action = {.sa_handler = make_a_call, .sa_flags = SA_RESTART};
    struct itimerval timer = {.it_interval = {0, 300}, .it_value = {0, 300}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
    for (unsigned i = 0; now_s() < end; i++) {
        interrupted[i % (sizeof(interrupted) / sizeof(interrupted[0]))]();
    }
    no_more_signals();
    CHECK(handlers > 10);
    done(shared_pair);
    close(server_fd);
    close(handlers_fd);
}

/* --- handlers that interrupt a reader, while another thread polls a set with its connection --- */

#define READ_BYTES (1u << 20)

static struct pair read_pair;
static int busy_set;
static atomic_bool over;

/* Neither call may wait for a thread that waits for the interrupted thread. */
static void copy_or_fork(int number)
{
    static unsigned turns;
    int saved = errno;
    (void)number;
    handlers++;
    if (++turns % 16 == 0) {
        fork_and_end();
    }
    close(dup(read_pair.server));
    errno = saved;
}

static void *ask_the_set(void *unused)
{
    struct epoll_event events[4];
    while (!over) {
        epoll_wait(busy_set, events, 4, 0);
    }
    return unused;
}

static void *keep_writing(void *unused)
{
    static char bytes[READ_BYTES];
    while (!over) {
        write_all(read_pair.client, bytes, sizeof(bytes));
    }
    shutdown(read_pair.client, SHUT_WR);
    return unused;
}

static void a_handler_interrupts_a_reader_for_which_a_set_waits(void)
{
    static char bytes[READ_BYTES];
    pthread_t threads[2];
    ssize_t n;
    read_pair = connected();
    busy_set = set_with(read_pair.server, EPOLLIN);
    block_alarms(true);
    CHECK(pthread_create(&threads[0], NULL, ask_the_set, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, keep_writing, NULL) == 0);
    block_alarms(false);
    struct sigaction action = {.sa_handler = copy_or_fork, .sa_flags = SA_RESTART};
    struct itimerval timer = {.it_interval = {0, 500}, .it_value = {0, 500}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
    double end = now_s() + race_s();
    do {
        n = read(read_pair.server, bytes, sizeof(bytes));
        CHECK(n >= 0 || errno == EINTR || errno == EAGAIN);
        over = now_s() >= end;
    } while (n != 0);
    no_more_signals();
    CHECK(handlers > 10);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    close(busy_set);
    done(read_pair);
}

/* --- which handler ran ----------------------------------------------------------------------- */

static volatile sig_atomic_t handled;

static void count(int number)
{
    (void)number;
    handled++;
}

static void handle(int number, int flags)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = flags};
    CHECK(sigaction(number, &action, NULL) == 0);
}

/* In a child: signals until the handler has run often, then a byte. */
static void signal_then_write(int number, int fd)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 5; i++) {
            sleep_ms(4);
            kill(parent, number);
        }
        sleep_ms(4);
        write_all(fd, "x", 1);
        _exit(0);
    }
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void interrupts(int number)
{
    CHECK(siginterrupt(number, 1) == 0);
}
#pragma GCC diagnostic pop

static void a_sleep_restarts_by_the_handler_that_ran(void)
{
    struct pair pair = connected();
    char byte;
    handle(SIGUSR1, SA_RESTART);
    handle(SIGUSR2, 0);
    signal_then_write(SIGUSR1, pair.client);
    CHECK(read(pair.server, &byte, 1) == 1);
    signal_then_write(SIGUSR2, pair.client);
    CHECK(read(pair.server, &byte, 1) == -1 && errno == EINTR);
    while (read(pair.server, &byte, 1) != 1) {
        CHECK(errno == EINTR);
    }
    /* The library must also notice the change that siginterrupt() makes without a hooked call. */
    interrupts(SIGUSR1);
    signal_then_write(SIGUSR1, pair.client);
    CHECK(read(pair.server, &byte, 1) == -1 && errno == EINTR);
    while (read(pair.server, &byte, 1) != 1) {
        CHECK(errno == EINTR);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(wait(NULL) > 0);
    }
    CHECK(handled >= 6);
    done(pair);
}

/* --- sigaction() reports handlers as they were installed ------------------------------------- */

static void with_info(int number, siginfo_t *info, void *context)
{
    CHECK(number == SIGUSR1 && info->si_signo == number && context != NULL);
    handled += info->si_value.sival_int;
}

static void handlers_are_as_installed(void)
{
    struct sigaction old;
    struct sigaction action = {.sa_sigaction = with_info, .sa_flags = SA_SIGINFO | SA_RESETHAND};
    CHECK(signal(SIGUSR1, count) == SIG_DFL && signal(SIGUSR1, SIG_IGN) == count);
    CHECK(signal(SIGUSR1, count) == SIG_IGN && sigaction(SIGUSR1, NULL, &old) == 0);
    CHECK(old.sa_handler == count && (old.sa_flags & (SA_SIGINFO | SA_RESTART)) == SA_RESTART);
    CHECK(raise(SIGUSR1) == 0 && handled == 1);
    CHECK(sigaction(SIGUSR1, &action, &old) == 0 && old.sa_handler == count);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_sigaction == with_info);
    CHECK((old.sa_flags & (int)(SA_SIGINFO | SA_RESETHAND)) == (int)(SA_SIGINFO | SA_RESETHAND));
    CHECK(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 7}) == 0 && handled == 8);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
    CHECK(sigaction(0, NULL, &old) == -1 && errno == EINVAL);
    CHECK(sigaction(SIGKILL, &action, NULL) == -1 && errno == EINVAL);
    CHECK(signal(_NSIG, count) == SIG_ERR && errno == EINVAL);
    /* A shell of system() has none of the program's handlers; the program has them again
     * afterwards. */
    CHECK(signal(SIGINT, count) == SIG_DFL && system("exit 3") == 3 << 8);
    CHECK(signal(SIGINT, SIG_DFL) == count);
}

/* --- data of a signal ------------------------------------------------------------------------ */

#define QUEUED 200

static volatile sig_atomic_t sum;

static void add(int number, siginfo_t *info, void *context)
{
    (void)context;
    CHECK(number == SIGRTMIN && info->si_code == SI_QUEUE);
    sum += info->si_value.sival_int;
    handled++;
}

static void *queue_signals(void *unused)
{
    for (int i = 1; i <= QUEUED; i++) {
        while (sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) != 0) {
            CHECK(errno == EAGAIN);
            sleep_ms(1);
        }
        if (i % 4 == 0) {
            sleep_ms(1);
        }
    }
    return unused;
}

static void every_signal_comes_with_its_value(void)
{
    struct sigaction action = {.sa_sigaction = add, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t set;
    sigset_t before;
    pthread_t thread;
    server_fd = listener(&server_addr);
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
    CHECK(pthread_create(&thread, NULL, queue_signals, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    while (handled < QUEUED) {
        come_and_go();
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sum == QUEUED * (QUEUED + 1) / 2);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &set) == 0 && sigismember(&set, SIGTERM) == 0);
    close(server_fd);
}

/* --- a handler forks, and both processes return into the sleep that it has interrupted ---------
 */

static volatile sig_atomic_t forked;

static void fork_once(int number)
{
    (void)number;
    forked = fork();
}

static int sleep_in_recv(int fd)
{
    char byte;
    return (int)recv(fd, &byte, 1, 0);
}

static int sleep_in_poll(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    return poll(&pfd, 1, -1);
}

static int sleep_in_epoll(int fd)
{
    struct epoll_event event;
    int epfd = set_with(fd, EPOLLIN);
    int n = epoll_wait(epfd, &event, 1, -1);
    int error = errno;
    close(epfd);
    errno = error;
    return n;
}

static int (*sleep_once)(int fd);
static atomic_bool awake;

static void *sleep_in_thread(void *of_fd)
{
    CHECK(sleep_once(*(const int *)of_fd) == 1);
    awake = true;
    return NULL;
}

/* The time that a sleeping thread takes to wake up. */
static double time_of_wake_up(void)
{
    pthread_t thread;
    struct pair pair = connected();
    awake = false;
    CHECK(pthread_create(&thread, NULL, sleep_in_thread, &pair.server) == 0);
    sleep_ms(50);
    double begin = now_s();
    write_all(pair.client, "x", 1);
    while (!awake) {
        CHECK(now_s() < begin + 20);
        sleep_ms(1);
    }
    double seconds = now_s() - begin;
    pthread_join(thread, NULL);
    done(pair);
    return seconds;
}

static void *pause_always(void *unused)
{
    for (;;) {
        pause();
    }
    return unused;
}

/* Afterwards the count of the other threads' sleeps is right. A thread may check again each second,
 * so a wake-up after a second is no proof. */
static void fork_during(int (*sleeps)(int fd))
{
    struct sigaction action = {.sa_handler = fork_once};
    struct itimerval soon = {.it_value = {0, 50000}};
    struct pair pair = connected();
    pthread_t thread;
    block_alarms(true);
    CHECK(pthread_create(&thread, NULL, pause_always, NULL) == 0);
    block_alarms(false);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
    CHECK(sleeps(pair.server) == -1 && errno == EINTR);
    if (forked == 0) {
        for (int i = 0; i < 3; i++) {
            char byte;
            write_all(pair.client, "x", 1);
            CHECK(sleeps(pair.server) == 1 && recv(pair.server, &byte, 1, MSG_DONTWAIT) <= 1);
        }
        done(pair);
        _exit(0);
    }
    wait_for(forked);
    done(pair);
    sleep_once = sleeps;
    double shortest = 20;
    for (unsigned turn = 0; turn < 5 && shortest > 0.5; turn++) {
        double seconds = time_of_wake_up();
        shortest = seconds < shortest ? seconds : shortest;
    }
    CHECK(shortest <= 0.5);
}

static void a_handler_forks_during_recv(void)
{
    fork_during(sleep_in_recv);
}

static void a_handler_forks_during_poll(void)
{
    fork_during(sleep_in_poll);
}

static void a_handler_forks_during_epoll_wait(void)
{
    fork_during(sleep_in_epoll);
}

/* Both processes continue the call: each number arrives at one of them. */
#define NUMBERS 2000

static void write_numbers(struct pair pair)
{
    close(pair.server);
    sleep_ms(150);
    for (int i = 0; i < NUMBERS; i++) {
        write_all(pair.client, &i, sizeof(i));
        sleep_ms(i % 64 == 0 ? 1 : 0);
    }
    _exit(0);
}

static void two_processes_continue_a_call(void)
{
    struct sigaction action = {.sa_handler = fork_once, .sa_flags = SA_RESTART};
    struct itimerval soon = {.it_value = {0, 50000}};
    _Atomic int *counts = mmap(NULL, NUMBERS * sizeof(*counts), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct pair pair = connected();
    int number;
    pthread_t thread;
    pid_t writer = fork();
    CHECK(counts != MAP_FAILED && writer >= 0);
    if (writer == 0) {
        write_numbers(pair);
    }
    close(pair.client);
    block_alarms(true);
    CHECK(pthread_create(&thread, NULL, pause_always, NULL) == 0);
    block_alarms(false);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
    ssize_t n;
    while ((n = recv(pair.server, &number, sizeof(number), MSG_WAITALL)) != 0) {
        CHECK(n == sizeof(number) && number >= 0 && number < NUMBERS);
        counts[number]++;
    }
    close(pair.server);
    if (forked == 0) {
        _exit(0);
    }
    wait_for(forked);
    wait_for(writer);
    for (int i = 0; i < NUMBERS; i++) {
        CHECK(counts[i] == 1);
    }
}

/* Both processes continue dup() or close(): each has its own numbers of the connection, and the
 * peer reads the end when the last one is closed. */
#define COPY_FORKS 30

static void fork_during_copies(unsigned round)
{
    struct pair pair = connected();
    struct itimerval soon = {.it_value = {0, 50 + (suseconds_t)(round * 37 % 200)}};
    char byte;
    forked = -1;
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    while (forked < 0) {
        CHECK(close(dup(pair.client)) == 0);
    }
    if (forked == 0) {
        CHECK(close(dup(pair.client)) == 0);
        done(pair);
        _exit(0);
    }
    wait_for(forked);
    struct pollfd pfd = {.fd = pair.server, .events = POLLIN};
    CHECK(poll(&pfd, 1, 0) == 0);
    write_all(pair.client, "x", 1);
    CHECK(recv(pair.server, &byte, 1, 0) == 1);
    close(pair.client);
    CHECK(poll(&pfd, 1, 20000) == 1 && recv(pair.server, &byte, 1, 0) == 0);
    close(pair.server);
}

static void a_handler_forks_during_dup_and_close(void)
{
    struct sigaction action = {.sa_handler = fork_once, .sa_flags = SA_RESTART};
    pthread_t thread;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (unsigned round = 0; round < 2 * COPY_FORKS; round++) {
        if (round == COPY_FORKS) { /* from now on the library counts calls */
            block_alarms(true);
            CHECK(pthread_create(&thread, NULL, pause_always, NULL) == 0);
            block_alarms(false);
        }
        fork_during_copies(round);
    }
}

/* --- handlers on a stack of their own -------------------------------------------------------- */

#define STACK_BYTES (2u << 20) /* ThreadSanitizer needs almost 1 MiB on some CPUs */

/* linux/signal.h */
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

static int stack_flags;

static void handle_with_a_stack(void (*function)(int), char *stack)
{
    stack_t of_handler = {.ss_sp = stack, .ss_size = STACK_BYTES, .ss_flags = stack_flags};
    struct sigaction action = {.sa_handler = function, .sa_flags = SA_RESTART | SA_ONSTACK};
    CHECK(sigaltstack(&of_handler, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    block_alarms(false);
}

/* Calls main in a thread, with a stack for a handler above the thread's own stack: addresses do not
 * tell which call is the inner one. */
static void run_below_a_stack(void *(*main)(void *of_handler))
{
    char *stacks =
        mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attr;
    pthread_t thread;
    block_alarms(true);
    CHECK(stacks != MAP_FAILED && pthread_attr_init(&attr) == 0 &&
          pthread_attr_setstack(&attr, stacks, STACK_BYTES) == 0 &&
          pthread_create(&thread, &attr, main, stacks + STACK_BYTES) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *fork_often(void *of_handler)
{
    handle_with_a_stack(fork_once, of_handler);
    for (unsigned round = 0; round < COPY_FORKS; round++) {
        fork_during_copies(round);
    }
    return NULL;
}

static void a_handler_with_a_stack_forks_during_close(void)
{
    run_below_a_stack(fork_often);
}

#define PIECE 3000
#define PIECES_A_SECOND 20000 /* about */

static int pieces;

static struct {
    _Atomic size_t own, handlers; /* bytes */
} received;

static void *count_bytes(void *unused)
{
    char bytes[8192];
    ssize_t n;
    while ((n = recv(shared_pair.server, bytes, sizeof(bytes), 0)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            CHECK(bytes[i] == 'a' || bytes[i] == 'b');
            received.own += bytes[i] == 'a';
            received.handlers += bytes[i] == 'b';
        }
    }
    CHECK(n == 0);
    return unused;
}

static void send_in_handler(int number)
{
    int saved = errno;
    (void)number;
    handlers += send(shared_pair.client, "b", 1, MSG_DONTWAIT) == 1 ? 1 : 0;
    errno = saved;
}

static void *send_pieces(void *of_handler)
{
    struct itimerval often = {{0, 100}, {0, 100}};
    char piece[PIECE];
    memset(piece, 'a', sizeof(piece));
    handle_with_a_stack(send_in_handler, of_handler);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < pieces; i++) {
        write_all(shared_pair.client, piece, sizeof(piece));
    }
    CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL) == 0);
    return NULL;
}

static void a_handler_with_a_stack_sends_during_send(void)
{
    pthread_t reader;
    shared_pair = connected();
    handlers = 0;
    pieces = (int)(PIECES_A_SECOND * race_s());
    block_alarms(true);
    CHECK(pthread_create(&reader, NULL, count_bytes, NULL) == 0);
    run_below_a_stack(send_pieces);
    close(shared_pair.client);
    CHECK(pthread_join(reader, NULL) == 0);
    CHECK(received.own == (size_t)PIECE * (size_t)pieces && received.handlers == (size_t)handlers);
    close(shared_pair.server);
}

/* The kernel does not tell the handler's stack while the handler runs. */
static void a_handler_with_a_disarmed_stack_sends_during_send(void)
{
    stack_flags = (int)SS_AUTODISARM;
    a_handler_with_a_stack_sends_during_send();
}

const struct check checks_of_signals[] = {
    CHECK_ENTRY(handlers_make_calls),
    CHECK_ENTRY(a_handler_interrupts_a_reader_for_which_a_set_waits),
    CHECK_ENTRY(a_sleep_restarts_by_the_handler_that_ran),
    CHECK_ENTRY(handlers_are_as_installed),
    CHECK_ENTRY(every_signal_comes_with_its_value),
    CHECK_ENTRY(a_handler_forks_during_recv),
    CHECK_ENTRY(a_handler_forks_during_poll),
    CHECK_ENTRY(a_handler_forks_during_epoll_wait),
    CHECK_ENTRY(two_processes_continue_a_call),
    CHECK_ENTRY(a_handler_forks_during_dup_and_close),
    CHECK_ENTRY(a_handler_with_a_stack_forks_during_close),
    CHECK_ENTRY(a_handler_with_a_stack_sends_during_send),
    CHECK_ENTRY(a_handler_with_a_disarmed_stack_sends_during_send),
    {0},
};
