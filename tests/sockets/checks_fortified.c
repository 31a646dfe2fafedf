/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Compiled with _FORTIFY_SOURCE: with sizes known at compile time the compiler calls other entry
 * points. */
#include "checks.h"

#include <poll.h>
#include <sys/socket.h>

/* Not known to the compiler. */
static volatile size_t some = 5;

static void calls_with_known_buffers(void)
{
    struct pair pair = connected();
    char data[8];
    struct pollfd pfds[2] = {{pair.server, POLLIN, 0}, {pair.client, POLLIN, 0}};
    struct timespec second = {5, 0};
    write_all(pair.client, "aaaaabbbbbcccccddddd", 20);
    CHECK(poll(pfds, some - 3, 30000) == 1 && pfds[0].revents == POLLIN);
    CHECK(ppoll(pfds, some - 3, &second, NULL) == 1);
    CHECK(read(pair.server, data, some) == 5 && memcmp(data, "aaaaa", 5) == 0);
    CHECK(recv(pair.server, data, some, 0) == 5 && memcmp(data, "bbbbb", 5) == 0);
    CHECK(recvfrom(pair.server, data, some, 0, NULL, NULL) == 5 && memcmp(data, "ccccc", 5) == 0);
    CHECK(read(pair.server, data, some) == 5 && memcmp(data, "ddddd", 5) == 0);
    CHECK(dprintf(pair.client, "%s %zu\n", "five", some) == 7);
    read_all(pair.server, data, 7);
    CHECK(memcmp(data, "five 5\n", 7) == 0);
    done(pair);
}

const struct check checks_of_fortified[] = {
    CHECK_ENTRY(calls_with_known_buffers),
    {0},
};
