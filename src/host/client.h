/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The inside of the client library (viaduct/viaduct.h): one attachment of a process to its host.
 *
 *   client_open.c     attach, detach          client_fds.c   own descriptors
 *   client_wait.c     the lock, taking in replies, sleeping
 *   client_command.c  operations under way, commands into the pipes
 *   client_request.c  requests on the socket
 *   client_segment.c  own memory            client_remote.c   memory of other processes, mappings
 *   client_put.c, client_get.c              client_message.c  messages, boards, barriers
 *   client_slice.c    slices of windows     client_aperture.c puts through slices
 *   client_tcp.c      direct connections: the connector   client_tcp_serve.c  the acceptor
 *   client_auto.c     direct connections that the library opens by itself
 *
 * Locking. `lock` guards every field whose comment does not say atomic, constant or direct. Callers
 * of a function marked [locked] hold it; of these functions only those marked [waits] release it
 * meanwhile. Direct accesses take no lock.
 */
#ifndef VIA_HOST_CLIENT_H
#define VIA_HOST_CLIENT_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/list.h"
#include "base/types.h"
#include "core/pipe.h"
#include "host/attach_wire.h"
#include "host/host_spin.h"
#include "viaduct/viaduct.h"

#define VIA_CLIENT_HOSTS_MAX 1024u
#define VIA_CLIENT_CHANNELS_MAX 14u
#define VIA_CLIENT_ANSWER_FDS_MAX 4u
#define VIA_CLIENT_TCP_MAX 64u
/* Messages received and not yet taken by the program. Further messages stay in the pipe, and the
 * sender waits. */
#define VIA_CLIENT_INBOX_BYTES_MAX (64u << 20)
/* Longest wait for replies that are behind such messages in the pipe. */
#define VIA_CLIENT_STUCK_NS_MAX (5 * VIA_SEC_NS)
/* A direct connection ends after a wait of this time without a route to the host. It is the
 * daemon's time (viaductd --give-up-ms), or this constant if the daemon does not send its time. */
#define VIA_CLIENT_TCP_LOST_NS_MAX (120 * VIA_SEC_NS)
/* Time in which the host answers a request; after that the attachment fails. */
#define VIA_CLIENT_ANSWER_NS_MAX (10 * VIA_SEC_NS)
/* How often the library checks whether the caller has given a request up. */
#define VIA_CLIENT_CHECK_NS (50 * VIA_MSEC_NS)
/* Pieces of one get that are under way at a time. */
#define VIA_CLIENT_GET_PIECES_MAX 4u

/* The result of the commands of a waiting call. On its stack. */
struct via_client_result {
    unsigned left; /* number of commands that have not ended */
    int status;    /* of the first command that failed, else 0 */
    uint64_t value;
};

/* An operation under way: one command in a pipe. The cookie of the reply identifies it. */
struct via_client_op {
    struct via_list pending;          /* in via_attach.pending if it is asynchronous */
    uint64_t issue;                   /* asynchronous: number in the order of starts */
    struct via_client_result *result; /* a thread waits; NULL = asynchronous */
    struct via_remote *remote;        /* asynchronous put: referenced */
    unsigned char *destination;       /* get, atomic: NULL = not wanted */
    uint64_t bytes;                   /* of destination */
    uint32_t generation;
    uint32_t index_next_free;
    uint16_t host;
    bool used;
    bool fetches; /* destination is for the value of the reply, not for its body */
    bool ordered; /* direct stores must not overtake it */
};

struct via_client_channel {
    struct via_pipe_writer writer; /* commands */
    struct via_pipe_reader reader; /* replies */
    struct via_bell *bell;         /* of the transfer thread */
    uint32_t *data_ends;           /* memory that the writer uses */
    unsigned room_waiters;         /* threads that wait for room in the pipe of the writer */
    uint64_t stuck_ns; /* since when the next reply is a message and the inbox is full; 0 = not */
};

/* A received message that the program has not taken yet. */
struct via_client_message {
    struct via_list link;
    struct via_message_info info;
    unsigned char data[];
};

