/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Copied descriptors, processes and threads. */
#include "checks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void copies(void)
{
    struct pair pair = connected();
    char data[8];
    int copy = dup(pair.client);
    int high = fcntl(pair.client, F_DUPFD_CLOEXEC, 100);
    CHECK(copy >= 0 && high >= 100);
    CHECK(dup2(pair.client, 90) == 90);
    write_all(copy, "a", 1);
    write_all(high, "b", 1);
    write_all(90, "c", 1);
    close(pair.client);
    write_all(copy, "d", 1);
    read_all(pair.server, data, 4);
    CHECK(memcmp(data, "abcd", 4) == 0);
    close(copy);
    close(high);
    CHECK(recv(pair.server, data, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    int null = open("/dev/null", O_RDWR);
    CHECK(dup2(null, 90) == 90); /* closes the last one */
    CHECK(read(pair.server, data, 1) == 0);
    close(90);
    close(null);
    close(pair.server);
}

static void copied_before_it_connects(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int copy = dup(fd);
    char byte;
    CHECK(fd >= 0 && copy >= 0);
    int epfd = set_with(copy, EPOLLIN);
    struct pair pair = connect_later(fd);
    for (int i = 0; i < 3; i++) {
        talk_both_ways(i % 2 == 0 ? fd : copy, pair.server);
        CHECK(wait_in(epfd, -1, 20) == 0);
        write_all(pair.server, "x", 1);
        CHECK(wait_in(epfd, copy, 30000) == EPOLLIN);
        read_all(fd, &byte, 1);
    }
    close(fd);
    talk_both_ways(copy, pair.server);
    close(epfd);
    close(copy);
    CHECK(read(pair.server, &byte, 1) == 0);
    close(pair.server);
}

/* A descriptor that a child of vfork() closes is still open in the parent, and still in its set. */
static void a_child_of_vfork_closes_all(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int epfd = set_with(fd, EPOLLIN);
    char byte;
    pid_t pid = vfork();
    if (pid == 0) {
        close(fd);
        close(epfd);
        _exit(0);
    }
    wait_for(pid);
    struct pair pair = connect_later(fd);
    for (int i = 0; i < 3; i++) {
        talk_both_ways(fd, pair.server);
        CHECK(wait_in(epfd, -1, 20) == 0);
        write_all(pair.server, "x", 1);
        CHECK(wait_in(epfd, fd, 30000) == EPOLLIN);
        read_all(fd, &byte, 1);
    }
    close(epfd);
    done(pair);
}

static void the_last_holder_ends_it(void)
{
    struct pair pair = connected();
    char data[8];
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(pair.server);
        sleep_ms(50);
        write_all(pair.client, "child", 5);
        close(pair.client);
        _exit(0);
    }
    close(pair.client);
    CHECK(recv(pair.server, data, 8, MSG_WAITALL) == 5);
    wait_for(pid);
    close(pair.server);
}

/* --- children that run no atfork handler ----------------------------------------------------- */

static int served;

static int serve(void *unused)
{
    char data[64];
    ssize_t n;
    (void)unused;
    while ((n = read(served, data, sizeof(data))) > 0) {
        write_all(served, data, (size_t)n);
    }
    return n == 0 ? 0 : 1;
}

static pid_t by_clone(void)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    return clone(serve, stack + sizeof(stack), SIGCHLD, NULL);
}

static pid_t by_quiet_fork(void)
{
    pid_t pid = _Fork();
    if (pid == 0) {
        _exit(serve(NULL));
    }
    return pid;
}

static pid_t by_system_call(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        _exit(serve(NULL));
    }
    return pid;
}

static void echo(int fd, char letter)
{
    char data[64];
    char back[64];
    memset(data, letter, sizeof(data));
    write_all(fd, data, sizeof(data));
    CHECK(recv(fd, back, sizeof(back), MSG_WAITALL) == sizeof(back));
    CHECK(memcmp(data, back, sizeof(data)) == 0);
}

/* A server's parent closes the descriptors that its children use, and gets the next connection. */
static int waits_in_vain(void *of_fd)
{
    struct pollfd pfd = {*(const int *)of_fd, POLLIN, 0};
    return poll(&pfd, 1, 20);
}

static void on_alarm(int number)
{
    (void)number;
}

/* The descriptors that a child of vfork() opens do not exist in its parent, although the child runs
 * in the parent's memory. */
