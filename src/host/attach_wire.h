/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_ATTACH_WIRE_H
#define VIA_HOST_ATTACH_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/pipe.h"
#include "host/client_tcp.h"
#include "port/bell.h"
#include "wire/record.h"

/*
 * The attach protocol: between a process and the daemon (viaductd) of its host.
 *
 * It has two transports: a SOCK_SEQPACKET UNIX socket (<rundir>/host-<id>.attach) for set-up, one
 * datagram per request and per answer, descriptors as SCM_RIGHTS; and, per channel, a pair of pipes
 * in one shared memfd: the command pipe (process to transfer thread) and the reply pipe (back). The
 * payload of a put is in a registered segment, or in the body of the command record, which is
 * released when the destination has acknowledged the put: the pipe is the retained copy. If
 * commands for a host that is cut off hold up later commands, the daemon copies their payload:
 * attach_server_park.c.
 *
 * Everything in shared memory and on the socket is hostile input to the host.
 */
#define VIA_ATTACH_MAGIC 0x56494141u /* "AAIV" */
#define VIA_ATTACH_VERSION 6u

/* --- the memory of an attachment: the daemon makes, seals and passes it ---------------------- */

/*
 * The memfd holds channels_count areas of area_bytes each. In an area, at these offsets:
 *   0      command credit word (posted by the host: the process is the writer of commands)
 *   64     reply credit word (posted by the process)
 *   128    command pipe memory, via_pipe_memory_bytes(&command)
 *   then   reply pipe memory, via_pipe_memory_bytes(&reply); area_bytes rounds up to 4096.
 * Both pipes run in epoch 1 for the life of the attachment. After the areas come
 * VIA_ATTACH_SLICES_MAX busy words, each in its own cache line, then bits of hosts (below).
 */
#define VIA_ATTACH_COMMAND_CREDIT_OFF 0u
#define VIA_ATTACH_REPLY_CREDIT_OFF 64u
#define VIA_ATTACH_COMMAND_OFF 128u
#define VIA_ATTACH_EPOCH 1u

/*
 * Apertures (docs/adr/0016-apertures.md). Through a slice of the window to another host a process
 * stores directly into a piece of a segment of that host. Two words decide whether it may:
 *
 * - the word of the slice, in the status page, which the daemon writes: the life of the answer
 *   while the process may store; with VIA_SLICE_GONE after the segment was freed; else 0, and the
 *   process may request the piece again. No life is used twice.
 * - a busy word, which the process writes: bits 15..0 are the number of threads between their load
 *   of the slice's word and their last store, bits 63..16 the number of bursts of stores begun.
 *
 * A thread adds itself to the busy word before it loads the slice's word; the daemon changes the
 * slice's word before it loads the busy word; both with sequential consistency. So after a change
 * either the thread loads the new word and stores nothing, or the daemon loads a busy word and does
 * not use the slice for another piece until the thread has subtracted itself.
 */
#define VIA_SLICES_MAX 1024u       /* of a host, all its ports together */
#define VIA_ATTACH_SLICES_MAX 128u /* of a process */
#define VIA_SLICE_GONE (UINT64_C(1) << 63)
#define VIA_SLICE_LIFE_BITS 40u /* a life is 1 or more */
#define VIA_SLICE_BUSY_ENTER (UINT64_C(1) << 16 | 1)
#define VIA_SLICE_BUSY_LEAVE UINT64_C(1)

struct via_slice_busy {
    _Atomic uint64_t word;
    uint64_t reserved[7];
};
_Static_assert(sizeof(struct via_slice_busy) == 64, "one cache line");
#define VIA_ATTACH_BUSY_BYTES (VIA_ATTACH_SLICES_MAX * sizeof(struct via_slice_busy))

/*
 * After the busy words: a bit for each host whose word in the status page the process has loaded.
 * The process sets the bit before the load, with sequential consistency. After a change of a word
 * the daemon rings the processes whose bit is set. So either the process loads the new word, or the
 * daemon loads the set bit.
 */
