/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CONTROL_SOCKETS_H
#define VIA_HOST_CONTROL_SOCKETS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The board on which the sockets library shows the state of the TCP connections of its process, for
 * "viaduct sockets" to read: a memfd of this name, sealed but sparse, among the descriptors of the
 * process (/proc/PID/fd). No process has to answer, so a process that is stopped or busy is listed
 * like any other. Only the process itself can write it; a reader validates everything in it.
 *
 *   struct via_sockets_board, at 0
 *   uint32_t numbers[], at VIA_SOCKETS_NUMBERS_OFF: a word per descriptor
 *   struct via_sockets_entry entries[], at VIA_SOCKETS_ENTRIES_OFF
 *
 * Addresses are not here: the kernel has them (/proc/PID/net/tcp).
 */
#define VIA_SOCKETS_BOARD_NAME "viaduct-sockets"
#define VIA_SOCKETS_BOARD_MAGIC 0x76696162u
#define VIA_SOCKETS_BOARD_VERSION 1u

#define VIA_SOCKETS_NUMBERS_COUNT 65536u
#define VIA_SOCKETS_ENTRIES_COUNT 65536u
#define VIA_SOCKETS_NUMBERS_OFF 4096u
#define VIA_SOCKETS_ENTRIES_OFF (VIA_SOCKETS_NUMBERS_OFF + VIA_SOCKETS_NUMBERS_COUNT * 4u)
#define VIA_SOCKETS_BOARD_BYTES \
    (VIA_SOCKETS_ENTRIES_OFF + (uint64_t)VIA_SOCKETS_ENTRIES_COUNT * 128u)

/* Reasons for which a connection stays with the kernel. The numbers are part of the board: add new
 * ones at the end. */
enum via_reason {
    VIA_REASON_NONE = 0,   /* accelerated, or it may still be */
    VIA_REASON_PEER = 1,   /* the peer is a plain program */
    VIA_REASON_SHORT = 2,  /* it ended before pipes were worth it */
    VIA_REASON_USER = 3,   /* the offer came from another user than the owner of the TCP socket */
    VIA_REASON_KERNEL = 4, /* the kernel does not answer sock_diag */
    VIA_REASON_RESOURCES = 5, /* no memory, no descriptors, no name */
    VIA_REASON_PROTOCOL = 6,  /* the peer speaks another version, or violates the protocol */
    VIA_REASON_OPTION = 7,    /* a socket option that pipes can not honour */
    VIA_REASON_STDIO = 8,     /* handed to fdopen() */
    VIA_REASON_FORK = 9,      /* forked before the peer was known */
    VIA_REASON_FABRIC = 10,   /* the daemon is down or refused */
    VIA_REASON_OFF = 11,      /* VIADUCT_SOCKETS=off, or rules with an error */
    VIA_REASON_RULES = 12,    /* the rules leave it to the kernel */
    VIA_REASON_REMOTE = 13,   /* to an address that is neither this machine's nor the fabric's */
    VIA_REASON_EPOLL = 14,    /* see the man page */
    VIA_REASON_EXEC = 15,     /* goes to another program by exec */
    VIA_REASON_PASSED = 16,   /* sent to another process */
    VIA_REASON_URING = 17,    /* the process uses io_uring */
    VIA_REASON_DEMOTED = 18,  /* the peer went back to the kernel */
    VIA_REASON_NESTED = 19,   /* in an epoll set that is in another, or polled */
    VIA_REASON_NETWORK = 20,  /* only links of class network reach the peer's host */
    VIA_REASON_SECCOMP = 21,  /* the process has confined itself by seccomp */
    VIA_REASON_LIMIT = 22,    /* the process or its user has reached its limit of memory */
    VIA_REASON_WAITS =
        23, /* the peer has the library, and has not made the calls yet that it takes */
    VIA_REASON_COUNT,
};

/* The reason as text, never NULL. */
const char *via_reason_text(unsigned reason);

struct via_sockets_board {
    uint32_t magic;
    uint16_t version;
    uint16_t entry_bytes;
    int32_t pid;                   /* as the process itself sees it */
    _Atomic uint32_t numbers_used; /* number of words from 0 on that may be in use */
    _Atomic uint64_t unlisted;     /* connections for which there was no room */
    char error[488];               /* the error in its rules; ends with 0 */
};
_Static_assert(sizeof(struct via_sockets_board) == 512, "the same in all builds");

/* The word of a descriptor: its entry + 1, or the reason why the connection has none. 0:
 * unknown. */
#define VIA_SOCKETS_NUMBER_ENTRY(word) ((word)&0xffffffu)
#define VIA_SOCKETS_NUMBER_REASON(word) ((word) >> 24)
#define VIA_SOCKETS_NUMBER(entry, reason) ((uint32_t)(entry) | (uint32_t)(reason) << 24)

/* One connection, as used by this process. */
struct via_stats_conn {
    /* Bytes by pipe are counted with a token of the connection; the rest by any thread. */
    uint64_t tx_pipe_bytes;
    _Atomic uint64_t tx_kernel_bytes;
    uint64_t rx_pipe_bytes;
    _Atomic uint64_t rx_kernel_bytes;
    uint64_t tx_frames_bytes;  /* part of tx_pipe_bytes: sent in frames */
    uint64_t tx_fetched_bytes; /* part of tx_pipe_bytes: zero-copy, see zcopy.h */
    _Atomic uint64_t rings, sleeps;
    /* Set by the thread that detects it. */
    _Atomic uint32_t reason; /* enum via_reason */
    _Atomic bool accelerated;
    _Atomic bool demoted;      /* was accelerated, and went back to the kernel */
    _Atomic uint8_t waits_for; /* undecided: the enum via_reason if it never gets pipes */
    uint64_t tx_lent_bytes;    /* part of tx_frames_bytes: the host reads them from the mirror */
};

/* This end has offered pipes that the peer has not taken: all bytes so far were sent through the
 * kernel. */
static inline bool via_stats_is_untaken(const struct via_stats_conn *conn)
{
    return conn->accelerated && !conn->demoted && conn->tx_pipe_bytes == 0 &&
           conn->rx_pipe_bytes == 0 && conn->tx_kernel_bytes != 0;
}

struct via_sockets_entry {
    struct via_stats_conn stats;
    uint64_t reserved[6];
};
_Static_assert(sizeof(struct via_sockets_entry) == 128, "the same in all builds");

#endif
