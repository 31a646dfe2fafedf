/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* TCP connections of programs whose arguments are an IPv4 address and a port. The program defines
 * die(). */
#ifndef DIAL_H
#define DIAL_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Prints the attempted action and errno, and ends the program. */
static _Noreturn void die(const char *attempt);

static inline struct sockaddr_in address_of(char **argv)
{
    char *end;
    long port = strtol(argv[1], &end, 10);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, argv[0], &addr.sin_addr) != 1 || *end != '\0' || port < 1 ||
        port > 65535) {
        errno = EINVAL;
        die(argv[0]);
    }
    return addr;
}

static inline void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static inline int connect_to(char **argv)
{
    struct sockaddr_in addr = address_of(argv);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        die("connect");
    }
    no_delay(fd);
    return fd;
}

static inline int listen_at(char **argv)
{
    struct sockaddr_in addr = address_of(argv);
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 4096) != 0) {
        die("listen");
    }
    return fd;
}

#endif