#define VIA_ATTACH_INTEREST_WORDS (1024u / 64)
#define VIA_ATTACH_TAIL_BYTES (VIA_ATTACH_BUSY_BYTES + 4096u)

/* The bell page of a host: a struct via_bell (port/bell.h) per transfer thread. */

/*
 * The status page of a host, read-only for processes: the routes to all hosts. `version` is
 * odd while the daemon changes the page (a sequence lock); each per-host word can be loaded alone.
 */
struct via_status_page {
    uint32_t magic;
    uint32_t host;
    uint32_t session;
    uint32_t hosts_max;
    _Atomic uint32_t version;
    uint32_t reserved[11];
    /* per host id: bits 63..32 session (0 = never seen), bits 31..16 generation of the direct link
     * (changes at every up and down), bits 15..5 hops (VIA_STATUS_UNREACHABLE, 0 = this host),
     * bits 4..2 zero, bit 1 slices: a neighbour whose link is up now and has slices, bit 0 direct:
     * this host, or a neighbour whose link is up now and coherent */
    _Atomic uint64_t peers[1024];
    _Atomic uint64_t slices[VIA_SLICES_MAX]; /* words of slices */
};
#define VIA_STATUS_MAGIC 0x56494153u
#define VIA_STATUS_DIRECT UINT64_C(1)
#define VIA_STATUS_SLICES UINT64_C(2)
#define VIA_STATUS_UNREACHABLE 0x7ffu /* in the place of hops */

static inline uint64_t via_status_word(uint32_t session, uint16_t generation, unsigned hops,
                                       bool direct)
{
    return (uint64_t)session << 32 | (uint64_t)generation << 16 | (uint64_t)hops << 5 |
           (direct ? VIA_STATUS_DIRECT : 0);
}

