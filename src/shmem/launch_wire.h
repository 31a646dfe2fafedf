/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_LAUNCH_WIRE_H
#define VIA_SHMEM_LAUNCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * The messages of oshrun and its agent on another machine, over the standard streams of the command
 * that has started the agent (ssh, srun). Each side begins with a line that names the version,
 * "viaduct-oshrun 3
 * "; then come frames: length of the payload and type, 32 bits each, the payload, and a newline,
 * because srun forwards only whole lines. Numbers are little-endian. Neither side trusts the other:
 * a frame that exceeds the maximum length, has an unknown type or lacks parts of its type ends the
 * connection.
 *
 * One thread on each side. Nothing here blocks.
 */
#define VIA_LAUNCH_VERSION 3u

enum via_launch_message {
    /* oshrun to agent */
    VIA_LAUNCH_JOB = 1,    /* program and places of PEs; encoded in launch_job.c */
    VIA_LAUNCH_START,      /* u64 job, nodes_count x u32 host */
    VIA_LAUNCH_INPUT,      /* bytes for PE 0; empty = end of file */
    VIA_LAUNCH_OUTPUT_ACK, /* u32 bytes */
    VIA_LAUNCH_SIGNAL,     /* u32 signal, u32 1 = the job ends */
    VIA_LAUNCH_STATES,     /* request: send MOMENT for each PE, then MOMENTS_END */
    /* agent to oshrun */
    VIA_LAUNCH_HELLO = 32, /* u32 host */
    VIA_LAUNCH_FAILED,     /* u32 exit code, text */
    VIA_LAUNCH_STARTED,    /* a PE each: u32 PE, u32 pid */
    VIA_LAUNCH_OUTPUT,     /* u32 PE, u32 0 = stdout or 1 = stderr, bytes */
    VIA_LAUNCH_INPUT_ACK,  /* u32 bytes; UINT32_MAX = PE 0 reads no more */
    VIA_LAUNCH_ENDED,      /* u32 PE, u32 pid, u32 status of wait(2), u32 via_job_state */
    VIA_LAUNCH_DONE,       /* empty: all PEs have ended, and all their output was sent */
    VIA_LAUNCH_TRACE,      /* request: send MOMENT for each PE of the job, then MOMENTS_END */
    /* both ways */
    VIA_LAUNCH_GATE = 64,   /* u32 generation, a PE each: u32 PE, its words (job.h) of u64 */
    VIA_LAUNCH_EXIT,        /* u32 PE, u32 status: shmem_global_exit */
    VIA_LAUNCH_PING,        /* u32 from an agent: 1 = a PE here takes part in OpenSHMEM */
    VIA_LAUNCH_MOMENT,      /* u32 PE, text: place, what it waits for: launch_trace.c */
    VIA_LAUNCH_MOMENTS_END, /* empty: all MOMENTs were sent */
};

#define VIA_LAUNCH_JOB_BYTES_MAX (UINT32_C(4) << 20)     /* arguments and environment */
#define VIA_LAUNCH_FRAME_BYTES_MAX (UINT32_C(128) << 10) /* from an agent */
/* Limit of bytes waiting to be written: more than the protocol allows to be outstanding, including
 * a gate of all PEs. */
#define VIA_LAUNCH_OUT_BYTES_MAX (UINT32_C(16) << 20)
/* Bytes of a stream that one side may send before an acknowledgement. */
#define VIA_LAUNCH_WINDOW_BYTES (UINT32_C(256) << 10)
/* Output of a shell that is accepted before the agent's first line. */
#define VIA_LAUNCH_NOISE_BYTES_MAX (UINT32_C(64) << 10)

/* --- payloads --------------------------------------------------------------------------------- */

/* Grows as it is filled. After a failure (no memory) it stays empty, with `failed` set. */
struct via_launch_bytes {
    unsigned char *data;
    size_t used;
    size_t room;
    bool failed;
};

void via_launch_put(struct via_launch_bytes *bytes, const void *data, size_t count);
void via_launch_put_u32(struct via_launch_bytes *bytes, uint32_t value);
void via_launch_put_u64(struct via_launch_bytes *bytes, uint64_t value);
void via_launch_put_text(struct via_launch_bytes *bytes, const char *text);
/* Removes `count` bytes from the front. */
void via_launch_bytes_drop(struct via_launch_bytes *bytes, size_t count);
void via_launch_bytes_fini(struct via_launch_bytes *bytes);

/* A payload that is read. After a missing part `failed` is set, and all further values are 0 or
 * "". */
struct via_launch_parts {
    const unsigned char *at;
    const unsigned char *end;
    bool failed;
};

uint32_t via_launch_take_u32(struct via_launch_parts *parts);
uint64_t via_launch_take_u64(struct via_launch_parts *parts);
/* Points into the payload; NUL-terminated. */
const char *via_launch_take_text(struct via_launch_parts *parts);
/* True if the payload had all parts and no more. */
bool via_launch_parts_is_end(const struct via_launch_parts *parts);

/* --- the connection --------------------------------------------------------------------------- */

struct via_launch_link {
    int in_fd;
    int out_fd; /* both non-blocking, owned; -1 once closed */
    uint32_t frame_bytes_max;
    bool greeted;   /* the other side's first line has been received */
    bool skip_line; /* before the greeting: inside another line */
    size_t noise_bytes;
    char noise[160]; /* the last line before the greeting */
    struct via_launch_bytes in;
    struct via_launch_bytes out;
    size_t taken; /* bytes of `in` in frames taken since the last read */
};

struct via_launch_frame {
    uint32_t type;
    struct via_launch_parts parts; /* until the next read */
};

/* Takes ownership of the descriptors, and queues the greeting. frame_bytes_max: of received
 * frames. */
void via_launch_link_open(struct via_launch_link *ret_link, int in_fd, int out_fd,
                          uint32_t frame_bytes_max);
void via_launch_link_close(struct via_launch_link *link);
/* Queues a frame. payload may be NULL. via_launch_link_write reports failures. */
void via_launch_link_send(struct via_launch_link *link, enum via_launch_message type,
                          const struct via_launch_bytes *payload);
void via_launch_link_send_u32(struct via_launch_link *link, enum via_launch_message type,
                              uint32_t value);
/* Writes as much as the descriptor accepts. -EPIPE, -ENOBUFS, ... */
int via_launch_link_write(struct via_launch_link *link) VIA_MUST_CHECK;
/* Reads the available bytes. 0; -ECONNRESET at end of file, ... */
int via_launch_link_read(struct via_launch_link *link) VIA_MUST_CHECK;
/* Returns 1 and a frame, 0 if no whole frame has arrived yet, -EPROTO with a text. */
int via_launch_link_take(struct via_launch_link *link, struct via_launch_frame *ret_frame,
                         struct via_error *err) VIA_MUST_CHECK;

#endif