/* A request on the socket without an answer so far. The caller owns it, and keeps it until the
 * answer has arrived. */
struct via_client_request {
    struct via_list link;
    uint32_t id;
    bool done;
    /* [locked] Called with the answer of a request for which no thread waits; else NULL. */
    void (*answered)(struct via_attach *attach, struct via_client_request *request);
    struct via_attach_answer answer;
    int fds[VIA_CLIENT_ANSWER_FDS_MAX]; /* fds_count descriptors, which the caller owns */
    unsigned fds_count;
};

struct via_attach {
    /* Constant while attached. */
    pid_t pid; /* of the process that opened it */
    int socket_fd;
    int bell_fd;
    int nudge_fd; /* eventfd: wakes the thread that sleeps on behalf of all waiting threads */
    int epoll_fd; /* socket, bell and nudge, edge-triggered */
    uint16_t host;
    uint16_t hosts_max;
    uint16_t channels_count;
    uint16_t channel_first;
    /* Names of the flow of this process, by WELCOME. Before WELCOME: names of the attachment whose
     * puts arrive before its own. */
    uint32_t flow;
    uint64_t order;
    bool late; /* when this process has ended, the host keeps its puts until a route exists */
    uint32_t message_bytes_max;
    uint32_t body_bytes_max;  /* of a command */
    uint32_t reply_bytes_max; /* body of a reply */
    size_t inbox_bytes_max;   /* VIA_CLIENT_INBOX_BYTES_MAX; tests take less */
    uint64_t stuck_ns_max;    /* VIA_CLIENT_STUCK_NS_MAX; likewise */
    uint64_t tcp_lost_ns_max; /* by WELCOME */
    const struct via_status_page *status;
    size_t status_bytes;
    struct via_bell *bells;
    size_t bells_bytes;
    unsigned char *memory;
    size_t memory_bytes;
    struct via_slice_busy *busy; /* in memory; VIA_ATTACH_SLICES_MAX of them */
    _Atomic uint64_t *interest;  /* in memory; VIA_ATTACH_INTEREST_WORDS */
    _Atomic uint64_t combine_seed;

    pthread_mutex_t lock;
    pthread_cond_t turn;      /* the leading thread has woken, or has ended its wait */
    _Atomic uint32_t lockers; /* threads that wait for the lock: a holder that spins yields it */

    struct via_client_channel channels[VIA_CLIENT_CHANNELS_MAX];

    _Atomic bool dead;         /* the host has gone; also read without the lock */
    bool leading;              /* a thread spins or sleeps on behalf of all waiting threads */
    bool asleep;               /* ... and sleeps: only that thread takes replies */
    bool socket_ready;         /* answers may have arrived on the socket */
    _Atomic bool bell_watched; /* the program watches the bell: the host rings after a poll */
    unsigned followers;
    struct via_host_spin spin;
    uint64_t death_poll_ns; /* when the socket was last checked without a reason */

    struct via_client_op *ops;
    uint32_t ops_count;
    uint32_t ops_free;       /* index of the first free op, ops_count = none */
    struct via_list pending; /* asynchronous ops, oldest first */
    uint64_t issue_next;
    int async_status;    /* first failure since the last quiet ... */
    uint16_t async_host; /* ... and its destination host */
    /* Unacknowledged asynchronous puts to a host, without puts that only ring a bell; written under
     * the lock. */
    _Atomic uint32_t host_pending[VIA_CLIENT_HOSTS_MAX];
    _Atomic uint32_t puts_pending;  /* ... to any host */
    _Atomic uint32_t puts_given_up; /* number of puts with a status of via_client_is_given_up() */

    struct via_list messages;
    size_t messages_bytes;

    struct via_list requests;
    uint32_t request_id_next;
    struct via_list segments;
    struct via_list segments_left; /* freed here; the host has not received this yet */
    struct via_list remotes;

