/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/hooks/uring.h"

#include <linux/io_uring.h>
#include <stddef.h>

#include "base/types.h"
#include "sockets/conn/demote.h"
#include "sockets/process/fds.h"

/* The beginning of struct io_uring of liburing.so.2. `head` and `tail` count the entries that are
 * filled in but not submitted; only liburing writes them. */
struct queue {
    unsigned *kernel_head, *kernel_tail, *mask, *entries, *flags, *dropped, *array;
    struct io_uring_sqe *sqes;
    unsigned head, tail;
    size_t ring_bytes;
    void *ring;
    unsigned more[4];
};

struct completions {
    unsigned *head, *tail, *mask, *entries, *flags, *overflow;
    struct io_uring_cqe *cqes;
    size_t ring_bytes;
    void *ring;
    unsigned more[4];
};

struct ring {
    struct queue submissions;
    struct completions completions;
    unsigned flags;
    int fd;
};
_Static_assert(offsetof(struct ring, flags) == 192, "as liburing.so.2 has it on 64 bits");

/* linux/io_uring.h */
#define SETUP_NO_SQARRAY (1u << 16)

/* With other flags the kernel takes entries without a system call (SQPOLL), or entries have another
 * size. */
#define FLAGS_CLEAR                                                                            \
    (IORING_SETUP_IOPOLL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_ATTACH_WQ | \
     IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |         \
     IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQE32 |            \
     SETUP_NO_SQARRAY)

bool via_uring_is_clear(const void *ring, unsigned flags)
{
    const struct ring *of = ring;
    const struct queue *queue = &of->submissions;
    /* liburing adds some flags, so more than `flags` may be set */
    return (of->flags & ~(unsigned)FLAGS_CLEAR) == 0 && (flags & ~of->flags) == 0 && of->fd >= 0 &&
           queue->sqes != NULL && queue->mask != NULL && queue->entries != NULL &&
           *queue->entries - 1 == *queue->mask && queue->head == 0 && queue->tail == 0;
}

/* Demotes the connection behind fd: on a connection with pipes the kernel would answer the request
 * wrongly. False: all connections must be demoted. */
static bool check_descriptor(int fd)
{
    const struct via_file *file = via_fd_peek(fd);
    if (file != NULL && file->kind == VIA_FILE_CONN) {
        via_fd_demote(fd, VIA_REASON_URING);
    } else if (file != NULL) {
        return false; /* a set with connections, or one of the library's own descriptors */
    } else {
        via_fd_mark(fd, VIA_FD_IN_RING, true); /* in case it becomes a connection later */
    }
    return true;
}

static bool check_entry(const struct io_uring_sqe *sqe)
{
    switch (sqe->opcode) {
    case IORING_OP_NOP:
    case IORING_OP_TIMEOUT:
    case IORING_OP_TIMEOUT_REMOVE:
    case IORING_OP_LINK_TIMEOUT:
    case IORING_OP_ASYNC_CANCEL:
    case IORING_OP_POLL_REMOVE:
        return true;
    case IORING_OP_READ:
    case IORING_OP_READV:
    case IORING_OP_READ_FIXED:
    case IORING_OP_WRITE:
    case IORING_OP_WRITEV:
    case IORING_OP_WRITE_FIXED:
    case IORING_OP_FSYNC:
    case IORING_OP_FALLOCATE:
    case IORING_OP_POLL_ADD:
        /* Registering descriptors with the ring has demoted all connections: hooks_uring.c. */
        return (sqe->flags & IOSQE_FIXED_FILE) != 0 || check_descriptor(sqe->fd);
    default:
        return false;
    }
}

bool via_uring_check_submissions(const void *ring)
{
    const struct queue *queue = &((const struct ring *)ring)->submissions;
    for (unsigned at = queue->head; at != queue->tail; at++) {
        if (!check_entry(&queue->sqes[at & *queue->mask])) {
            return false;
        }
    }
    return true;
}
