/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Direct connections: the address of the owner's end, as text, as a socket address, and in a
 * card. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "host/client.h"
#include "host/client_sys.h"
#include "host/client_tcp.h"

#define BACKLOG 256

int via_client_tcp_address(const char *text, struct via_tcp_card *card,
                           struct sockaddr_storage *ret_address, unsigned *ret_bytes)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)ret_address;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)ret_address;
    memset(ret_address, 0, sizeof(*ret_address));
    memset(card->address, 0, sizeof(card->address));
    if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = card->port;
        card->family = 4;
        memcpy(card->address, &in->sin_addr, sizeof(in->sin_addr));
        *ret_bytes = sizeof(*in);
        return 0;
    }
    if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = card->port;
        card->family = 6;
        memcpy(card->address, &in6->sin6_addr, sizeof(in6->sin6_addr));
        *ret_bytes = sizeof(*in6);
        return 0;
    }
    return -EXDEV;
}

int via_client_tcp_listen(const char *text, struct via_tcp_card *card)
{
    struct sockaddr_storage address;
    unsigned bytes = 0;
    int rc = via_client_tcp_address(text, card, &address, &bytes);
    int fd = rc == 0 ? via_sys_socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK)
                     : rc;
    if (fd < 0) {
        return fd;
    }
    fd = via_client_fd_keep(fd);
    rc = (int)via_sys_result(syscall(SYS_bind, fd, &address, bytes));
    if (rc == 0) {
        rc = (int)via_sys_result(syscall(SYS_listen, fd, BACKLOG));
    }
    if (rc == 0) {
        rc = (int)via_sys_result(syscall(SYS_getsockname, fd, &address, &bytes));
    }
    if (rc != 0) {
        via_client_fd_close(fd);
        return rc;
    }
    card->port = address.ss_family == AF_INET
                     ? ((struct sockaddr_in *)(void *)&address)->sin_port
                     : ((struct sockaddr_in6 *)(void *)&address)->sin6_port;
    return fd;
}
