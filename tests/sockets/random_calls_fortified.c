/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Compiled with _FORTIFY_SOURCE: with sizes known at compile time the compiler calls other entry
 * points. */
#include "random_calls.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Not known to the compiler. */
static volatile nfds_t one = 1;

long fortified_read(int fd, unsigned how, size_t bytes, uint32_t *ret_hash)
{
    char data[FORTIFIED_MAX];
    long rc = how == 0   ? read(fd, data, bytes)
              : how == 1 ? recv(fd, data, bytes, 0)
                         : recvfrom(fd, data, bytes, MSG_DONTWAIT, NULL, NULL);
    *ret_hash = hash_of(data, rc > 0 ? (size_t)rc : 0);
    return rc;
}

int fortified_poll(int fd, unsigned how, unsigned *ret_seen)
{
    struct pollfd pfds[2] = {{.fd = fd, .events = POLLIN | POLLOUT}, {.fd = -1}};
    struct timespec none = {.tv_sec = 0};
    int rc = how == 0 ? poll(pfds, one, 0) : ppoll(pfds, one, &none, NULL);
    *ret_seen = (unsigned)pfds[0].revents;
    return rc;
}