static void a_child_in_our_memory_waits(void)
{
    static _Alignas(64) unsigned char stack[256 * 1024];
    struct pair pair = connected();
    struct pollfd pfd = {pair.server, POLLIN, 0};
    pid_t pid =
        clone(waits_in_vain, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &pair.server);
    CHECK(pid > 0);
    wait_for(pid);
    every_ms(on_alarm, 0, 5);
    for (int i = 0; i < 20; i++) {
        CHECK(poll(&pfd, 1, -1) == -1 && errno == EINTR);
    }
    no_more_signals();
    write_later(pair.client);
    CHECK(poll(&pfd, 1, 5000) == 1);
    done(pair);
}

static void children_made_by_clone(void)
{
    enum { CHILDREN = 9 };
    static pid_t (*const ways[])(void) = {by_clone, by_quiet_fork, by_system_call};
    int clients[CHILDREN];
    pid_t pids[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        struct pair pair = connected();
        clients[i] = pair.client;
        CHECK(fcntl(pair.client, F_SETFD, FD_CLOEXEC) == 0);
        served = pair.server;
        pids[i] = ways[i % 3]();
        CHECK(pids[i] > 0);
        close(pair.server);
        for (int round = 0; round < 20; round++) {
            echo(clients[i - round % (i + 1)], (char)('a' + round));
        }
    }
    for (int i = 0; i < CHILDREN; i++) {
        shutdown(clients[i], SHUT_WR);
        wait_for(pids[i]);
        close(clients[i]);
    }
}

/* In such a child the library uses the child's own process id, and signals the right process. */
static void a_child_made_by_clone_connects(void)
{
    for (int i = 0; i < 3; i++) {
        struct pair pair = connected();
        pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        CHECK(pid >= 0);
        if (pid == 0) {
            struct pair own = connected();
            talk_both_ways(own.client, own.server);
            done(own);
            done(pair);
            _exit(0);
        }
        talk_both_ways(pair.client, pair.server);
        wait_for(pid);
        talk_both_ways(pair.client, pair.server);
        done(pair);
    }
}

/* --- a child shuts down what its parent waits for ----------------------------------------------
 */

/* This process and its children hold one end. A child that connects holds the other end, so no time
 * limit bounds the sleep of this process. */
static int shared_with_children(pid_t *ret_peer)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    char data[64];
    pid_t parent = getpid();
    *ret_peer = fork();
    CHECK(*ret_peer >= 0);
    if (*ret_peer == 0) {
        end_with(parent);
        int client = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
        for (int i = 0; i < 20; i++) {
            read_all(client, data, sizeof(data));
            write_all(client, data, sizeof(data));
        }
        sleep_ms(60000);
        _exit(0);
    }
    int fd = accept(listen_fd, NULL, NULL);
    CHECK(fd >= 0);
    close(listen_fd);
    for (int i = 0; i < 20; i++) {
        echo(fd, (char)('a' + i));
    }
    return fd;
}

/* In memory shared with the child: the time when it shut the end down. */
static double *shut_s;
static int to_shut_down;

/* The child still holds the end. */
static int shut_down_later(void *of_parent)
{
    end_with(*(const pid_t *)of_parent);
    sleep_ms(50);
    *shut_s = now_s();
    shutdown(to_shut_down, SHUT_WR);
    sleep_ms(60000);
    return 0;
}

static pid_t child_that_shuts_down(int fd, bool by_fork)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    static pid_t parent;
    parent = getpid();
    to_shut_down = fd;
    pid_t pid = by_fork ? fork() : clone(shut_down_later, stack + sizeof(stack), SIGCHLD, &parent);
    CHECK(pid >= 0);
    if (pid == 0) {
        _exit(shut_down_later(&parent));
    }
    return pid;
}

static void fill_to_the_last_byte(int fd)
{
    char byte = 'x';
    fill_up(fd);
    while (send(fd, &byte, 1, MSG_DONTWAIT) == 1) {
    }
    CHECK(errno == EAGAIN);
}

enum sleep { IN_EDGE_SET, IN_LEVEL_SET, IN_POLL, IN_SEND, SLEEPS };

