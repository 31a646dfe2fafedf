/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* fork() that fails, fork() beside close(), and fork() in handlers of several threads. */
#include "checks.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#define NOBODY 65534

static struct pair shared_pair;
static pthread_t failing;
static int copy;

/* The limit of processes, which is not for root. */
static void allow_processes(bool on)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NPROC, &limit) == 0);
    limit.rlim_cur = on ? limit.rlim_max : 0;
    CHECK(setrlimit(RLIMIT_NPROC, &limit) == 0);
}

static pthread_barrier_t turn;

static void *copy_and_fork(void *unused)
{
    pthread_barrier_wait(&turn);
    copy = dup(shared_pair.client);
    pid_t pid = fork();
    CHECK(copy >= 0 && pid >= 0);
    if (pid == 0) {
        _exit(0);
    }
    wait_for(pid);
    pthread_barrier_wait(&turn);
    return unused;
}

/* The program's handler: the call has failed, and has not returned yet. */
static void let_another_thread_fork(void)
{
    if (pthread_equal(pthread_self(), failing)) {
        allow_processes(true);
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
    }
}

static void a_fork_fails_beside_another_one(void)
{
    pthread_t thread;
    char byte;
    CHECK(geteuid() != 0 || setresuid(NOBODY, NOBODY, NOBODY) == 0);
    shared_pair = connected();
    failing = pthread_self();
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, copy_and_fork, NULL) == 0);
    CHECK(pthread_atfork(NULL, let_another_thread_fork, NULL) == 0);
    allow_processes(false);
    CHECK(fork() == -1 && errno == EAGAIN);
    CHECK(pthread_join(thread, NULL) == 0);
    close(copy);
    struct pollfd pfd = {shared_pair.server, POLLIN, 0};
    CHECK(poll(&pfd, 1, 100) == 0);
    write_all(shared_pair.client, "x", 1);
    CHECK(recv(shared_pair.server, &byte, 1, 0) == 1);
    close(shared_pair.client);
    CHECK(recv(shared_pair.server, &byte, 1, 0) == 0);
    close(shared_pair.server);
}

/* --- a close() that lingers beside a fork ---------------------------------------------------- */

#define LINGER_S 5
#define FORK_S_MAX 0.7

static void *close_slowly(void *of_fd)
{
    CHECK(close(*(int *)of_fd) == 0);
    return NULL;
}

static void a_fork_does_not_wait_for_a_close_that_lingers(void)
{
    struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
    struct pair pair = just_connected();
    pthread_t thread;
    int small = 4096; /* the connection stays with the kernel */
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
    fill_up(pair.client);
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
    CHECK(pthread_create(&thread, NULL, close_slowly, &pair.client) == 0);
    sleep_ms(100);
    double begin_s = now_s();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        _exit(0);
    }
    CHECK(now_s() - begin_s < FORK_S_MAX);
    wait_for(pid);
    close(pair.server);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* --- handlers of two threads fork while each thread sends on its own connection --------------- */

#define FORK_ROUNDS 30

static _Atomic bool sent_enough;

static void fork_and_wait(int number)
{
    int saved = errno;
    (void)number;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    errno = saved;
}

static void *send_until_enough(void *of_fd)
{
    static const char piece[65536];
    while (!sent_enough) {
        write_all(*(int *)of_fd, piece, sizeof(piece));
    }
    CHECK(shutdown(*(int *)of_fd, SHUT_WR) == 0);
    return NULL;
}

static void *read_to_the_end(void *of_fd)
{
    char bytes[65536];
    ssize_t n;
    do {
        n = recv(*(int *)of_fd, bytes, sizeof(bytes), 0);
    } while (n > 0);
    CHECK(n == 0);
    return NULL;
}

/* A process announces its first fork on each connection, for which it waits until no other thread
 * sends there: the connections are new in each round. */
static void handlers_of_two_threads_fork_during_send(void)
{
    struct sigaction action = {.sa_handler = fork_and_wait, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int round = 0; round < FORK_ROUNDS; round++) {
        struct pair pairs[2] = {connected(), connected()};
        pthread_t senders[2], readers[2];
        sent_enough = false;
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_create(&readers[i], NULL, read_to_the_end, &pairs[i].server) == 0);
            CHECK(pthread_create(&senders[i], NULL, send_until_enough, &pairs[i].client) == 0);
        }
        sleep_ms(5);
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_kill(senders[i], SIGUSR1) == 0);
        }
        sleep_ms(5);
        sent_enough = true;
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_join(senders[i], NULL) == 0 && pthread_join(readers[i], NULL) == 0);
            done(pairs[i]);
        }
    }
}

/* --- a handler forks while connect() fails -----------------------------------------------------
 */

#define REFUSED_FORKS 500

