/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_FDS_H
#define VIA_SOCKETS_FDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/types.h"
#include "sockets/process/os.h"

/*
 * The library's table of this process's file descriptors: a pointer for each, NULL for the many
 * that the library does not handle. The lookup of one of those costs a load and a compare.
 *
 * References are counted: `users` includes 1 for the table (however many descriptors refer to the
 * object) and 1 for each call in progress. The memory of objects is never unmapped, so a thread may
 * dereference a stale pointer; via_file_get() checks that the descriptor still refers to the
 * object.
 */
enum via_file_kind {
    VIA_FILE_CONN = 1,  /* struct via_conn: one end of a TCP connection */
    VIA_FILE_EPOLL = 2, /* struct via_ep_set: an epoll set that contains one */
    /* struct via_hidden: a descriptor of the library, hidden from the program. */
    VIA_FILE_HIDDEN = 3,
};

struct via_file {
    _Atomic uint32_t users;
    uint8_t kind; /* enum via_file_kind */
    void (*free)(struct via_file *file);
};

extern struct via_file *_Atomic *via_fds;
extern unsigned via_fds_count;

/* 0, or -ENOMEM: then the table stays empty. */
int via_fds_init(void);

static inline struct via_file *via_fd_peek(int fd)
{
    if (via_unlikely((unsigned)fd >= via_fds_count)) {
        return NULL;
    }
    /* Pairs with the release in via_fd_set(). */
    return atomic_load_explicit(&via_fds[fd], memory_order_acquire);
}

/* True while this process has no other thread. A caller passes the same result to get and put. */
static inline bool via_is_alone(void)
{
    return __libc_single_threaded != 0;
}

/* True for a descriptor of the library: to the program it must look like a closed one (EBADF). */
static inline bool via_fd_is_hidden(int fd)
{
    const struct via_file *file = via_fd_peek(fd);
    return via_unlikely(file != NULL) && file->kind == VIA_FILE_HIDDEN;
}

struct via_file *via_file_get_slowly(int fd);
void via_file_put_slowly(struct via_file *file);
void via_file_put_call(struct via_file *file, uint32_t thread);

/* The object behind fd, held until put; NULL if there is none. */
static inline struct via_file *via_file_get(int fd, bool alone)
{
    struct via_file *file = via_fd_peek(fd);
    return via_likely(file == NULL) || alone ? file : via_file_get_slowly(fd);
}

static inline void via_file_put(struct via_file *file, bool alone)
{
    if (!alone) {
        via_file_put_slowly(file);
    }
}

/* The same at the end of a call during which a signal handler may have forked: in the child the
 * count of users does not include this call. thread: via_os_thread() before via_file_get(). In a
 * child that is forked between these two the object is never freed. */
static inline void via_file_put_of(struct via_file *file, bool alone, uint32_t thread)
{
    if (!alone) {
        via_file_put_call(file, thread);
    }
}

/* Makes fd refer to the object (NULL: to nothing); the caller handles `users`. False if fd is
 * beyond the table. */
bool via_fd_set(int fd, struct via_file *file);
/* One more than the highest descriptor that ever referred to a connection or set. */
unsigned via_fds_top(void);
/* Removes the object of fd from the table; the caller drops the reference. */
struct via_file *via_fd_take(int fd);

/* The first number from fd on that may have an object or marks; via_fds_count: none. Blocks of
 * numbers that never had one are skipped. */
unsigned via_fds_next_used(unsigned fd);
/* Called before a number gets an object or a mark. */
void via_fds_touch(unsigned fd);

/* Marks of descriptors without an object in the table. Closing a descriptor clears its marks. */
#define VIA_FD_IN_EPOLL                                                                         \
    1u                    /* in an epoll set, which would not find it if it became a connection \
                           */
#define VIA_FD_LISTENS 2u /* a listener with the mark: see via_diag_mark() */
#define VIA_FD_IN_RING 4u /* named in an entry of an io_uring */
#define VIA_FD_IS_SET 8u  /* made by epoll_create() */
#define VIA_FD_IS_COPIED \
    16u /* a duplicate, or duplicated (dup(2)): several descriptors may refer to the socket */
/* A set that the kernel polls: in another set, or in an io_uring. */
#define VIA_FD_SEEN_BY_KERNEL (VIA_FD_IN_EPOLL | VIA_FD_IN_RING)
#define VIA_FD_ALL 31u

extern _Atomic unsigned char *via_fd_marks;

static inline bool via_fd_is_marked(int fd, unsigned mark)
{
    return (unsigned)fd < via_fds_count &&
           (atomic_load_explicit(&via_fd_marks[fd], memory_order_relaxed) & mark) != 0;
}

static inline void via_fd_mark(int fd, unsigned mark, bool set)
{
    if ((unsigned)fd >= via_fds_count) {
        return;
    }
    unsigned char marks = atomic_load_explicit(&via_fd_marks[fd], memory_order_relaxed);
    unsigned char after = (unsigned char)(set ? marks | mark : marks & ~mark);
    if (after != marks) { /* most pages of the table stay untouched */
        via_fds_touch((unsigned)fd);
        atomic_store_explicit(&via_fd_marks[fd], after, memory_order_relaxed);
    }
}

/*
 * A thread that changes what a descriptor refers to, in the kernel and in the table, makes both
 * changes between these calls: another thread that forks meanwhile waits, because the kernel copies
 * the descriptors and the table at different times, and the child's must match. The calls nest.
 */
void via_fds_begin_change(void);
void via_fds_end_change(void);
/* Around fork(): waits for the changes of other threads. All these calls wait for VIA_FDS_CHANGE_NS
 * at most: another thread may have left a call by longjmp(), wait in a close() that lingers, or
 * wait for a mutex of the forking thread. Only one call waits that long for such a thread. */
#define VIA_FDS_CHANGE_NS VIA_SEC_NS
void via_fds_fork_prepare(void);
void via_fds_fork_parent(void);
void via_fds_fork_child(void);

/* --- the library's own descriptors ----------------------------------------------------------- */

/*
 * Descriptors that are hidden from the program: high numbers, close-on-exec, protected from the
 * program's close() and dup2(). The table records where the library stores each number, so the
 * library can move a descriptor to another number.
 */
struct via_hidden {
    struct via_file file;
    _Atomic int *place; /* where the library keeps the number; NULL: it can not be moved */
    bool meets;         /* of a connection whose ends have not met: meeting.h */
};

/* Hides fd (any number) and stores its new number in *place. 0, or a negative errno: then fd is
 * closed and *place is -1. -EMFILE also when the program's own descriptors come near the library's,
 * when RLIMIT_NOFILE is less than 64, and in a child of vfork(). */
int via_hidden_new(int fd, _Atomic int *place);
/* The same for a connection whose ends have not met. */
int via_hidden_new_meeting(int fd, _Atomic int *place);
/* Closes the descriptor in *place, if any, and stores -1. */
void via_hidden_close(_Atomic int *place);
/* The program is about to get this number: moves the library's descriptor away. False: it stays. */
bool via_hidden_move(int fd);
/* hide: hides a descriptor that another library has made, without moving it, because that library
 * knows its number. Else: ends that, before the other library closes it. */
void via_hidden_shield(int fd, bool hide);

/* How many descriptors belong to connections whose ends have not met. */
unsigned via_hidden_meeting_count(void);
/* A quarter of RLIMIT_NOFILE. */
unsigned via_fds_quarter(void);

/* Held around fork(), as in pool.h. */
extern struct via_mutex via_hidden_lock;

#endif