/* The delay of this process's wake-up in the set, in seconds. */
static double woken_late_by(enum sleep sleep, bool by_fork)
{
    pid_t peer;
    int fd = shared_with_children(&peer);
    struct pollfd pfd = {fd, POLLOUT, 0};
    int epfd = -1;
    char byte = 'x';
    if (sleep == IN_EDGE_SET) {
        epfd = set_with(fd, EPOLLIN | EPOLLOUT | EPOLLET);
        CHECK(wait_in(epfd, fd, 5000) == EPOLLOUT && wait_in(epfd, -1, 0) == 0);
    } else {
        fill_to_the_last_byte(fd);
        epfd = set_with(fd, EPOLLIN | EPOLLOUT);
    }
    pid_t pid = child_that_shuts_down(fd, by_fork);
    if (sleep == IN_SEND) {
        CHECK(send(fd, &byte, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    } else if (sleep == IN_POLL) {
        CHECK(poll(&pfd, 1, 20000) == 1 && pfd.revents == POLLOUT);
    } else {
        CHECK(wait_in(epfd, fd, 20000) == EPOLLOUT);
    }
    double late_s = now_s() - *shut_s;
    kill(pid, SIGKILL);
    kill(peer, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid && waitpid(peer, NULL, 0) == peer);
    close(fd);
    close(epfd);
    return late_s;
}

/* On a busy machine, one wake-up may be late. */
static void shutdown_by_a_child_wakes_its_parent(void)
{
    shut_s = mmap(NULL, sizeof(*shut_s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shut_s != MAP_FAILED);
    for (unsigned i = 0; i < 2 * SLEEPS; i++) {
        double late_s = 1;
        for (int tries = 0; tries < 4 && late_s > 0.5; tries++) {
            late_s = woken_late_by((enum sleep)(i / 2), i % 2 == 0);
        }
        CHECK(late_s <= 0.5);
    }
    munmap(shut_s, sizeof(*shut_s));
}

static void processes_share_it(void)
{
    enum { CHILDREN = 3, MESSAGES = 500 };
    struct pair pair = connected();
    pid_t pids[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            char message[32];
            memset(message, 'a' + i, sizeof(message));
            for (int k = 0; k < MESSAGES; k++) {
                CHECK(write(pair.client, message, sizeof(message)) == sizeof(message));
            }
            _exit(0);
        }
    }
    int seen[CHILDREN] = {0};
    for (int k = 0; k < CHILDREN * MESSAGES; k++) {
        char message[32];
        CHECK(recv(pair.server, message, sizeof(message), MSG_WAITALL) == sizeof(message));
        for (size_t i = 1; i < sizeof(message); i++) {
            CHECK(message[i] == message[0]);
        }
        seen[message[0] - 'a']++;
    }
    for (int i = 0; i < CHILDREN; i++) {
        CHECK(seen[i] == MESSAGES);
        wait_for(pids[i]);
    }
    done(pair);
}

static void one_reads_one_writes(void)
{
    /* Forked before any byte was sent: parent and child meet the peer at different times. */
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    pid_t echo = fork();
    CHECK(echo >= 0);
    if (echo == 0) {
        char data[4096];
        ssize_t n;
        int fd = accept(listen_fd, NULL, NULL);
        while ((n = read(fd, data, sizeof(data))) > 0) {
            write_all(fd, data, (size_t)n);
        }
        _exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    pid_t writer = fork();
    CHECK(writer >= 0);
    if (writer == 0) {
        for (int i = 0; i < 2000; i++) {
            write_all(fd, &i, sizeof(i));
            if (i % 100 == 0) {
                sleep_ms(1);
            }
        }
        shutdown(fd, SHUT_WR);
        _exit(0);
    }
    for (int i = 0; i < 2000; i++) {
        int value;
        CHECK(recv(fd, &value, sizeof(value), MSG_WAITALL) == sizeof(value) && value == i);
    }
    char byte;
    CHECK(read(fd, &byte, 1) == 0);
    wait_for(writer);
    wait_for(echo);
    close(fd);
    close(listen_fd);
}

static void a_child_per_connection(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    pid_t server = fork();
    CHECK(server >= 0);
    if (server == 0) {
        for (int i = 0; i < 5; i++) {
            int fd = accept(listen_fd, NULL, NULL);
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0) {
                char data[64];
                ssize_t n;
                while ((n = read(fd, data, sizeof(data))) > 0) {
                    write_all(fd, data, (size_t)n);
                }
                _exit(0);
            }
            close(fd);
        }
        while (wait(NULL) > 0) {
        }
        _exit(0);
    }
    for (int i = 0; i < 5; i++) {
        char data[64];
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
        for (int k = 0; k < 50; k++) {
            write_all(fd, "ping", 4);
            read_all(fd, data, 4);
        }
        close(fd);
    }
    wait_for(server);
    close(listen_fd);
}

struct half {
    int fd;
    int count;
    uint64_t sum;
};

static void *thread_writer(void *of_half)
{
    struct half *half = of_half;
    for (int i = 0; i < half->count; i++) {
        uint64_t value = (uint64_t)i;
        CHECK(write(half->fd, &value, sizeof(value)) == sizeof(value));
    }
    return NULL;
}

static void *thread_reader(void *of_half)
{
    struct half *half = of_half;
    for (int i = 0; i < half->count; i++) {
        uint64_t value;
        CHECK(recv(half->fd, &value, sizeof(value), MSG_WAITALL) == sizeof(value));
        half->sum += value;
    }
    return NULL;
}

static void threads_share_it(void)
{
    enum { COUNT = 20000, WRITERS = 2 };
    struct pair pair = connected();
    pthread_t writers[WRITERS], reader, back;
    struct half out[WRITERS], in = {pair.server, COUNT * WRITERS, 0};
    struct half out_back = {pair.server, COUNT, 0}, in_back = {pair.client, COUNT, 0};
    CHECK(pthread_create(&reader, NULL, thread_reader, &in) == 0);
    CHECK(pthread_create(&back, NULL, thread_reader, &in_back) == 0);
    for (int i = 0; i < WRITERS; i++) {
        out[i] = (struct half){pair.client, COUNT, 0};
        CHECK(pthread_create(&writers[i], NULL, thread_writer, &out[i]) == 0);
    }
    thread_writer(&out_back);
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(writers[i], NULL);
    }
    pthread_join(reader, NULL);
    pthread_join(back, NULL);
    CHECK(in.sum == (uint64_t)WRITERS * COUNT * (COUNT - 1) / 2);
    CHECK(in_back.sum == (uint64_t)COUNT * (COUNT - 1) / 2);
    done(pair);
}

static void *thread_sender(void *of_half)
{
    static const char message[64];
    struct half *half = of_half;
    for (int i = 0; i < half->count; i++) {
        write_all(half->fd, message, sizeof(message));
    }
    return NULL;
}

/* Two writers wait for room together. One of them takes some of the room and then sends no more.
 */
static void a_thread_waits_on_when_another_stops(void)
{
    enum { ROUNDS = 300 };
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    pid_t reader = fork();
    if (reader == 0) {
        static char data[65536];
        int fd = accept(listen_fd, NULL, NULL);
        while (recv(fd, data, 64, MSG_WAITALL) > 0) {
        }
        _exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct half one = {fd, 600 + round % 700, 0}, other = {fd, 600 + round % 900, 0};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, thread_sender, &one) == 0);
        thread_sender(&other);
        pthread_join(thread, NULL);
    }
    close(fd);
    close(listen_fd);
    wait_for(reader);
}