static inline uint32_t via_status_session(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static inline uint16_t via_status_generation(uint64_t word)
{
    return (uint16_t)(word >> 16);
}

static inline unsigned via_status_hops(uint64_t word)
{
    return (unsigned)(word >> 5) & VIA_STATUS_UNREACHABLE;
}

static inline bool via_status_is_reachable(uint64_t word)
{
    return via_status_session(word) != 0 && via_status_hops(word) != VIA_STATUS_UNREACHABLE;
}

/*
 * The life page of a host, read-only for processes: one _Atomic uint64_t per index of a handle. The
 * word of a segment has the `life` of its MAP answer while the segment may be accessed, and never
 * again. A process with a mapping compares the word before each access. Lives are consecutive
 * numbers, not part of a key.
 */

/* --- requests and answers on the socket ------------------------------------------------------- */

enum via_attach_type {
    VIA_ATTACH_HELLO = 1, /* answer: WELCOME with fds {memory, status page (read only), bell page,
                             bell eventfd of this process} */
    VIA_ATTACH_SEGMENT_ADD = 2,    /* fd: memfd sealed against shrinking. answer: handle */
    VIA_ATTACH_SEGMENT_REMOVE = 3, /* with id 0: without an answer */
    VIA_ATTACH_MAP =
        4, /* answer: fds {memfd of the segment, bell eventfd of its owner, life page
              of its host}, `bytes` is its size, `life` its life; -EXDEV if it can
              not be mapped here (not a neighbour, link down, no right to read), -EACCES */
    VIA_ATTACH_ENDPOINT_OPEN = 5,
    VIA_ATTACH_ENDPOINT_CLOSE = 6,
    VIA_ATTACH_BOARD_POST = 7, /* answered when the note is on the destination's board */
    VIA_ATTACH_BOARD_TAKE = 8, /* answer: value */
    VIA_ATTACH_SLICE = 9,      /* a slice for the piece of a segment that contains byte `bytes`.
                                  answer: fd {slice}, value: struct via_attach_slice. -EAGAIN: all
                                  slices are in use; -EXDEV: there are no slices to that host now, the
                                  segment may not be both read and written, or can not be exposed;
                                  -EACCES */
    VIA_ATTACH_TCP = 10,    /* may processes make direct TCP connections to neighbour `host`, or, if
                                  `host` is this host, to any neighbour? answer: value: struct
                                  via_attach_tcp. -EXDEV: no, or there is no link now */
    VIA_ATTACH_DIRECT = 11, /* a direct connection to neighbour `host`, which serves the segments of
                               all its processes. answer: value: struct via_attach_direct, valid for
                               one connection within a few seconds. -EXDEV: not possible now.
                               With a token as key: the connection with this token has ended.
                               answer: value: struct via_attach_position; -EAGAIN: not yet; -ENOENT:
                               the host no longer knows the connection; -EXDEV: no answer */
};

/* Numeric addresses, ended by a zero, of a link over TCP that is up; peer is "" for this host. */
struct via_attach_tcp {
    char local[64];
    char peer[64];
};

struct via_attach_direct {
    struct via_attach_tcp where;
    struct via_tcp_card card;
    uint32_t keeps;       /* not 0: the host reports the position when the connection has ended */
    uint32_t kept_layout; /* VIA_KEPT_LAYOUT: when the process ends, its own daemon puts the kept
                             puts; 0: it does not */
};

/* The end of a direct connection. */
struct via_attach_position {
    uint64_t position; /* bytes of requests that the host has applied */
    int32_t refusal;   /* 0, or the failure of one of them */
    /* 0: no answer reports the refusal. Else the bytes from the begin of the request whose answer
     * reports it to `position`. The process may not have received that answer. */
    uint32_t answered_bytes;
};

/* How a process maps the slice and stores through it. */
struct via_attach_slice {
    uint64_t off;         /* of the piece in the segment: a multiple of slice_bytes */
    uint64_t bytes;       /* of the piece */
    uint64_t slice_bytes; /* a power of two; the same for all pieces behind one link */
    uint64_t fd_off;      /* of the slice in fd; page aligned */
    uint64_t life;
    uint32_t word;    /* index of the slice's word in the status page */
    uint32_t busy;    /* index of the busy word */
    uint32_t link;    /* of the slice: a fence covers slices of the same link only */
    uint32_t read_ns; /* time of a read; with IMITATES the process waits for it */
    uint32_t flags;   /* VIA_ATTACH_SLICE_* */
    uint32_t reserved;
};
/* Stores are write-combined: the process needs an sfence between data and the store that publishes
 * them. */
#define VIA_ATTACH_SLICE_COMBINES 1u
/* The memory is an emulation of a window: the process imitates write-combining buffers and the time
 * of reads. */
#define VIA_ATTACH_SLICE_IMITATES 2u

/* Access rights of a segment; the first two have the node's values. */
#define VIA_ATTACH_SEGMENT_LINGER 4u

/* In HELLO: puts of the process to a host to which no link leads wait for a link even after the end
 * of the process. */
#define VIA_ATTACH_LATE 1u
/* In DIRECT: the process keeps its puts until they have been applied, in the segment with this
 * handle (client_kept.h). The host may end the connection when it is idle. */
#define VIA_ATTACH_KEEPS 1u

struct via_attach_request {
    uint32_t magic;
    uint16_t version;
    uint16_t type; /* enum via_attach_type */
    uint32_t id;   /* repeated in the answer; answers may come in another order */
    uint16_t host; /* MAP, BOARD_POST, SLICE, TCP, DIRECT */
    uint16_t key_bytes;
    uint64_t handle;   /* SEGMENT_REMOVE, MAP, SLICE, DIRECT with KEEPS; HELLO: the handle of the
                          WELCOME of the attachment to follow, or 0 */
    uint64_t bytes;    /* SEGMENT_ADD; SLICE: an offset */
    uint32_t access;   /* SEGMENT_ADD: VIADUCT_SEGMENT_* of viaduct.h; HELLO: VIA_ATTACH_LATE;
                          DIRECT: VIA_ATTACH_KEEPS */
    uint32_t endpoint; /* ENDPOINT_* */
    int32_t channel;   /* HELLO: wish, or -1 */
    uint32_t ttl_ms;
    uint32_t value_bytes;
    /* HELLO, with handle: the flow of the WELCOME of an attachment; commands of this process follow
     * its commands in order. Or 0. With another handle, or none, it is only a preference: commands
     * of one user with the same preferred flow keep their order. */
    uint32_t flow;
    unsigned char key[64];
    unsigned char value[512];
};

struct via_attach_answer {
    uint32_t magic;
    uint16_t version; /* of the daemon, also if it refuses the version of the request */
    uint16_t type;
    uint32_t id;
    int32_t status;  /* 0 or negative errno */
    uint64_t handle; /* WELCOME: a secret, for the HELLO of a process that follows this one */
    uint64_t bytes;
    union {
        uint64_t life;       /* MAP */
        uint64_t give_up_ns; /* WELCOME: host.h; 0: not given, as by earlier releases */
    };
    /* WELCOME */
    uint16_t host;
    uint16_t channels_count;
    uint16_t channel_first;
    uint16_t hosts_max;
    uint32_t area_bytes;
    uint32_t message_bytes_max;
    struct via_pipe_geometry command;
    struct via_pipe_geometry reply;
    uint32_t value_bytes;
    uint32_t flow; /* WELCOME: for HELLO, with handle and channel_first */
    unsigned char value[512];
};

/* --- commands and replies in the pipes ------------------------------------------------------- */

enum via_command_source {
    VIA_SOURCE_NONE = 0,
    VIA_SOURCE_BODY = 1, /* payload is the record's body */
    VIA_SOURCE_SEGMENT =
        2, /* payload (get: destination) is a.handle, b.offset of a segment of this process */
};

/* The head of a command record: exactly 56 bytes. */
struct via_command {
    uint8_t kind;   /* enum via_op_kind (core/node.h) */
    uint8_t flags;  /* VIA_OP_FLAGS (core/node.h) */
    uint8_t atomic; /* enum via_atomic | VIA_ATOMIC_32 */
    uint8_t source; /* enum via_command_source */
    uint16_t destination;
    uint16_t flow;
    uint64_t bytes;
    uint64_t segment;
    uint64_t offset;
    uint64_t cookie; /* repeated in the reply; 0 = no reply after a success */
    union {
        uint64_t source_segment;
        uint64_t signal_offset;
        uint64_t operand;
        uint64_t step;     /* strided put: struct via_op.operand */
        uint64_t endpoint; /* message */
        uint64_t group;    /* barrier: body = uint16_t host ids */
    } a;
    union {
        uint64_t source_offset;
        uint64_t signal_value;
        uint64_t compare;
        uint64_t block_bytes; /* strided put */
        uint64_t source_endpoint;
    } b;
};
_Static_assert(sizeof(struct via_command) == VIA_RECORD_HEAD_BYTES, "the head of a record");

enum via_reply_kind {
    VIA_REPLY_COMPLETE = 1, /* cookie, status, value */
    VIA_REPLY_DATA = 2,    /* get without a segment: the whole data as body, status; ends the get */
    VIA_REPLY_MESSAGE = 3, /* body (or inline up to 16 bytes) */
};

struct via_reply {
    uint8_t kind;
    uint8_t inline_bytes;
    uint16_t source_host;
    int32_t status;
    uint64_t cookie;
    uint64_t value;
    uint32_t endpoint;
    uint32_t source_endpoint;
    uint64_t bytes;
    unsigned char data[16];
};
_Static_assert(sizeof(struct via_reply) == VIA_RECORD_HEAD_BYTES, "the head of a record");

#endif