    /* Serves direct connections of other processes, and sends delayed requests on this process's
     * connections; NULL: none. Constant once set. */
    struct via_client_serve *_Atomic serve;
    /* Direct connections of this process. Entries below the count are constant, and the count only
     * grows; one thread at a time connects, under dial_lock. */
    struct via_client_tcp *tcp_all[VIA_CLIENT_TCP_MAX];
    _Atomic unsigned tcp_count;
    pthread_mutex_t dial_lock;
    /* Hosts that do not answer a connector, as behind a firewall. Under dial_lock. */
    bool tcp_silent[VIA_CLIENT_HOSTS_MAX];
    struct via_client_auto *_Atomic autos; /* client_auto.h; NULL: none so far */
    _Atomic bool auto_off;
    _Atomic bool closing;
    _Atomic uint64_t leave_deadline_ns; /* 0: none */
    _Atomic uint64_t recoveries; /* how often frames took over, or began to take over, puts that a
                                    direct connection had kept */
};

struct via_segment {
    struct via_list link;
    struct via_attach *attach;
    uint64_t handle;
    unsigned char *base; /* NULL: adopted without one */
    size_t bytes;
    bool mapped; /* by via_segment_new */
};

struct via_client_mapping {
    struct via_client_mapping *next;
    unsigned char *base;
    size_t bytes;
    const _Atomic uint64_t *life_now; /* in the life page of the owner's host */
    uint64_t life;                    /* value of *life_now while the segment may be accessed */
    void *life_page;                  /* the page that contains *life_now */
    int bell_fd;
    bool read_only;
};

/* Requests of a remote for slices. Guarded by the lock, except atomic fields. */
struct via_client_slice_request {
    struct via_client_request request;
    bool under_way;
    uint32_t misses;   /* puts without a slice since the last request */
    uint64_t poll_ns;  /* last check for the answer */
    uint64_t again_ns; /* earliest time of the next request, 0 = at once */
    uint64_t off, end; /* the bytes that need slices; the first ones have been requested */
    uint64_t pause_ns;
    _Atomic uint64_t way_refused; /* the state of the path in which the host grants no slices */
};

struct via_client_aperture; /* client_slice.h */

struct via_remote {
    struct via_list link;
    struct via_attach *attach;
    uint64_t handle;
    uint64_t bytes;
    uint16_t host;
    /*
     * The state of the path (VIA_CLIENT_WAY_MASK of the status word) in which `mapping` may be
     * used, 0 = none; and the state in which mapping the segment has failed.
     */
    _Atomic uint64_t way_direct;
    _Atomic uint64_t way_refused;
    /* The newest mapping first. Older ones stay mapped until close, because another thread may
     * still access them. */
    struct via_client_mapping *_Atomic mapping;
    uint32_t mapped_session;
    _Atomic uint32_t pending;  /* unacknowledged puts by frames; written under the lock */
    _Atomic uint32_t ordered;  /* ... without puts that only ring a bell */
    _Atomic uint32_t begun;    /* puts by frames since the remote was opened; written as above */
    _Atomic int error;         /* first failure not yet reported */
    _Atomic int lost;          /* error of all accesses after the segment has been freed */
    _Atomic uint32_t accesses; /* number of direct accesses, roughly */
    bool mapping_now;          /* a thread is mapping it */
    bool outlives;             /* see via_client_remote_keep_mapping() */
    bool alone;                /* see via_client_remote_set_unordered() */
    struct via_client_aperture *_Atomic aperture; /* the newest; NULL: it never had a slice */
    struct via_client_slice_request slice_request;
    _Atomic uint32_t detours;   /* consecutive puts by frames that a direct store could replace */
    _Atomic uint64_t drain_ns;  /* since when puts wait until earlier frames have arrived */
    struct via_client_tcp *tcp; /* client_tcp.h; constant from the first operation on */
    bool closed;
    unsigned held; /* under the lock: while not 0, a closed remote without pending puts stays */
};

#define VIA_CLIENT_WAY_MASK (UINT64_C(0xffffffffffff0000) | VIA_STATUS_DIRECT)
#define VIA_CLIENT_SLICE_WAY_MASK (UINT64_C(0xffffffffffff0000) | VIA_STATUS_SLICES)

