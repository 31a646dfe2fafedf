/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A program that no library can be loaded into; built by test_ip.py. serve ADDRESS: echoes one
 * connection. send ADDRESS: sends 8 MiB there, and compares what comes back. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 7004
#define BLOCK_BYTES 65536
#define BLOCKS 128

static unsigned char block[BLOCK_BYTES];
static unsigned char back[BLOCK_BYTES];

static int write_all(int fd, const unsigned char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, data + done, bytes - done);
        if (n <= 0) {
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

static int serve(int listener, const struct sockaddr_in *address)
{
    int one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (const struct sockaddr *)address, sizeof(*address)) != 0 ||
        listen(listener, 1) != 0) {
        return 1;
    }
    puts("ready");
    fflush(stdout);
    int fd = accept(listener, NULL, NULL);
    ssize_t n;
    while ((n = read(fd, block, sizeof(block))) > 0) {
        if (write_all(fd, block, (size_t)n) != 0) {
            return 1;
        }
    }
    return n == 0 ? 0 : 1;
}

static int send_blocks(int fd, const struct sockaddr_in *address)
{
    size_t total = 0;
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
        return 1;
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        memset(block, (int)i + 1, sizeof(block));
        if (write_all(fd, block, sizeof(block)) != 0 ||
            recv(fd, back, sizeof(back), MSG_WAITALL) != sizeof(back) ||
            memcmp(block, back, sizeof(back)) != 0) {
            return 1;
        }
        total += sizeof(back);
    }
    printf("%zu bytes came back\n", total);
    return 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (argc != 3 || fd < 0 || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
        return 2;
    }
    return strcmp(argv[1], "serve") == 0 ? serve(fd, &address) : send_blocks(fd, &address);
}
