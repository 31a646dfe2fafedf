/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A process that is killed, or ends without closing, causes the same result at its peer as with
 * TCP: a reset if bytes were unread, otherwise end of file. */
#include "checks.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define REQUEST "a request!"
#define REQUEST_BYTES 10

/* This process holds one end; another process, which will die, is the only holder of the other end.
 */
struct victim {
    int fd;
    int ready_fd; /* the process sends a byte when it has done its work */
    pid_t pid;
};

static struct victim victim_of(struct pair pair, void (*life)(int fd))
{
    int ready[2];
    CHECK(pipe(ready) == 0);
    signal(SIGPIPE, SIG_IGN);
    pid_t parent = getpid();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        end_with(parent);
        close(pair.client);
        life(pair.server);
        (void)!write(ready[1], "r", 1);
        for (;;) {
            pause();
        }
    }
    close(pair.server);
    close(ready[1]);
    return (struct victim){.fd = pair.client, .ready_fd = ready[0], .pid = pid};
}

static struct victim victim_with(void (*life)(int fd))
{
    return victim_of(connected(), life);
}

static void wait_until_ready(const struct victim *victim)
{
    char byte;
    CHECK(read(victim->ready_fd, &byte, 1) >= 0);
}

static void wait_until_dead(const struct victim *victim)
{
    CHECK(waitpid(victim->pid, NULL, 0) == victim->pid);
    close(victim->ready_fd);
    sleep_ms(20);
}

static void kill_it(const struct victim *victim)
{
    wait_until_ready(victim);
    CHECK(kill(victim->pid, SIGKILL) == 0);
    wait_until_dead(victim);
}

static short events_of(int fd)
{
    struct pollfd pfd = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    CHECK(poll(&pfd, 1, 30000) == 1);
    return pfd.revents;
}

#define ENDED (POLLIN | POLLOUT | POLLRDHUP)

/* The end's own direction has not ended. */
static void expect_reset(int fd)
{
    char byte;
    CHECK(events_of(fd) == (ENDED | POLLERR | POLLHUP));
    CHECK(read(fd, &byte, 1) == -1 && errno == ECONNRESET);
    CHECK(read(fd, &byte, 1) == 0 && read(fd, &byte, 1) == 0);
    CHECK(events_of(fd) == (ENDED | POLLHUP));
    CHECK(write(fd, "x", 1) == -1 && errno == EPIPE);
    close(fd);
}

static void expect_end(int fd)
{
    char byte;
    CHECK(events_of(fd) == ENDED);
    CHECK(read(fd, &byte, 1) == 0 && read(fd, &byte, 1) == 0);
    close(fd);
}

/* --- whether it has read the bytes ----------------------------------------------------------- */

static void reads_nothing(int fd)
{
    (void)fd;
}

static void reads_all(int fd)
{
    char data[REQUEST_BYTES];
    read_all(fd, data, REQUEST_BYTES);
}

static void reads_half(int fd)
{
    char data[REQUEST_BYTES];
    read_all(fd, data, REQUEST_BYTES / 2);
}

static void peeks(int fd)
{
    char data[REQUEST_BYTES];
    for (int unread = 0; unread < (int)REQUEST_BYTES; sleep_ms(1)) {
        CHECK(ioctl(fd, FIONREAD, &unread) == 0);
    }
    CHECK(recv(fd, data, REQUEST_BYTES, MSG_PEEK) == REQUEST_BYTES);
}

static void answers_unread(int fd)
{
    write_all(fd, "answer", 6);
}

static void reads_and_answers(int fd)
{
    reads_all(fd);
    write_all(fd, "answer", 6);
}

static void shuts_reading(int fd)
{
    CHECK(shutdown(fd, SHUT_RD) == 0);
}

static void lingers(int fd)
{
    struct linger linger = {1, 5};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
}

static int request(void (*life)(int fd))
{
    struct victim victim = victim_with(life);
    write_all(victim.fd, REQUEST, REQUEST_BYTES);
    kill_it(&victim);
    return victim.fd;
}