/* The present status word of a host. */
static inline uint64_t via_client_status(const struct via_attach *attach, unsigned host)
{
    return atomic_load_explicit(&attach->status->peers[host], memory_order_acquire);
}

/* The same; from now on the daemon rings this process's bell when the word changes. */
static inline uint64_t via_client_watch(const struct via_attach *attach, unsigned host)
{
    _Atomic uint64_t *word = &attach->interest[host / 64];
    uint64_t bit = UINT64_C(1) << (host % 64);
    if ((atomic_load_explicit(word, memory_order_relaxed) & bit) == 0) {
        /* Before the check; pairs with the fence in via_attach_server_changed(). */
        atomic_fetch_or_explicit(word, bit, memory_order_seq_cst);
        atomic_thread_fence(memory_order_seq_cst);
    }
    return via_client_status(attach, host);
}

static inline struct via_client_channel *via_client_channel_to(struct via_attach *attach,
                                                               unsigned host)
{
    return &attach->channels[(attach->channel_first + host) % attach->channels_count];
}

#define VIA_CLIENT_REPLIES_ALL UINT32_MAX
static inline uint32_t via_client_replies(const struct via_attach *attach,
                                          const struct via_client_channel *channel)
{
    return UINT32_C(1) << (channel - attach->channels);
}

uint64_t via_client_now_ns(void);

/*
 * Descriptors of the library. keep: moves fd to a number from 4096 on (from half of the limit on if
 * that is less), so that programs get their usual low numbers; sets close-on-exec. The number is
 * not higher, because the kernel's table of a process is as long as its highest descriptor. Returns
 * the new number, or fd itself if no such number is free. close: closes such a descriptor.
 *
 * note_owner does nothing here. A library between the program and the C library overrides it, to
 * keep these descriptors open when the program closes all descriptors that it does not know.
 */
int via_client_fd_keep(int fd);
void via_client_fd_close(int fd);
void via_client_fd_note_owner(int fd, bool ours);

/* Sets the thread's text: "<object>: <attempt>: <cause>". Returns code. */
int via_client_error(int code, const char *format, ...) VIA_PRINTF(2, 3);
/* -ENOTCONN and its text. */
int via_client_dead(const struct via_attach *attach);

void via_client_lock(struct via_attach *attach);
void via_client_unlock(struct via_attach *attach);

/* [locked] Takes received replies and messages; returns their number. */
unsigned via_client_take(struct via_attach *attach);

/* [locked] There is room in the inbox again: wakes the leading thread, which checks. */
void via_client_unstick(struct via_attach *attach);

/* [locked] After a command: wakes the transfer thread if it sleeps. */
void via_client_ring(struct via_client_channel *channel);

/* [locked] The daemon has ended, or breaks the protocol: every wait ends. */
void via_client_die(struct via_attach *attach);

/* Has the daemon ended? For threads that only poll, and whose waits would not notice it. */
bool via_client_check_death(struct via_attach *attach);

typedef bool via_client_condition(struct via_attach *attach, void *ctx);

/*
 * [locked, waits] Waits until done(), which is called with the lock held and must not wait, returns
 * true. room: the channel whose writer done() reads, or NULL. deadline_ns: VIA_NEVER_NS = none. 0,
 * -ETIMEDOUT, -EINTR (after a signal, if `interruptible`), -ENOTCONN, -ENOBUFS (the replies were
 * for too long behind messages that the program does not receive). Only -ENOTCONN and -ENOBUFS set
 * an error text.
 */
struct via_client_wait {
    via_client_condition *done;
    void *ctx;
    struct via_client_channel *room;
    uint64_t deadline_ns;
    bool interruptible;
    uint32_t replies; /* bits of the channels whose replies done() waits for */
};
int via_client_wait(struct via_attach *attach, const struct via_client_wait *wait) VIA_MUST_CHECK;

/* [waits; takes the lock] Takes replies of the remote's host until is_over(attach, remote). */
int via_client_wait_remote(struct via_remote *remote, via_client_condition *is_over,
                           uint64_t deadline_ns) VIA_MUST_CHECK;

