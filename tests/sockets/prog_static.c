/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A statically linked program, which can not load any library.
 *
 *     prog_static cat [FD]     copies its input to its output, or from FD back to FD
 *     prog_static serve PORT   sends received bytes back, for one connection
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int copy(int from, int to)
{
    char data[65536];
    ssize_t n;
    while ((n = read(from, data, sizeof(data))) > 0) {
        for (ssize_t done = 0; done < n;) {
            ssize_t k = write(to, data + done, (size_t)(n - done));
            if (k <= 0) {
                return 1;
            }
            done += k;
        }
    }
    return n == 0 ? 0 : 1;
}

static int serve(const char *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr = {htonl(INADDR_ANY)},
                               .sin_port = htons((uint16_t)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 4) != 0) {
        return 1;
    }
    int peer = accept(fd, NULL, NULL);
    return peer < 0 ? 1 : copy(peer, peer);
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "cat") == 0) {
        int fd = argc > 2 ? atoi(argv[2]) : -1;
        return fd < 0 ? copy(0, 1) : copy(fd, fd);
    }
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        return serve(argv[2]);
    }
    fprintf(stderr, "usage: prog_static cat [FD] | serve PORT\n");
    return 64;
}