static void killed_with_unread_bytes(void)
{
    expect_reset(request(reads_nothing));
    expect_reset(request(reads_half));
    expect_reset(request(peeks));
    expect_reset(request(shuts_reading));
    expect_reset(request(lingers));
}

static void killed_when_all_was_read(void)
{
    expect_end(request(reads_all));
}

static void killed_after_an_answer(void)
{
    char data[16];
    int fd = request(answers_unread);
    CHECK(read(fd, data, 16) == 6 && memcmp(data, "answer", 6) == 0);
    expect_reset(fd);
    fd = request(reads_and_answers);
    CHECK(read(fd, data, 16) == 6);
    expect_end(fd);
}

/* --- how it ends ----------------------------------------------------------------------------- */

static void leaves_by__exit(int fd)
{
    peeks(fd);
    _exit(0);
}

static void leaves_by_exit(int fd)
{
    peeks(fd);
    exit(0);
}

static void crashes(int fd)
{
    peeks(fd);
    signal(SIGABRT, SIG_DFL);
    abort();
}

static void leaves_having_read(int fd)
{
    reads_all(fd);
    exit(0);
}

static int ended(void (*life)(int fd))
{
    struct victim victim = victim_with(life);
    write_all(victim.fd, REQUEST, REQUEST_BYTES);
    wait_until_dead(&victim);
    return victim.fd;
}

static void ends_without_closing(void)
{
    expect_reset(ended(leaves_by__exit));
    expect_reset(ended(leaves_by_exit));
    expect_reset(ended(crashes));
    expect_end(ended(leaves_having_read));
}

/* --- what else the connection has seen ------------------------------------------------------- */

/* Both directions have ended by then. */
static void killed_after_the_end_of_the_request(void)
{
    struct victim victim = victim_with(reads_nothing);
    char byte;
    write_all(victim.fd, REQUEST, REQUEST_BYTES);
    CHECK(shutdown(victim.fd, SHUT_WR) == 0);
    kill_it(&victim);
    CHECK(events_of(victim.fd) == (ENDED | POLLERR | POLLHUP));
    CHECK(read(victim.fd, &byte, 1) == -1 && errno == ECONNRESET);
    CHECK(read(victim.fd, &byte, 1) == 0);
    CHECK(events_of(victim.fd) == (ENDED | POLLHUP));
    close(victim.fd);
}

static void killed_before_it_read_the_end(void)
{
    struct victim victim = victim_with(reads_all);
    char byte;
    write_all(victim.fd, REQUEST, REQUEST_BYTES);
    CHECK(shutdown(victim.fd, SHUT_WR) == 0);
    kill_it(&victim);
    CHECK(events_of(victim.fd) == (ENDED | POLLHUP));
    CHECK(read(victim.fd, &byte, 1) == 0);
    close(victim.fd);
}

static void forks_and_reads_nothing(int fd)
{
    pid_t parent = getpid();
    (void)fd;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        while (getppid() == parent) {
            sleep_ms(1);
        }
        sleep_ms(200);
        _exit(0);
    }
}

/* A child of the killed process still holds the end. */
static void the_last_holder_counts(void)
{
    char byte;
    int fd = request(forks_and_reads_nothing);
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    write_all(fd, "more", 4);
    CHECK(read(fd, &byte, 1) == -1 && errno == ECONNRESET);
    CHECK(read(fd, &byte, 1) == 0);
    close(fd);
}

/* Bytes written to a dead process are lost, but not the unread bytes that it had sent. */
static void writes_after_a_death_are_no_reset(void)
{
    char byte;
    int fd = request(reads_all);
    CHECK(write(fd, "x", 1) == 1);
    sleep_ms(5);
    CHECK(read(fd, &byte, 1) == 0);
    CHECK(write(fd, "x", 1) == -1 && errno == EPIPE);
    close(fd);
}

static void answers_for_long(int fd)
{
    char data[1000];
    CHECK(read(fd, data, sizeof(data)) == REQUEST_BYTES && read(fd, data, 1) == 0);
    memset(data, 'a', sizeof(data));
    for (int i = 0; i < 100; i++) {
        write_all(fd, data, sizeof(data));
        sleep_ms(1);
    }
}

