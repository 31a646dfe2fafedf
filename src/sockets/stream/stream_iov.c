/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/copy.h"
#include "sockets/stream/stream.h"

int via_iov_init(struct via_iov *cursor, const struct iovec *iov, int count)
{
    *cursor = (struct via_iov){.iov = iov, .count = count};
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len > (size_t)SSIZE_MAX - cursor->left) {
            return -EINVAL;
        }
        cursor->left += iov[i].iov_len;
    }
    return 0;
}

/* Returns the size of the piece at the cursor, at most `bytes`, and advances the cursor by it. */
static size_t next_piece(struct via_iov *cursor, size_t bytes, unsigned char **ret_piece)
{
    while (cursor->off == cursor->iov->iov_len) {
        cursor->iov++;
        cursor->count--;
        cursor->off = 0;
    }
    size_t piece = cursor->iov->iov_len - cursor->off;
    if (piece > bytes) {
        piece = bytes;
    }
    *ret_piece = (unsigned char *)cursor->iov->iov_base + cursor->off;
    cursor->off += piece;
    cursor->left -= piece;
    return piece;
}

void via_iov_get(struct via_iov *cursor, void *dst, size_t bytes, bool past_caches)
{
    unsigned char *to = dst;
    while (bytes != 0) {
        unsigned char *piece;
        size_t n = next_piece(cursor, bytes, &piece);
        if (past_caches) {
            via_copy_past_caches(to, piece, n);
        } else {
            memcpy(to, piece, n);
        }
        to += n;
        bytes -= n;
    }
}

void via_iov_put(struct via_iov *cursor, const void *src, size_t bytes)
{
    const unsigned char *from = src;
    while (bytes != 0) {
        unsigned char *piece;
        size_t n = next_piece(cursor, bytes, &piece);
        memcpy(piece, from, n);
        from += n;
        bytes -= n;
    }
}

void via_iov_skip(struct via_iov *cursor, size_t bytes)
{
    while (bytes != 0) {
        unsigned char *piece;
        bytes -= next_piece(cursor, bytes, &piece);
    }
}