/* [locked, waits] Waits until result->left is 0. Returns result->status, or the error that ended
 * the wait. */
int via_client_wait_result(struct via_attach *attach, const struct via_client_channel *channel,
                           struct via_client_result *result) VIA_MUST_CHECK;

/* The part of an operation besides its command. */
struct via_client_intent {
    struct via_client_result *result; /* NULL: asynchronous */
    struct via_remote *remote;        /* asynchronous put */
    void *destination;                /* get, atomic */
    uint64_t bytes;
};

/* [locked] Is there room for a command with a body of this size now? */
bool via_client_command_has_room(struct via_attach *attach, struct via_client_channel *channel,
                                 size_t body_bytes);
/* [locked, waits] Waits for room. 0, -ENOTCONN, -ENOBUFS. */
int via_client_command_room(struct via_attach *attach, struct via_client_channel *channel,
                            size_t body_bytes) VIA_MUST_CHECK;
/* [locked] Sends a command that fits; its cookie is filled in here. */
void via_client_command_send(struct via_attach *attach, struct via_client_channel *channel,
                             struct via_command *command, const void *body, size_t body_bytes,
                             const struct via_client_intent *intent);
/* [locked] The reply of a command has arrived. */
void via_client_command_end(struct via_attach *attach, const struct via_reply *reply,
                            const void *body, size_t body_bytes);
/* A waiting call returns before its commands have ended: the commands no longer write to
 * `result`. */
void via_client_command_forget(struct via_attach *attach, struct via_client_result *result);

/*
 * Keeps the mapping of this remote usable when its owner has freed the segment or has ended,
 * because a process that inherited the memory still reads it. For callers that find out by
 * themselves which process reads. Call it before the first access.
 */
void via_client_remote_keep_mapping(struct via_remote *remote);
/* Puts of this remote need not be in order with puts of other remotes of the same host. Call it
 * before the first access. */
void via_client_remote_set_unordered(struct via_remote *remote);
/* The segment does not exist any more: all accesses fail from now on. */
void via_client_remote_lose(struct via_remote *remote);
/*
 * Has the owner of the segment ended, or freed it? If it has ended, all its puts have arrived.
 * Without a mapping the client sends a request to the owner's host: false until the answer arrives,
 * and the next call after an answer sends another request.
 */
bool via_client_remote_is_gone(struct via_remote *remote);
/*
 * As via_remote_try_put(), bytes > 0; after the bytes it sets an aligned word of the same segment
 * to `value`, with the same command and frame. With VIADUCT_PUT_NOTIFY the bell rings after that.
 */
int via_client_try_put_signal(struct via_remote *remote, uint64_t off, const void *src,
                              size_t bytes, uint64_t signal_off, uint64_t value,
                              unsigned flags) VIA_MUST_CHECK;
/* True if its host is cut off and the limit of puts under way to that host is reached:
 * via_remote_try_put() then puts nothing until a route exists again, so that puts to other hosts
 * have room. */
bool via_client_remote_is_held(const struct via_remote *remote);
/*
 * Reads a word of the segment in frames, without waiting: the first call sends the request, and the
 * first call after the answer returns the word. 0; -EAGAIN; or another negative errno. The struct
 * is the caller's: zeroed before the first call, and passed to via_client_word_forget() before it
 * is freed.
 */
struct via_client_word {
    struct via_client_result result;
    struct via_attach *attach; /* that has sent the request, NULL: none yet */
    uint64_t word;
};
int via_client_remote_word(struct via_remote *remote, uint64_t off, struct via_client_word *word,
                           uint64_t *ret_word);
void via_client_word_forget(struct via_client_word *word);
/* True if this status means that the operation timed out: its host was out of reach, or granted no
 * room, for too long. The operation may have arrived, and puts behind it may still arrive. */
static inline bool via_client_is_given_up(int status)
{
    return status == -EHOSTUNREACH || status == -ETIMEDOUT;
}
/* Puts by frames whose replies this process has not taken. */
static inline unsigned via_client_remote_pending_seen(const struct via_remote *remote)
{
    return atomic_load_explicit(&remote->pending, memory_order_acquire);
}
/* Numbers of puts by frames that have begun, and that have ended: puts end in the order in which
 * they began. Both wrap around after UINT32_MAX. */
