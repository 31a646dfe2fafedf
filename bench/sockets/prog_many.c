/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * prog_many ADDRESS PORT COUNT BYTES: opens COUNT connections to an echo server (prog_flows echo),
 * with some small round trips on each and one of BYTES in pieces, and prints how long that took.
 * Then it waits for a line, makes one more round trip on each connection, and waits for the end of
 * its input. A source address has some 28,000 ports for one server, so it uses several of
 * 127.0.0.0/8.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define COUNT_MAX 200000
#define PER_ADDRESS 20000
#define HELLOS 8
#define HELLO_BYTES 16u
#define PIECE_BYTES 4096u

static int fds[COUNT_MAX];

static _Noreturn void die(const char *attempt)
{
    fprintf(stderr, "prog_many: %s: %s\n", attempt, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void round_trip(int fd, size_t bytes)
{
    static char data[PIECE_BYTES];
    if (send(fd, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes ||
        recv(fd, data, bytes, MSG_WAITALL) != (ssize_t)bytes) {
        die("round trip");
    }
}

static int connect_from(int index, const struct sockaddr_in *server)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    int on = 1;
    own.sin_addr.s_addr = htonl(0x7f000002u + (unsigned)(index / PER_ADDRESS));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        die("socket");
    }
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (bind(fd, (const struct sockaddr *)&own, sizeof(own)) != 0 ||
        connect(fd, (const struct sockaddr *)server, sizeof(*server)) != 0) {
        die("connect");
    }
    return fd;
}

int main(int argc, char **argv)
{
    struct sockaddr_in server = {.sin_family = AF_INET};
    if (argc != 5 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
        fprintf(stderr, "usage: prog_many ADDRESS PORT COUNT BYTES\n");
        return 64;
    }
    server.sin_port = htons((uint16_t)atoi(argv[2]));
    int count = atoi(argv[3]);
    size_t bytes = (size_t)atol(argv[4]);
    if (count < 1 || count > COUNT_MAX) {
        return 64;
    }
    double begin = now_s();
    for (int i = 0; i < count; i++) {
        fds[i] = connect_from(i, &server);
        for (int k = 0; k < HELLOS; k++) {
            round_trip(fds[i], HELLO_BYTES);
        }
    }
    double seconds = now_s() - begin;
    for (int i = 0; i < count; i++) {
        for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
            round_trip(fds[i], PIECE_BYTES);
        }
    }
    printf("{\"per_second\":%.1f}\n", count / seconds);
    fflush(stdout);
    char line[16];
    while (read(STDIN_FILENO, line, sizeof(line)) > 0) {
        for (int i = 0; i < count; i++) {
            round_trip(fds[i], HELLO_BYTES);
        }
        printf("again\n");
        fflush(stdout);
    }
    return 0;
}