static volatile sig_atomic_t refused_forks, is_child;

/* Both processes continue the call. */
static void fork_and_continue(int number)
{
    int saved = errno;
    (void)number;
    pid_t pid = is_child ? 0 : fork();
    is_child = pid == 0;
    if (!is_child) {
        wait_for(pid);
        refused_forks++;
    }
    errno = saved;
}

static void a_handler_forks_while_connections_are_refused(void)
{
    struct sigaction action = {.sa_handler = fork_and_continue, .sa_flags = SA_RESTART};
    struct pair pair = connected();
    struct sockaddr_in addr;
    close(listener(&addr));
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int i = 0; i < REFUSED_FORKS && !is_child; i++) {
        struct itimerval soon = {.it_value = {0, 30 + i % 80}};
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        while (refused_forks == i && !is_child) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0);
            close(fd);
        }
    }
    if (is_child) {
        _exit(0);
    }
    talk_both_ways(pair.client, pair.server);
    done(pair);
}

/* --- a process forks while a connection gets its pipes -----------------------------------------
 */

#define PIPE_FORKS 300
#define PARENT_SENDS 12
#define CHILD_SENDS 5

static volatile sig_atomic_t forked_child;
static int forking_fd;
static bool child_takes_its_time;

static void fork_and_send(int unused)
{
    int saved = errno;
    (void)unused;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < CHILD_SENDS; i++) {
            if (child_takes_its_time) {
                sleep_ms(3);
            }
            CHECK(send(forking_fd, "c", 1, 0) == 1);
        }
        _exit(0);
    }
    forked_child = pid;
    errno = saved;
}

/* The numbers of bytes that each of the two processes has sent. */
struct letters {
    int parents, childs;
};

static struct letters read_letters(int fd)
{
    struct letters letters = {0, 0};
    char bytes[64];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            *(bytes[i] == 'p' ? &letters.parents : &letters.childs) += 1;
        }
    }
    CHECK(n == 0);
    return letters;
}

static int open_end(bool accepts, int listen_fd, const struct sockaddr_in *addr)
{
    int fd = accepts ? accept(listen_fd, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(accepts || connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0);
    return fd;
}

static bool returns_to_kernel;

/* stdio returns a connection to the kernel. */
static void use_stdio(int fd)
{
    FILE *file = fdopen(dup(fd), "r");
    CHECK(file != NULL && fclose(file) == 0);
}

static void send_letters(int fd)
{
    for (int i = 0; i < PARENT_SENDS; i++) {
        if (returns_to_kernel && i == PARENT_SENDS - 3) {
            use_stdio(fd);
        }
        CHECK(send(fd, "p", 1, 0) == 1);
    }
}

static void *fork_in_a_while(void *of_round)
{
    pthread_barrier_wait(&turn);
    for (volatile int spin = 0; spin < *(int *)of_round * 300; spin++) {
    }
    fork_and_send(0);
    return NULL;
}

static void send_beside_a_fork(int fd, int round)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, fork_in_a_while, &round) == 0);
    pthread_barrier_wait(&turn);
    send_letters(fd);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void send_while_a_handler_forks(int fd, int round)
{
    struct itimerval soon = {.it_value = {0, 1 + round * 7 % 300}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    send_letters(fd);
    while (forked_child == 0) {
        sleep_ms(1); /* ThreadSanitizer runs handlers in calls only */
    }
}

/* Another process has the other ends, and counts what arrives there. */
static void fork_while_pipes_are_made(bool accepts, void (*send_and_fork)(int fd, int round))
{
    struct sigaction action = {.sa_handler = fork_and_send, .sa_flags = SA_RESTART};
    struct sockaddr_in addr;
    int answers[2], listen_fd = listener(&addr);
    CHECK(pipe(answers) == 0);
    pid_t parent = getpid(), reader = fork();
    if (reader == 0) {
        end_with(parent);
        for (int i = 0; i < PIPE_FORKS; i++) {
            int fd = open_end(!accepts, listen_fd, &addr);
            struct letters letters = read_letters(fd);
            write_all(answers[1], &letters, sizeof(letters));
            close(fd);
        }
        _exit(0);
    }
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int i = 0; i < PIPE_FORKS; i++) {
        forking_fd = open_end(accepts, listen_fd, &addr);
        forked_child = 0;
        send_and_fork(forking_fd, i);
        close(forking_fd);
        wait_for(forked_child);
        struct letters letters;
        read_all(answers[0], &letters, sizeof(letters));
        CHECK(letters.parents == PARENT_SENDS && letters.childs == CHILD_SENDS);
    }
    wait_for(reader);
    close(answers[0]);
    close(answers[1]);
    close(listen_fd);
}

static void a_handler_forks_while_an_acceptor_gets_pipes(void)
{
    fork_while_pipes_are_made(true, send_while_a_handler_forks);
}

