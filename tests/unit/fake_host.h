/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The host's side of the attach protocol, for tests of the client: one process, the memory of one
 * neighbour, and switches for faults. It runs in a thread of the test.
 */
#ifndef FAKE_HOST_H
#define FAKE_HOST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/pipe.h"
#include "host/attach_wire.h"

#define FAKE_CHANNELS 2u
#define FAKE_SLOTS 8u
#define FAKE_BODY_BYTES 1024u
#define FAKE_DATA_BYTES 4096u
#define FAKE_SEGMENTS 8u
#define FAKE_LIVES 512u
#define FAKE_LOG 4096u
/* Slices: slice i maps piece i of the segment that was requested last. */
#define FAKE_SLICE_BYTES 8192u
#define FAKE_SLICE_WORD                                                       \
    100u /* the index of the first one's word; that of the busy word is i + 1 \
          */
/* A segment that exists from the start, on host FAKE_PEER. */
#define FAKE_PEER 2u
#define FAKE_PEER_HANDLE UINT64_C(0x777000000001)
#define FAKE_PEER_BYTES 65536u

struct fake_segment {
    uint64_t handle;     /* 0 = free */
    unsigned char *base; /* the fake's thread uses this ... */
    unsigned char *view; /* ... and the test this: TSan does not see the order of their accesses */
    size_t bytes;
    int memfd;
    int bell_fd;
    uint64_t life;
};

struct fake_host {
    char rundir[64];
    char path[128];
    unsigned host;
    _Atomic int listen_fd;
    _Atomic int socket_fd; /* -1: no process is attached */
    bool greeted;
    pthread_t thread;
    _Atomic bool stop;

    /* Switches. */
    _Atomic bool hold;                         /* commands stay in the pipe */
    _Atomic bool mute;                         /* requests are not answered */
    _Atomic int version;                       /* in answers */
    _Atomic int map_status;                    /* of MAP */
    _Atomic int command_status;                /* of all commands */
    _Atomic int slice_status;                  /* of SLICE */
    _Atomic int tcp_status;                    /* of TCP */
    _Atomic int direct_status;                 /* of DIRECT */
    struct via_attach_tcp tcp;                 /* in the answers; with `lock` */
    struct via_tcp_card direct_card;           /* likewise */
    uint32_t direct_keeps, direct_kept_layout; /* in answers to DIRECT */
    struct via_attach_slice slice_lie;         /* xored into the answers to SLICE */
    int slice_fd_instead;                      /* passed with them; 0: the segment's memfd */
    bool slice_without_fd;

    /* Recorded events. */
    _Atomic unsigned maps_count;
    _Atomic unsigned slices_count; /* how many were requested */
    _Atomic unsigned commands_count;
    _Atomic unsigned directs_count;   /* requests DIRECT */
    struct via_command log[FAKE_LOG]; /* the first commands; to be read after their count */

    pthread_mutex_t lock; /* of all fields below */
    struct via_status_page *status;
    struct via_bell *bells;
    unsigned char *memory;
    size_t memory_bytes;
    _Atomic uint64_t *lives; /* by index of the handle */
    uint64_t life_last;
    struct via_slice_busy *busy;
    _Atomic uint64_t slice_life_last;
    uint32_t slice_flags, slice_read_ns, slice_link;
    uint64_t slice_bytes;
    int status_fd, bells_fd, memory_fd, bell_fd, lives_fd;
    struct via_pipe_geometry geometry;
    struct via_pipe_reader commands[FAKE_CHANNELS];
    struct via_pipe_writer replies[FAKE_CHANNELS];
    uint32_t data_ends[FAKE_CHANNELS][FAKE_SLOTS];
    struct fake_segment segments[FAKE_SEGMENTS];
    unsigned char note_key[64];
    size_t note_key_bytes;
    unsigned char note[512];
    uint32_t note_bytes;
    bool note_hangs;
};

void fake_host_start(struct fake_host *fake, unsigned host);
/* Also frees everything, and removes the run directory. */
void fake_host_stop(struct fake_host *fake);
/* As if the daemon were killed: the connection ends, and the socket file remains. */
void fake_host_die(struct fake_host *fake);
/* Stores the card in the answers to DIRECT. */
void fake_host_set_card(struct fake_host *fake, const struct via_tcp_card *card);
/* Stores both addresses in the answers to TCP and DIRECT. */
void fake_host_set_address(struct fake_host *fake, const char *address);
void fake_host_set_way(struct fake_host *fake, unsigned host, uint32_t session, uint16_t generation,
                       unsigned hops, bool direct);
/* Sets the slices of a host that has some, or has no more. */
void fake_host_set_slices(struct fake_host *fake, unsigned host, uint32_t session,
                          uint16_t generation, bool slices);
/* Closes slice i, or frees its segment. */
void fake_host_revoke(struct fake_host *fake, unsigned slice, bool gone);
/* Sends a message to the process. False: its pipe is full. */
bool fake_host_message(struct fake_host *fake, uint32_t endpoint, const void *data, size_t bytes);
struct fake_segment *fake_host_peer(struct fake_host *fake);
/* Adds a segment on host FAKE_PEER. */
struct fake_segment *fake_host_peer_add(struct fake_host *fake, uint64_t handle, size_t bytes);

#endif