static inline uint32_t via_client_remote_begun(const struct via_remote *remote)
{
    return atomic_load_explicit(&remote->begun, memory_order_relaxed);
}
static inline uint32_t via_client_remote_ended(const struct via_remote *remote)
{
    return via_client_remote_begun(remote) - via_client_remote_pending_seen(remote);
}
/* The first failure of a put that no later put has reported yet; 0: none. */
static inline int via_client_remote_failure(const struct via_remote *remote)
{
    return atomic_load_explicit(&remote->error, memory_order_relaxed);
}
/* The same, and clears the failure. */
static inline int via_client_remote_take_failure(struct via_remote *remote)
{
    return atomic_exchange_explicit(&remote->error, 0, memory_order_relaxed);
}
/* The result of an access by frames: -EACCES for a segment that was mapped means that it is
 * lost. */
int via_client_remote_status(struct via_remote *remote, int status);
/* [locked] A put has failed: a later put reports it. */
void via_client_remote_fail(struct via_remote *remote, int status);
/* [locked] A put has ended: it releases its reference to the remote. */
void via_client_remote_done(struct via_remote *remote);
/* [locked] Decrements remote->held. */
void via_client_remote_release(struct via_remote *remote);

/* The reason of a refusal: the host's text, or the text of the status. */
static inline const char *via_client_cause(struct via_attach_answer *answer)
{
    int status = answer->status > 0 ? -EPROTO : answer->status;
    size_t bytes = via_min(answer->value_bytes, sizeof(answer->value) - 1);
    for (size_t i = 0; i < bytes; i++) {
        answer->value[i] =
            answer->value[i] >= ' ' && answer->value[i] <= '~' ? answer->value[i] : '?';
    }
    answer->value[bytes] = '\0';
    return bytes != 0 ? (const char *)answer->value : strerror(-status);
}
/*
 * [locked, waits] Fills in magic, version and id, sends the request, with fd unless it is -1, and
 * waits for the answer. Returns answer.status, or -ENOTCONN, -ETIMEDOUT. The received descriptors
 * are in request->fds; on failure there are none.
 */
int via_client_request_wait(struct via_attach *attach, struct via_attach_request *message, int fd,
                            struct via_client_request *request) VIA_MUST_CHECK;
/* [locked, waits] The same, but -ETIMEDOUT soon after is_given_up() has become true. */
typedef bool via_client_given_up(const struct via_attach *attach);
int via_client_request_wait_until(struct via_attach *attach, struct via_attach_request *message,
                                  int fd, struct via_client_request *request,
                                  via_client_given_up *is_given_up) VIA_MUST_CHECK;
/* [locked] The same without waiting: request->answered is called with the answer, and then owns the
 * descriptors. 0; or a negative errno, and `answered` is not called. */
int via_client_request_send(struct via_attach *attach, struct via_attach_request *message,
                            struct via_client_request *request) VIA_MUST_CHECK;
/* [locked] Sends a request that has no answer. 0, -EAGAIN if the socket is full, or another
 * negative errno: the daemon has ended. */
int via_client_notify_host(struct via_attach *attach,
                           struct via_attach_request *message) VIA_MUST_CHECK;
/* [locked] Takes all answers that have arrived on the socket. */
unsigned via_client_take_answers(struct via_attach *attach);

/* For via_attach_open, before an attachment exists: one request, one answer. */
int via_client_socket_send(int socket_fd, const struct via_attach_request *content, int fd);
long via_client_socket_receive(int socket_fd, struct via_attach_answer *answer, int *fds,
                               unsigned *ret_fds_count);

/*
 * The mapping of a remote that may be used now, or NULL. Cheap while nothing changes. When the path
 * has become direct, it maps the segment, for which it waits for the daemon's answer. Takes the
 * lock itself.
 */
struct via_client_mapping *via_client_direct(struct via_remote *remote);

