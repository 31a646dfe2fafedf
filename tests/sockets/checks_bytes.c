/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Moving bytes, blocking and not. */
#include "checks.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

static void sizes(void)
{
    static char out[300000], in[300000];
    struct pair pair = connected();
    for (size_t i = 0; i < sizeof(out); i++) {
        out[i] = (char)(i * 31 + i / 256);
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (size_t bytes = 1; bytes <= sizeof(out); bytes = bytes * 3 / 2 + 1) {
            write_all(pair.client, out, bytes);
        }
        _exit(0);
    }
    for (size_t bytes = 1; bytes <= sizeof(out); bytes = bytes * 3 / 2 + 1) {
        read_all(pair.server, in, bytes);
        CHECK(memcmp(in, out, bytes) == 0);
    }
    wait_for(pid);
    done(pair);
}

static void scatter_and_gather(void)
{
    struct pair pair = connected();
    char a[5] = "abcd", b[3] = "ef", c[100];
    memset(c, 'c', sizeof(c));
    struct iovec out[4] = {{a, 4}, {NULL, 0}, {b, 2}, {c, 100}};
    CHECK(writev(pair.client, out, 4) == 106);
    char x[3], y[200];
    struct iovec in[3] = {{x, 3}, {NULL, 0}, {y, 200}};
    CHECK(readv(pair.server, in, 3) == 106);
    CHECK(memcmp(x, "abc", 3) == 0 && memcmp(y, "defcc", 5) == 0 && y[102] == 'c');
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 4};
    CHECK(sendmsg(pair.server, &message, 0) == 106);
    char control[64];
    struct msghdr into = {.msg_iov = in,
                          .msg_iovlen = 3,
                          .msg_control = control,
                          .msg_controllen = sizeof(control),
                          .msg_flags = 77};
    CHECK(recvmsg(pair.client, &into, 0) == 106);
    CHECK(into.msg_controllen == 0 && (into.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0);
    done(pair);
}

static void zero_bytes(void)
{
    struct pair pair = connected();
    char byte;
    CHECK(write(pair.client, "", 0) == 0);
    CHECK(send(pair.client, NULL, 0, 0) == 0);
    CHECK(read(pair.server, &byte, 0) == 0);
    CHECK(recv(pair.server, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    done(pair);
}

static void peek(void)
{
    struct pair pair = connected();
    char data[16];
    write_all(pair.client, "hello ", 6);
    write_all(pair.client, "world", 5);
    sleep_ms(20);
    CHECK(recv(pair.server, data, 3, MSG_PEEK) == 3 && memcmp(data, "hel", 3) == 0);
    CHECK(recv(pair.server, data, 16, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT) == 11);
    CHECK(memcmp(data, "hello world", 11) == 0);
    CHECK(recv(pair.server, data, 16, 0) == 11);
    CHECK(recv(pair.server, data, 16, MSG_PEEK | MSG_DONTWAIT) == -1 && errno == EAGAIN);
    done(pair);
}

static void wait_all(void)
{
    struct pair pair = connected();
    char data[10];
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 10; i++) {
            sleep_ms(5);
            write_all(pair.client, &"0123456789"[i], 1);
        }
        _exit(0);
    }
    CHECK(recv(pair.server, data, 10, MSG_WAITALL) == 10);
    CHECK(memcmp(data, "0123456789", 10) == 0);
    wait_for(pid);
    done(pair);
}

static void truncated_bytes_are_thrown_away(void)
{
    struct pair pair = connected();
    char data[8];
    write_all(pair.client, "0123456789", 10);
    CHECK(recv(pair.server, NULL, 6, MSG_TRUNC) == 6);
    CHECK(recv(pair.server, data, 8, 0) == 4 && memcmp(data, "6789", 4) == 0);
    done(pair);
}

static void readable_bytes(void)
{
    struct pair pair = connected();
    char data[8];
    int bytes = -1;
    CHECK(ioctl(pair.server, FIONREAD, &bytes) == 0 && bytes == 0);
    write_all(pair.client, "0123456789", 10);
    char *block = calloc(1, 5000);
    write_all(pair.client, block, 5000);
    sleep_ms(20);
    CHECK(ioctl(pair.server, FIONREAD, &bytes) == 0 && bytes == 5010);
    read_all(pair.server, data, 8);
    CHECK(ioctl(pair.server, FIONREAD, &bytes) == 0 && bytes == 5002);
    free(block);
    done(pair);
}

static void from_a_file(void)
{
    struct pair pair = connected();
    char name[] = "/tmp/via-check-XXXXXX";
    static char block[200000], in[200000];
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    unlink(name);
    for (size_t i = 0; i < sizeof(block); i++) {
        block[i] = (char)(i * 7 + i / 1000);
    }
    write_all(fd, block, sizeof(block));
    off_t at = 100;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        while (at < (off_t)sizeof(block)) {
            CHECK(sendfile(pair.client, fd, &at, sizeof(block)) > 0);
        }
        _exit(0);
    }
    read_all(pair.server, in, sizeof(block) - 100);
    CHECK(memcmp(in, block + 100, sizeof(block) - 100) == 0);
    wait_for(pid);
    CHECK(lseek(fd, 10, SEEK_SET) == 10);
    CHECK(sendfile(pair.server, fd, NULL, 50) == 50);
    CHECK(lseek(fd, 0, SEEK_CUR) == 60);
    read_all(pair.client, in, 50);
    CHECK(memcmp(in, block + 10, 50) == 0);
    close(fd);
    done(pair);
}