static void a_thread_reads_before_anything_is_settled(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    struct pair pair = {socket(AF_INET, SOCK_STREAM, 0), -1};
    CHECK(connect(pair.client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    pair.server = accept(listen_fd, NULL, NULL);
    struct half in = {pair.server, 200, 0}, in_back = {pair.client, 200, 0};
    struct half out = {pair.client, 200, 0}, out_back = {pair.server, 200, 0};
    pthread_t reader, back;
    CHECK(pthread_create(&reader, NULL, thread_reader, &in) == 0);
    CHECK(pthread_create(&back, NULL, thread_reader, &in_back) == 0);
    sleep_ms(20);
    for (int i = 0; i < 200; i++) {
        struct half one = {out.fd, 1, 0};
        thread_writer(&one);
        one.fd = out_back.fd;
        thread_writer(&one);
        if (i % 20 == 0) {
            sleep_ms(1);
        }
    }
    pthread_join(reader, NULL);
    pthread_join(back, NULL);
    close(listen_fd);
    done(pair);
}

static void low_numbers_stay_free(void)
{
    int before = open("/dev/null", O_RDONLY);
    close(before);
    struct pair pair = connected();
    int low = pair.client < pair.server ? pair.client : pair.server;
    CHECK(low <= before + 1);
    int next = open("/dev/null", O_RDONLY);
    CHECK(next <= before + 3);
    close(next);
    done(pair);
    int after = open("/dev/null", O_RDONLY);
    CHECK(after == before);
    close(after);
}

static void closing_everything_else(void)
{
    struct pair pair = connected();
    char byte;
    int max = pair.client > pair.server ? pair.client : pair.server;
    /* Closes all descriptors, as daemons do; the library's own descriptors must survive. */
    for (int fd = max + 1; fd < 65536; fd++) {
        close(fd);
    }
    CHECK(close_range((unsigned)max + 1, ~0u, 0) == 0);
    for (int i = 0; i < 200; i++) {
        write_all(pair.client, "x", 1);
        read_all(pair.server, &byte, 1);
    }
    done(pair);
}

/* A thread copies a descriptor and closes the copy while another one forks. */
static struct pair copied_pair;
static atomic_bool copying;

static void *copy_again_and_again(void *unused)
{
    while (copying) {
        int copy = dup(copied_pair.server);
        CHECK(copy >= 0 && close(copy) == 0);
    }
    return unused;
}

static void copied_while_processes_fork(void)
{
    pthread_t thread;
    double end_s = now_s() + race_s();
    char byte;
    copied_pair = connected();
    copying = true;
    CHECK(pthread_create(&thread, NULL, copy_again_and_again, NULL) == 0);
    while (now_s() < end_s) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            _exit(0);
        }
        wait_for(pid);
        CHECK(recv(copied_pair.client, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    }
    copying = false;
    CHECK(pthread_join(thread, NULL) == 0);
    talk_both_ways(copied_pair.client, copied_pair.server);
    CHECK(close(copied_pair.server) == 0 && read(copied_pair.client, &byte, 1) == 0);
    close(copied_pair.client);
}

/* A number refers to one of two connections in turn, by dup2() in another thread. */
static struct pair two_pairs[2];
static int one_number;

static void *refer_to_both(void *unused)
{
    for (unsigned i = 0; copying; i++) {
        CHECK(dup2(two_pairs[i % 2].client, one_number) == one_number);
    }
    return unused;
}

static uint16_t peer_port(int fd)
{
    struct sockaddr_in addr;
    socklen_t bytes = sizeof(addr);
    CHECK(getpeername(fd, (struct sockaddr *)&addr, &bytes) == 0);
    return addr.sin_port;
}

/* Whatever the number refers to in a child, its bytes get to the peer of that. */
static void a_number_changes_while_processes_fork(void)
{
    pthread_t thread;
    uint16_t ports[2];
    for (unsigned i = 0; i < 2; i++) {
        two_pairs[i] = connected();
        ports[i] = peer_port(two_pairs[i].client);
    }
    one_number = dup(two_pairs[0].client);
    copying = true;
    CHECK(pthread_create(&thread, NULL, refer_to_both, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        char port[2];
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            uint16_t own = peer_port(one_number);
            write_all(one_number, &own, sizeof(own));
            _exit(0);
        }
        wait_for(pid);
        struct pollfd pfds[2] = {{two_pairs[0].server, POLLIN, 0},
                                 {two_pairs[1].server, POLLIN, 0}};
        CHECK(poll(pfds, 2, 10000) == 1);
        unsigned which = pfds[0].revents != 0 ? 0 : 1;
        read_all(two_pairs[which].server, port, sizeof(port));
        CHECK(memcmp(port, &ports[which], sizeof(port)) == 0);
    }
    copying = false;
    CHECK(pthread_join(thread, NULL) == 0);
    close(one_number);
    done(two_pairs[0]);
    done(two_pairs[1]);
}

const struct check checks_of_processes[] = {
    CHECK_ENTRY(copies),
    CHECK_ENTRY(a_number_changes_while_processes_fork),
    CHECK_ENTRY(copied_before_it_connects),
    CHECK_ENTRY(a_child_of_vfork_closes_all),
    CHECK_ENTRY(the_last_holder_ends_it),
    CHECK_ENTRY(children_made_by_clone),
    CHECK_ENTRY(a_child_in_our_memory_waits),
    CHECK_ENTRY(a_child_made_by_clone_connects),
    CHECK_ENTRY(shutdown_by_a_child_wakes_its_parent),
    CHECK_ENTRY(processes_share_it),
    CHECK_ENTRY(one_reads_one_writes),
    CHECK_ENTRY(a_child_per_connection),
    CHECK_ENTRY(threads_share_it),
    CHECK_ENTRY(copied_while_processes_fork),
    CHECK_ENTRY(a_thread_waits_on_when_another_stops),
    CHECK_ENTRY(a_thread_reads_before_anything_is_settled),
    CHECK_ENTRY(low_numbers_stay_free),
    CHECK_ENTRY(closing_everything_else),
    {0},
};
