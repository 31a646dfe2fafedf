/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Processes that change their user, or their root directory. Needs root. */
#include "checks.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#define NOBODY 65534

static void talk(int one, int other)
{
    char data[8];
    for (int i = 0; i < 100; i++) {
        write_all(one, "ping", 4);
        read_all(other, data, 4);
        write_all(other, "pong", 4);
        read_all(one, data, 4);
    }
}

static void another_user_after_connecting(void)
{
    struct sockaddr_in addr;
    struct pair pair = connected();
    if (geteuid() != 0) {
        return;
    }
    CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    talk(pair.client, pair.server);
    int listen_fd = listener(&addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    int server = accept(listen_fd, NULL, NULL);
    talk(fd, server);
    close(listen_fd);
    done(pair);
    done((struct pair){fd, server});
}

/* A process listens, and workers of another user accept. */
static void another_user_accepts(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    if (geteuid() != 0) {
        return;
    }
    pid_t worker = fork();
    CHECK(worker >= 0);
    if (worker == 0) {
        char data[8];
        ssize_t n;
        CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
        int fd = accept(listen_fd, NULL, NULL);
        CHECK(fd >= 0);
        while ((n = read(fd, data, sizeof(data))) > 0) {
            write_all(fd, data, (size_t)n);
        }
        CHECK(n == 0);
        _exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    for (int i = 0; i < 200; i++) {
        char data[4];
        write_all(fd, "ping", 4);
        read_all(fd, data, 4);
    }
    close(fd);
    close(listen_fd);
    wait_for(worker);
}

/* In a root directory without /proc or any other file. */
static void talk_in_another_root(void)
{
    struct pair pair = connected();
    talk(pair.client, pair.server);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        write_all(pair.client, "child", 5);
        _exit(0);
    }
    char data[8];
    read_all(pair.server, data, 5);
    wait_for(pid);
    done(pair);
}

static void in_another_root(void)
{
    char folder[] = "/tmp/via-root-XXXXXX";
    if (geteuid() != 0) {
        return;
    }
    CHECK(mkdtemp(folder) != NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (chroot(folder) == 0) { /* some sandboxes forbid it */
            talk_in_another_root();
        }
        exit(0);
    }
    wait_for(pid);
    CHECK(rmdir(folder) == 0);
}

const struct check checks_of_identity[] = {
    CHECK_ENTRY(another_user_after_connecting),
    CHECK_ENTRY(another_user_accepts),
    CHECK_ENTRY(in_another_root),
    {0},
};
