/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The answers of viaduct/sockets.h to a program. prog_control plain: expects no library;
 * prog_control: expects one. With WAIT in the environment it then waits for a byte on its standard
 * input.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "viaduct/sockets.h"

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

static void make_pair(int ends[2], int buffer_bytes)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&addr, bytes) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&addr, &bytes) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (buffer_bytes != 0) {
        CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(int)) == 0);
    }
    CHECK(connect(ends[0], (struct sockaddr *)&addr, bytes) == 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0);
    close(listener);
}

static void talk(const int ends[2], int times)
{
    char bytes[1000] = "";
    for (int i = 0; i < times; i++) {
        for (int from = 0; from < 2; from++) {
            CHECK(send(ends[from], bytes, sizeof(bytes), 0) == sizeof(bytes));
            CHECK(recv(ends[1 - from], bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes));
        }
    }
}

int main(int argc, char **argv)
{
    int ends[2];
    int small[2];
    struct via_sockets_info info = {.size = sizeof(info)};
    if (argc > 1 && strcmp(argv[1], "plain") == 0) {
        CHECK(via_sockets_info == NULL && via_sockets_spin == NULL);
        return 0;
    }
    CHECK(via_sockets_info != NULL && via_sockets_spin != NULL);
    CHECK(via_sockets_spin(2) == -EINVAL && via_sockets_spin(0) == 0);
    make_pair(ends, 0);
    CHECK(via_sockets_info(ends[0], &info) == 0 && info.carrier == VIA_SOCKETS_KERNEL);
    CHECK(strcmp(info.why, "undecided") == 0);
    talk(ends, 50);
    CHECK(via_sockets_spin(1) == 0);
    talk(ends, 50);
    CHECK(via_sockets_spin(VIA_SOCKETS_SPIN_DEFAULT) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(via_sockets_info(ends[i], &info) == 0 && info.carrier == VIA_SOCKETS_PIPES);
        CHECK(info.why[0] == '\0' && info.tx_pipe_bytes > 50000);
        CHECK(info.tx_pipe_bytes + info.tx_kernel_bytes == 100000);
        CHECK(info.rx_pipe_bytes + info.rx_kernel_bytes == 100000);
    }
    make_pair(small, 4096);
    talk(small, 50);
    CHECK(via_sockets_info(small[0], &info) == 0 && info.carrier == VIA_SOCKETS_KERNEL);
    CHECK(strcmp(info.why, "socket option that pipes can not honour") == 0);
    CHECK(via_sockets_info(STDIN_FILENO, &info) == -ENOENT && info.size == sizeof(info));
    info.size = 8;
    CHECK(via_sockets_info(ends[0], &info) == -EINVAL);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    if (getenv("WAIT") != NULL) {
        CHECK(getchar() != EOF);
    }
    return 0;
}