/* An end that has shut down its output before it was accelerated, so no pipe announced this, is
 * alive but slow. */
static void an_early_end_is_no_death(void)
{
    struct victim victim = victim_of(just_connected(), answers_for_long);
    char data[400];
    write_all(victim.fd, REQUEST, REQUEST_BYTES);
    CHECK(shutdown(victim.fd, SHUT_WR) == 0);
    for (int left = 100 * 1000 / 400; left > 0; left--) {
        read_all(victim.fd, data, sizeof(data));
        sleep_ms(1);
    }
    kill_it(&victim);
    CHECK(read(victim.fd, data, 1) == 0);
    close(victim.fd);
}

static void reads_what_came(int fd)
{
    for (int i = 0; i < 100; i++) {
        reads_all(fd);
    }
}

/* The killed end has never sent anything. */
static void killed_without_ever_writing(void)
{
    struct victim victim = victim_of(just_connected(), reads_what_came);
    for (int i = 0; i < 100; i++) {
        write_all(victim.fd, REQUEST, REQUEST_BYTES);
        sleep_ms(1);
    }
    wait_until_ready(&victim);
    write_all(victim.fd, REQUEST, REQUEST_BYTES);
    CHECK(kill(victim.pid, SIGKILL) == 0);
    wait_until_dead(&victim);
    expect_reset(victim.fd);
}

/* --- how the peer notices -------------------------------------------------------------------- */

static void dies_later(int fd)
{
    pid_t pid = getpid();
    pid_t killer = fork();
    CHECK(killer >= 0);
    if (killer == 0) {
        close(fd);
        sleep_ms(50);
        kill(pid, SIGKILL);
        _exit(0);
    }
}

static void a_sleeping_reader_gets_a_reset(void)
{
    struct victim victim = victim_with(dies_later);
    char byte;
    write_all(victim.fd, REQUEST, REQUEST_BYTES);
    CHECK(read(victim.fd, &byte, 1) == -1 && errno == ECONNRESET);
    wait_until_dead(&victim);
    CHECK(read(victim.fd, &byte, 1) == 0);
    close(victim.fd);
}

static void a_set_reports_a_reset(uint32_t events)
{
    struct victim victim = victim_with(dies_later);
    int epfd = set_with(victim.fd, events);
    write_all(victim.fd, REQUEST, REQUEST_BYTES);
    CHECK(wait_in(epfd, victim.fd, 30000) == (EPOLLIN | EPOLLERR | EPOLLHUP));
    wait_until_dead(&victim);
    close(epfd);
    expect_reset(victim.fd);
}

static void sets_report_a_reset(void)
{
    a_set_reports_a_reset(EPOLLIN);
    a_set_reports_a_reset(EPOLLIN | EPOLLET);
}

static void the_error_is_an_option(void)
{
    int fd = request(reads_nothing);
    int error = 0;
    socklen_t bytes = sizeof(error);
    char byte;
    CHECK((events_of(fd) & POLLERR) != 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == ECONNRESET);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0);
    CHECK(read(fd, &byte, 1) == 0);
    close(fd);
}

/* The peer may notice the death late, but then as if RST had been under way: by this result, and
 * only once. */
static void a_writer_gets_a_reset(void)
{
    int fd = request(reads_nothing);
    double begin = now_s();
    while (write(fd, "x", 1) == 1) {
        CHECK(now_s() - begin < 30);
    }
    CHECK(errno == ECONNRESET);
    CHECK(write(fd, "x", 1) == -1 && errno == EPIPE);
    close(fd);
}

/* --- one of several that hold the end -------------------------------------------------------- */