/*
 * The same for calls that may wait: if the path is direct and puts by frames have not arrived yet,
 * it waits until they have, because a direct access would overtake them. 0 and the mapping, or NULL
 * for "by frames"; -ENOTCONN, -ENOBUFS, or the error of a lost remote.
 */
int via_client_direct_wait(struct via_remote *remote,
                           struct via_client_mapping **ret_mapping) VIA_MUST_CHECK;

/* True if the path is direct, but puts by frames have to arrive first. */
bool via_client_has_frames_due(const struct via_remote *remote);

/* [locked] The segment of this attachment that contains these bytes, or NULL. */
struct via_segment *via_client_segment_of(struct via_attach *attach, const void *base,
                                          size_t bytes);

/* Unmap and free a remote, or a segment, without a request to the daemon. */
void via_client_remote_free(struct via_remote *remote);
void via_client_segment_free(struct via_segment *segment);
/* The first half of via_attach_close(): waits until the daemon has taken accepted puts, at most
 * one second. Sufficient for a process that ends while other threads may still make calls. */
void via_client_drain(struct via_attach *attach);
/* via_segment_free() without waiting for the daemon: peers may reach the segment for a moment
 * longer. */
void via_client_segment_leave(struct via_segment *segment);
/* A thread is about to wait for lazy puts (VIADUCT_PUT_LAZY): requests an acknowledgement
 * from all reachable hosts now. Does not wait; a request that fails only makes the wait longer. */
void via_client_hurry(struct via_attach *attach);
/* Have all puts to reachable hosts arrived? */
bool via_client_is_quiet(const struct via_attach *attach);

/*
 * via_remote_try_put() for a caller with a word in its own memory by which the reader announces
 * that it sleeps. With VIADUCT_PUT_NOTIFY, a put through slices rings only if reader->is_asleep()
 * is true, which is called after the bytes have arrived (so the word is loaded after them); other
 * puts always ring. reader NULL: always ring.
 */
struct via_client_reader {
    bool (*is_asleep)(void *ctx); /* called with the attachment's lock: must not put */
    /* Called while the bytes are under way through a slice: true if the reader has acknowledged
     * them. It may wait for about the time of a read across the link, because true saves that read.
     * NULL: false. */
    bool (*is_answered)(void *ctx);
    void *ctx;
};
int via_client_try_put(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                       unsigned flags, const struct via_client_reader *reader);

/* Waits until the daemon has taken all commands out of the pipes, whatever their destination. 0,
 * -EAGAIN (the pipes are full), -ETIMEDOUT, -ENOTCONN, -ENOBUFS. */
int via_client_hand_over(struct via_attach *attach, uint64_t deadline_ns);

/*
 * Opens an attachment whose puts arrive after those of another attachment, also of another process,
 * that the daemon has already taken. A forked process uses it to stay in order with its parent.
 * flow: 0 = no such order. Puts of such a process to hosts that are cut off also arrive after its
 * end, if a route exists again soon.
 */
struct via_client_order {
    uint64_t name;
    uint32_t flow;
    uint16_t channel;
};
struct via_client_order via_client_order_of(const struct via_attach *attach);
int via_client_attach_behind(struct via_client_order order, struct via_attach **ret_attach);
/* ... and this process stores nothing directly before those puts have arrived. Call it before the
 * first put to a host. 0 or a negative errno. */
int via_client_remote_follow(struct via_remote *remote);

/* From now on frames carry all puts that the program does not send over its own connections. Called
 * when the program watches the bell, which does not ring for puts over direct connections, or opens
 * direct connections itself. See client_auto.h. */
void via_client_auto_off(struct via_attach *attach);

/* Waits while the command pipe is full. */
int via_client_put_by_frames(struct via_remote *remote, uint64_t off, const unsigned char *src,
                             size_t bytes, unsigned flags) VIA_MUST_CHECK;

/* 0, -ERANGE with text, or the error of a lost remote. */
int via_client_check(const struct via_remote *remote, uint64_t off, uint64_t bytes,
                     const char *attempt) VIA_MUST_CHECK;

#endif
