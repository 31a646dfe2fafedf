/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Answers of a PMI-1 launcher to the library's lines. An accepted answer fits and is in range, and
 * a refused one gets a reason.
 *
 * Input: a byte with the number of pieces, then the launcher's bytes, to the end.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shmem/pmi.h"
#include "tests/fuzz/input.h"

#define INPUT_BYTES_MAX 65536u

static void check(int result, const struct via_error *err)
{
    require(result == 0 || (result < 0 && strncmp(err->text, "PMI", 3) == 0));
    require(memchr(err->text, 0, sizeof(err->text)) != NULL);
}

static void join(struct via_pmi *pmi)
{
    char value[VIA_PMI_VALUE_BYTES];
    struct via_error err = {0};
    int result = pmi->ops->open(pmi, &err);
    check(result, &err);
    if (result != 0) {
        return;
    }
    require(pmi->value_bytes_max >= 64 && pmi->value_bytes_max <= VIA_PMI_VALUE_BYTES);
    require(memchr(pmi->kvs, 0, sizeof(pmi->kvs)) != NULL);
    check(pmi->ops->put(pmi, "job", "a-word-of-some-length", &err), &err);
    check(pmi->ops->fence(pmi, &err), &err);
    for (uint32_t rank = 0; rank < 2; rank++) {
        result = pmi->ops->get(pmi, rank, "job", value, &err);
        check(result, &err);
        require(result != 0 || memchr(value, 0, sizeof(value)) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct via_pmi pmi; /* it holds a line of 4 KiB */
    struct input input = {data, bytes};
    char number[16];
    int fds[2];
    unsigned stream = (input_byte(&input) & 1) != 0 ? SOCK_STREAM : SOCK_SEQPACKET;
    if (input.bytes > INPUT_BYTES_MAX ||
        socketpair(AF_UNIX, (int)stream | SOCK_CLOEXEC, 0, fds) != 0) {
        return 0;
    }
    /* Sends it at once, or in pieces that read() returns one by one. */
    while (input.bytes != 0) {
        size_t piece = stream == SOCK_STREAM ? input.bytes : 1 + input.bytes / 3;
        require(send(fds[1], input.data, piece, MSG_NOSIGNAL) == (ssize_t)piece);
        input.data += piece;
        input.bytes -= piece;
    }
    shutdown(fds[1], SHUT_WR);
    snprintf(number, sizeof(number), "%d", fds[0]);
    setenv("PMI_FD", number, 1);
    setenv("PMI_RANK", "1", 1);
    setenv("PMI_SIZE", "2", 1);
    memset(&pmi, 0, sizeof(pmi));
    pmi.ops = &via_pmi1_ops;
    join(&pmi);
    pmi.ops->finalize(&pmi);
    close(fds[1]);
    if (fcntl(fds[0], F_GETFD) >= 0) { /* otherwise finalize has received its answer */
        close(fds[0]);
    }
    return 0;
}