/* The next write of 8 bytes kills this process: such a library rings by a write of 8 bytes. */
static void die_at_the_ring(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, sizeof(uint64_t), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    /* Not by prctl(): at prctl() the library would return the connection to the kernel. */
    CHECK(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
}

/* The peer sleeps when the byte arrives. */
static void writes_and_dies(int fd)
{
    if (fork() == 0) {
        sleep_ms(300);
        die_at_the_ring();
        write_all(fd, "x", 1);
        raise(SIGKILL);
    }
}

/* The parent of the dead process holds the end, too, and has not noticed the death: the byte
 * arrives nevertheless. */
static void expect_the_byte(bool (*notices)(int fd))
{
    struct victim victim = victim_with(writes_and_dies);
    double begin = now_s();
    char byte = 0;
    CHECK(notices(victim.fd) && now_s() - begin < 15);
    read_all(victim.fd, &byte, 1);
    CHECK(byte == 'x');
    kill_it(&victim);
    close(victim.fd);
}

static bool notices_by_poll(int fd)
{
    struct pollfd pfd = {fd, POLLIN, 0};
    return poll(&pfd, 1, 20000) == 1;
}

static bool notices_by_set(int fd)
{
    int epfd = set_with(fd, EPOLLIN);
    bool noticed = wait_in(epfd, fd, 20000) == EPOLLIN;
    close(epfd);
    return noticed;
}

static bool notices_by_edge(int fd)
{
    int epfd = set_with(fd, EPOLLIN | EPOLLET);
    bool noticed = wait_in(epfd, fd, 20000) == EPOLLIN;
    close(epfd);
    return noticed;
}

static bool notices_by_reading(int fd)
{
    struct timeval limit = {20, 0};
    char byte;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
    return recv(fd, &byte, 1, MSG_PEEK) == 1;
}

static void killed_before_it_rings(void)
{
    expect_the_byte(notices_by_poll);
    expect_the_byte(notices_by_set);
    expect_the_byte(notices_by_edge);
    expect_the_byte(notices_by_reading);
}

static void *talk_on_both(void *of_pair)
{
    const struct pair *pair = of_pair;
    talk_both_ways(pair->client, pair->server);
    return NULL;
}

/* The main thread ends; the process ends with the last of the program's threads. */
static void end_with_the_last_thread(void)
{
    static struct pair pair;
    pthread_t thread;
    pair = connected();
    CHECK(pthread_create(&thread, NULL, talk_on_both, &pair) == 0);
    CHECK(pthread_detach(thread) == 0);
    pthread_exit(NULL);
}

static void the_last_thread_ends(void)
{
    end_with_the_last_thread();
}

static void the_last_thread_ends_without_proc(void)
{
    char name[] = "/tmp/viaduct-root-XXXXXX";
    struct pair before = connected();
    dlopen("libgcc_s.so.1", RTLD_NOW); /* for pthread_exit() */
    CHECK(mkdtemp(name) != NULL && chdir(name) == 0 && rmdir(name) == 0);
    if (chroot(".") == 0) {
        end_with_the_last_thread();
    }
    CHECK(errno == EPERM);
    done(before);
}

const struct check checks_of_deaths[] = {
    CHECK_ENTRY(the_last_thread_ends),
    CHECK_ENTRY(the_last_thread_ends_without_proc),
    CHECK_ENTRY(killed_with_unread_bytes),
    CHECK_ENTRY(killed_when_all_was_read),
    CHECK_ENTRY(killed_after_an_answer),
    CHECK_ENTRY(ends_without_closing),
    CHECK_ENTRY(killed_after_the_end_of_the_request),
    CHECK_ENTRY(killed_before_it_read_the_end),
    CHECK_ENTRY(the_last_holder_counts),
    CHECK_ENTRY(writes_after_a_death_are_no_reset),
    CHECK_ENTRY(an_early_end_is_no_death),
    CHECK_ENTRY(killed_without_ever_writing),
    CHECK_ENTRY(a_sleeping_reader_gets_a_reset),
    CHECK_ENTRY(sets_report_a_reset),
    CHECK_ENTRY(the_error_is_an_option),
    CHECK_ENTRY(a_writer_gets_a_reset),
    CHECK_ENTRY(killed_before_it_rings),
    {0},
};