static void through_a_pipe(void)
{
    struct pair pair = connected();
    int fds[2];
    char data[16];
    CHECK(pipe(fds) == 0);
    write_all(fds[1], "spliced", 7);
    CHECK(splice(fds[0], NULL, pair.client, NULL, 7, 0) == 7);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 16, 0) == 7);
    read_all(fds[0], data, 7);
    CHECK(memcmp(data, "spliced", 7) == 0);
    close(fds[0]);
    close(fds[1]);
    done(pair);
}

static void many_messages(void)
{
    struct pair pair = connected();
    char a[3] = "ab", b[3] = "cd", in[8] = "";
    struct iovec out[2] = {{a, 2}, {b, 2}};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &out[0], .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &out[1], .msg_iovlen = 1}}};
    CHECK(sendmmsg(pair.client, messages, 2, 0) == 2);
    CHECK(messages[0].msg_len == 2 && messages[1].msg_len == 2);
    sleep_ms(20);
    struct iovec into[2] = {{in, 3}, {in + 3, 3}};
    struct mmsghdr received[2] = {{.msg_hdr = {.msg_iov = &into[0], .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &into[1], .msg_iovlen = 1}}};
    CHECK(recvmmsg(pair.server, received, 2, 0, NULL) == 2);
    CHECK(received[0].msg_len == 3 && received[1].msg_len == 1);
    CHECK(memcmp(in, "abcd", 4) == 0);
    done(pair);
}

/* --- blocking and not ------------------------------------------------------------------------ */

static void nonblocking_calls(void)
{
    struct pair pair = connected();
    char byte;
    nonblocking(pair.server);
    CHECK(read(pair.server, &byte, 1) == -1 && errno == EAGAIN);
    nonblocking(pair.client);
    size_t total = fill_up(pair.client);
    CHECK(total > 0);
    CHECK(write(pair.client, "x", 1) == -1 && errno == EAGAIN);
    fcntl(pair.server, F_SETFL, 0);
    CHECK(drain(pair.server, total) == total);
    CHECK(recv(pair.server, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    CHECK(write(pair.client, "x", 1) == 1);
    int on = 0;
    CHECK(ioctl(pair.client, FIONBIO, &on) == 0);
    CHECK((fcntl(pair.client, F_GETFL) & O_NONBLOCK) == 0);
    done(pair);
}

static void the_flag_is_shared_by_copies(void)
{
    struct pair pair = connected();
    char byte;
    int copy = dup(pair.server);
    CHECK(copy >= 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        nonblocking(copy);
        _exit(0);
    }
    wait_for(pid);
    CHECK(read(pair.server, &byte, 1) == -1 && errno == EAGAIN);
    close(copy);
    done(pair);
}

static void a_blocking_send_completes(void)
{
    struct pair pair = connected();
    size_t bytes = 8u << 20;
    char *block = calloc(1, bytes);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        sleep_ms(50);
        drain(pair.server, bytes);
        _exit(0);
    }
    CHECK(send(pair.client, block, bytes, 0) == (ssize_t)bytes);
    wait_for(pid);
    free(block);
    done(pair);
}

static void timeouts(void)
{
    struct pair pair = connected();
    struct timeval tv = {0, 60000};
    char byte;
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
    double before = now_s();
    CHECK(read(pair.server, &byte, 1) == -1 && errno == EAGAIN);
    CHECK(now_s() - before > 0.05 && now_s() - before < 30);
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) == 0);
    size_t total = fill_up(pair.client);
    before = now_s();
    CHECK(write(pair.client, "x", 1) == -1 && errno == EAGAIN);
    CHECK(now_s() - before > 0.05 && now_s() - before < 30);
    drain(pair.server, total);
    done(pair);
}

static void low_water_mark(void)
{
    struct pair pair = connected();
    int low = 10;
    char data[64];
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)) == 0);
    write_all(pair.client, "12345", 5);
    struct pollfd pfd = {pair.server, POLLIN, 0};
    CHECK(poll(&pfd, 1, 30) == 0);
    write_all(pair.client, "67890", 5);
    CHECK(poll(&pfd, 1, 30000) == 1 && pfd.revents == POLLIN);
    CHECK(recv(pair.server, data, sizeof(data), 0) == 10);
    write_all(pair.client, "12", 2);
    CHECK(recv(pair.server, data, sizeof(data), MSG_DONTWAIT) == 2);
    done(pair);
}

const struct check checks_of_bytes[] = {
    CHECK_ENTRY(sizes),
    CHECK_ENTRY(scatter_and_gather),
    CHECK_ENTRY(zero_bytes),
    CHECK_ENTRY(peek),
    CHECK_ENTRY(wait_all),
    CHECK_ENTRY(truncated_bytes_are_thrown_away),
    CHECK_ENTRY(readable_bytes),
    CHECK_ENTRY(from_a_file),
    CHECK_ENTRY(through_a_pipe),
    CHECK_ENTRY(many_messages),
    CHECK_ENTRY(nonblocking_calls),
    CHECK_ENTRY(the_flag_is_shared_by_copies),
    CHECK_ENTRY(a_blocking_send_completes),
    CHECK_ENTRY(timeouts),
    CHECK_ENTRY(low_water_mark),
    {0},
};