static void a_handler_forks_while_a_connector_gets_pipes(void)
{
    fork_while_pipes_are_made(false, send_while_a_handler_forks);
}

static void a_handler_forks_while_a_connector_has_pipes(void)
{
    returns_to_kernel = true;
    fork_while_pipes_are_made(false, send_while_a_handler_forks);
}

static void send_by_send(int fd)
{
    CHECK(send(fd, "c", 1, 0) == 1);
}

static void send_by_sendfile(int fd)
{
    static int file = -1;
    off_t offset = 0;
    if (file < 0) {
        file = memfd_create("letter", 0);
        CHECK(file >= 0 && write(file, "c", 1) == 1);
    }
    CHECK(sendfile(fd, file, &offset, 1) == 1);
}

static void send_by_splice(int fd)
{
    static int ends[2];
    CHECK(ends[1] != 0 || pipe(ends) == 0);
    CHECK(write(ends[1], "c", 1) == 1 && splice(ends[0], NULL, fd, NULL, 1, 0) == 1);
}

static void send_by_stdio(int fd)
{
    FILE *file = fdopen(dup(fd), "w");
    CHECK(file != NULL && fputs("c", file) >= 0 && fclose(file) == 0);
}

static void (*send_a_childs)(int fd);

static void *send_childs(void *unused)
{
    pthread_barrier_wait(&turn);
    for (int i = 0; i < CHILD_SENDS; i++) {
        send_a_childs(forking_fd);
    }
    return unused;
}

/* Without a fork: one thread returns the connection to the kernel, and another one sends. */
static void send_in_two_threads(int fd, int round)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, send_childs, NULL) == 0);
    for (int i = 0; i < round % PARENT_SENDS; i++) {
        CHECK(send(fd, "p", 1, 0) == 1);
    }
    pthread_barrier_wait(&turn);
    use_stdio(fd);
    for (int i = round % PARENT_SENDS; i < PARENT_SENDS; i++) {
        CHECK(send(fd, "p", 1, 0) == 1);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    forked_child = fork();
    if (forked_child == 0) {
        _exit(0);
    }
}

static void return_beside(void (*send_a_letter)(int fd))
{
    send_a_childs = send_a_letter;
    for (int i = 0; i < 4; i++) {
        fork_while_pipes_are_made(false, send_in_two_threads);
    }
}

static void a_thread_sends_while_another_uses_stdio(void)
{
    return_beside(send_by_send);
}

static void a_thread_sends_a_file_while_another_uses_stdio(void)
{
    return_beside(send_by_sendfile);
}

static void a_thread_splices_while_another_uses_stdio(void)
{
    return_beside(send_by_splice);
}

static void two_threads_use_stdio(void)
{
    return_beside(send_by_stdio);
}

/* An earlier child has closed the connection. */
static void send_beside_a_second_fork(int fd, int round)
{
    pid_t first = fork();
    if (first == 0) {
        _exit(0);
    }
    wait_for(first);
    send_beside_a_fork(fd, round % 10);
}

static void a_second_fork_while_a_connector_gets_pipes(void)
{
    child_takes_its_time = true;
    fork_while_pipes_are_made(false, send_beside_a_second_fork);
}

static void a_thread_forks_while_an_acceptor_gets_pipes(void)
{
    fork_while_pipes_are_made(true, send_beside_a_fork);
}

static void a_thread_forks_while_a_connector_gets_pipes(void)
{
    fork_while_pipes_are_made(false, send_beside_a_fork);
}

const struct check checks_of_forks[] = {
    CHECK_ENTRY(a_fork_fails_beside_another_one),
    CHECK_ENTRY(a_fork_does_not_wait_for_a_close_that_lingers),
    CHECK_ENTRY(handlers_of_two_threads_fork_during_send),
    CHECK_ENTRY(a_handler_forks_while_connections_are_refused),
    CHECK_ENTRY(a_handler_forks_while_an_acceptor_gets_pipes),
    CHECK_ENTRY(a_handler_forks_while_a_connector_gets_pipes),
    CHECK_ENTRY(a_handler_forks_while_a_connector_has_pipes),
    CHECK_ENTRY(a_thread_sends_while_another_uses_stdio),
    CHECK_ENTRY(a_thread_sends_a_file_while_another_uses_stdio),
    CHECK_ENTRY(a_thread_splices_while_another_uses_stdio),
    CHECK_ENTRY(two_threads_use_stdio),
    CHECK_ENTRY(a_second_fork_while_a_connector_gets_pipes),
    CHECK_ENTRY(a_thread_forks_while_an_acceptor_gets_pipes),
    CHECK_ENTRY(a_thread_forks_while_a_connector_gets_pipes),
    {NULL, NULL},
};
