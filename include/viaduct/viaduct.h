/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIADUCT_VIADUCT_H
#define VIADUCT_VIADUCT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Viaduct's client interface, for processes that use the fabric of their host.
 *
 * A process attaches to its host (the viaductd of that host), registers segments, opens segments of
 * other processes on any host, and puts to, gets from and updates these. If this process can map
 * the peer's memory (on the same host, or on a neighbour behind a coherent window), put and get are
 * stores and loads of the calling thread. Puts of up to 4 KiB to a neighbour behind another window
 * are stores, too. The host, or a direct connection, carries all others.
 *
 * Threads: every function may be called from any thread; no other thread may use an object while it
 * is closed or freed. Fork: a child may only close its parent's attachment; it may open its own.
 * Results: 0 or a count, or a negative errno with a text (via_error_text()). If no other is given,
 * calls that use the attachment fail with -ENOTCONN once its host has ended. Requests to the host
 * (opening, registering, freeing, boards) block until it answers; -ETIMEDOUT after 10 seconds.
 */

#define VIADUCT_API __attribute__((visibility("default")))
#define VIADUCT_MUST_CHECK __attribute__((warn_unused_result))

/* The last error of a call in this thread: object, attempt and cause; "" before the first error.
 * Never NULL. The text is the library's, and valid until the thread's next call of the library. */
VIADUCT_API const char *via_error_text(void);

/* --- attachment ------------------------------------------------------------------------------ */

struct via_attach;

/*
 * size: sizeof(struct via_attach_options) as compiled, so that the struct may grow.
 * rundir: directory of the fabric's sockets; NULL = $VIADUCT_RUNDIR, else the default fabric's.
 * host: id of the host to attach to; -1 = $VIADUCT_HOST, else the host of the run directory, if it
 *   is that of one host.
 * channel: first channel to use, -1 = chosen by the host. Puts of one attachment to one destination
 *   stay on one channel and keep their order.
 */
struct via_attach_options {
    size_t size;
    const char *rundir;
    int host;
    int channel;
};

/*
 * Attaches to a host; options may be NULL. Blocks until the daemon answers, normally for a few
 * milliseconds, at most 10 seconds. -ENOENT (no such host is up), -ECONNREFUSED (its daemon has
 * died), -ETIMEDOUT (its daemon does not answer), -EACCES (the fabric belongs to another user),
 * -EPROTO (other protocol version), -EINVAL (no host is named, or the environment is invalid),
 * -EMFILE, -ENOMEM.
 *
 * close waits until pending puts have ended, at most three seconds. It frees the attachment and all
 * segments and remotes that were opened through it.
 */
VIADUCT_API int via_attach_open(const struct via_attach_options *options,
                                struct via_attach **ret_attach) VIADUCT_MUST_CHECK;
VIADUCT_API void via_attach_close(struct via_attach *attach);

VIADUCT_API unsigned via_attach_host(const struct via_attach *attach);

/* Stores the ids of hosts that can be reached now, at most max of them, in ascending order; the own
 * host is one of them. Returns the number of all such hosts, which may exceed max. Does not block.
 */
VIADUCT_API int via_attach_hosts(struct via_attach *attach, uint16_t *ret_hosts, unsigned max);

/* Number of links on the way to a host: 0 = the own host, 1 = a neighbour. -EHOSTUNREACH: no way.
 * Does not block. */
VIADUCT_API int via_attach_hops(struct via_attach *attach, unsigned host);

/*
 * The attachment's bell: an eventfd, owned by the attachment. The host rings it after a completion,
 * a message, a put with VIADUCT_PUT_NOTIFY into a segment of this process, and a change of the way
 * to a host about which this process has asked (via_attach_hops(), via_attach_hosts(),
 * via_remote_open(), messages to it). A ring may also come without such an event. Watch the bell
 * with EPOLLIN | EPOLLOUT | EPOLLET: each ring is an edge, and there is one at the beginning. Do
 * not read or write it: its counter is never 0, so that no holder can suppress rings. Before
 * sleeping on it, call via_attach_poll() until it returns 0: the host rings for each event after
 * that call. An attachment whose bell is in use opens no connections by itself (via_remote_put()).
 */
VIADUCT_API int via_attach_bell_fd(const struct via_attach *attach);

/* Handles completions, messages and changes of links without blocking. The other calls do so, too.
 * Returns how many it has handled; -ENOTCONN: the host has ended. */
VIADUCT_API int via_attach_poll(struct via_attach *attach);

/* --- segments -------------------------------------------------------------------------------- */

#define VIADUCT_SEGMENT_READ 1u
#define VIADUCT_SEGMENT_WRITE 2u
#define VIADUCT_SEGMENT_LINGER 4u

struct via_segment;

/*
 * Registers `bytes` (rounded up to pages of 4096) of new zeroed shared memory, and maps it in this
 * process. access: VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, the rights of other processes; 0
 * for a source of own puts. Other processes never map a segment that they may not read: frames
 * carry puts to it. With VIADUCT_SEGMENT_LINGER, too, gets by frames still read the segment for
 * some seconds after the process has ended without freeing it; puts are refused then. So a process
 * that learns of the end can read the last contents. -ENOMEM, -EMFILE, -ENOSPC (the host's table is
 * full), -EDQUOT (the user has its maximum of segments or memory on this host), -EINVAL.
 */
VIADUCT_API int via_segment_new(struct via_attach *attach, size_t bytes, unsigned access,
                                struct via_segment **ret_segment) VIADUCT_MUST_CHECK;

/*
 * The same for a memfd of the caller, which must be sealed against shrinking (F_SEAL_SHRINK; -EPERM
 * otherwise). The caller may close the descriptor afterwards. base: the caller's mapping, which
 * must stay until via_segment_free(); or NULL. If others may read the segment but not write it, the
 * host seals the memfd when one of them maps it (F_SEAL_FUTURE_WRITE): existing mappings stay
 * writable, new ones are not. If that is impossible because of F_SEAL_SEAL, others never map it.
 *
 * via_segment_free() also unmaps memory of via_segment_new(). NULL is allowed.
 */
VIADUCT_API int via_segment_adopt(struct via_attach *attach, int memfd, size_t bytes, void *base,
                                  unsigned access,
                                  struct via_segment **ret_segment) VIADUCT_MUST_CHECK;
VIADUCT_API void via_segment_free(struct via_segment *segment);
VIADUCT_API void *via_segment_base(const struct via_segment *segment);
VIADUCT_API size_t via_segment_bytes(const struct via_segment *segment);

/* The handle by which other processes open the segment (via_remote_open()). It contains the key:
 * give it only to processes that may access the memory. */
VIADUCT_API uint64_t via_segment_handle(const struct via_segment *segment);

/* --- remote memory --------------------------------------------------------------------------- */

struct via_remote;

/*
 * Opens the first `bytes` bytes of segment `handle` of `host`. If the memory can be mapped, the
 * call blocks for the host's answer, and fails if the handle is wrong (-EACCES) or the segment is
 * smaller (-ERANGE); otherwise the first access fails. -EINVAL (no such host id, or 0 bytes),
 * -ENOMEM. When the owner ends or frees the segment, accesses fail with -ECONNRESET as soon as the
 * owner's host has noticed; if the segment was never mapped, with -EACCES, like those by a wrong
 * handle.
 *
 * close does not wait: pending puts continue. NULL is allowed.
 */
VIADUCT_API int via_remote_open(struct via_attach *attach, unsigned host, uint64_t handle,
                                size_t bytes, struct via_remote **ret_remote) VIADUCT_MUST_CHECK;
VIADUCT_API void via_remote_close(struct via_remote *remote);

/*
 * Called before the first access of a remote: from then on its puts, gets and updates use a direct
 * connection to its host, without this host's daemon, and a round trip takes a fraction of the
 * time. The host must be a neighbour over libfabric's TCP, by a link without encryption. (For puts
 * alone the library opens such a connection by itself: via_remote_put().) Remotes of an attachment
 * at one host share a connection. While the link is down, frames carry accesses.
 *
 * Blocks until the daemons have answered, normally for some round trips, and then for one second at
 * most to connect. 0 also if the remote has a connection. -EXDEV: no such connection is possible;
 * -EHOSTDOWN: no answer, as from a firewall that drops packets; -EBUSY, -ENOSPC: the user, or this
 * attachment, has its maximum of connections; -ENOMEM. After a failure frames carry all accesses.
 *
 * Accesses of one thread stay in order: those that are sent as frames (with VIADUCT_PUT_NOTIFY, and
 * of all try functions) wait until those on the connection have arrived. Messages do not wait: call
 * via_attach_quiet() before. When the connection ends with its host, accesses fail with
 * -ECONNRESET: puts since the last quiet may not have arrived, and none arrives afterwards.
 */
VIADUCT_API int via_remote_connect(struct via_remote *remote) VIADUCT_MUST_CHECK;

/*
 * The mapped segment, for direct access; read-only if others may only read the segment. NULL: no
 * direct access at present (the link is down, the host is no neighbour, or puts by frames are
 * pending, which direct stores could overtake). This can change at any time, so call it before each
 * burst of accesses; it normally costs a few loads. After a change of the way it may block for the
 * host's answer. Stores through the mapping are ordered like any stores; those before the link went
 * down have arrived.
 */
VIADUCT_API void *via_remote_direct(struct via_remote *remote);

/* Rings the bell of the segment's owner (via_attach_bell_fd()) after direct stores. If frames are
 * needed, results as of via_remote_put(). */
VIADUCT_API int via_remote_ring(struct via_remote *remote);

/* Flags of a put. NOTIFY: ring the owner's bell after the store. LAST_WORD: store the last aligned
 * 8 bytes last, with release order. LAZY: no thread will wait for the completion, so hosts do not
 * wake each other to report it; it may be reported up to a millisecond later. */
#define VIADUCT_PUT_NOTIFY 1u
#define VIADUCT_PUT_LAST_WORD 2u
#define VIADUCT_PUT_LAZY 4u

/*
 * Puts `bytes` bytes from src to offset off. The caller may change src after the return. Puts of
 * one thread to one host arrive in order. If a program puts for a while to a neighbour over
 * libfabric's TCP, the library opens a connection by itself and starts threads for it, unless the
 * environment has VIADUCT_DIRECT=asked or off. If the process ends, in whatever way, its host tries
 * for some seconds to deliver the puts whose calls have returned.
 *
 * Blocks while the pipe to the host is full. 0: the put has arrived or is pending. Errors of this
 * put, or of an earlier one of this remote, which is reported once: -ERANGE, -EACCES, -ECONNRESET,
 * -EHOSTUNREACH (no frame of the host has arrived for viaductd --give-up-ms), -ETIMEDOUT (frames
 * have arrived, but the put has made no progress for --wait-ms), -ENOTCONN, -ENOBUFS (see
 * via_message_receive()).
 */
VIADUCT_API int via_remote_put(struct via_remote *remote, uint64_t off, const void *src,
                               size_t bytes, unsigned flags);

/*
 * The same without a copy if frames are needed: the bytes lie at src_off of `segment`, of this
 * process, and must not change before via_attach_quiet() has returned, or via_remote_pending() is
 * 0.
 */
VIADUCT_API int via_remote_put_from(struct via_remote *remote, uint64_t off,
                                    struct via_segment *segment, uint64_t src_off, size_t bytes,
                                    unsigned flags);

/* Like via_remote_put(), but does not wait for room: -EAGAIN: the pipe is full, and nothing was
 * put; the host rings the bell when there is room. -EMSGSIZE: more than via_remote_try_max() bytes.
 */
VIADUCT_API int via_remote_try_put(struct via_remote *remote, uint64_t off, const void *src,
                                   size_t bytes, unsigned flags);
VIADUCT_API size_t via_remote_try_max(const struct via_remote *remote);

/* Like via_remote_put_from(), for any number of bytes, but does not wait for room: -EAGAIN. */
VIADUCT_API int via_remote_try_put_from(struct via_remote *remote, uint64_t off,
                                        struct via_segment *segment, uint64_t src_off, size_t bytes,
                                        unsigned flags);

/*
 * Like `blocks` calls of via_remote_put() for block_bytes bytes each: block i comes from src + i *
 * src_step, and goes to off + i * step. Steps are in bytes, and may be negative.
 */
VIADUCT_API int via_remote_put_strided(struct via_remote *remote, uint64_t off, int64_t step,
                                       const void *src, int64_t src_step, size_t block_bytes,
                                       size_t blocks) VIADUCT_MUST_CHECK;

/* Puts, then updates the 8-byte aligned word at signal_off with release order: sets it to value, or
 * adds value. Results as of via_remote_put(); -EINVAL: not aligned, or no such update. */
#define VIADUCT_SIGNAL_SET 0u
#define VIADUCT_SIGNAL_ADD 1u
VIADUCT_API int via_remote_put_signal(struct via_remote *remote, uint64_t off, const void *src,
                                      size_t bytes, uint64_t signal_off, uint64_t value,
                                      unsigned signal_op);

/* Gets `bytes` bytes from offset off; blocks until dst is filled. Errors of this get as of
 * via_remote_put(). */
VIADUCT_API int via_remote_get(struct via_remote *remote, uint64_t off, void *dst, size_t bytes);

/*
 * Starts a get: dst is filled when via_attach_quiet() has returned, and belongs to the library
 * until then. Blocks only while the pipe to the host is full, and handles answers meanwhile.
 * -ERANGE, -ENOTCONN, -ECONNRESET; via_attach_quiet() reports later failures.
 */
VIADUCT_API int via_remote_get_start(struct via_remote *remote, uint64_t off, void *dst,
                                     size_t bytes) VIADUCT_MUST_CHECK;

enum viaduct_atomic {
    VIADUCT_ATOMIC_ADD = 1,
    VIADUCT_ATOMIC_AND = 2,
    VIADUCT_ATOMIC_OR = 3,
    VIADUCT_ATOMIC_XOR = 4,
    VIADUCT_ATOMIC_SWAP = 5,
    VIADUCT_ATOMIC_COMPARE_SWAP = 6,
    VIADUCT_ATOMIC_FETCH = 7
};

/* Updates an aligned word of `width` (4 or 8) bytes atomically at its owner, with sequentially
 * consistent order. Blocks until the old value is in *ret_old, which may be NULL. compare: for
 * COMPARE_SWAP. Errors as of via_remote_put(); -EINVAL: not aligned, or no such operation. */
VIADUCT_API int via_remote_atomic(struct via_remote *remote, uint64_t off, unsigned width,
                                  enum viaduct_atomic operation, uint64_t operand, uint64_t compare,
                                  uint64_t *ret_old);

/*
 * Starts an update, in order with puts; the owner's word is updated when via_attach_quiet() has
 * returned. fetch: `width` bytes that contain the old value then, and belong to the library until
 * then; NULL: the old value is not returned (-EINVAL for COMPARE_SWAP and FETCH).
 */
VIADUCT_API int via_remote_atomic_start(struct via_remote *remote, uint64_t off, unsigned width,
                                        enum viaduct_atomic operation, uint64_t operand,
                                        uint64_t compare, void *fetch) VIADUCT_MUST_CHECK;

/* Number of puts and started updates of this remote that may not have arrived yet. Does not
 * block. */
VIADUCT_API unsigned via_remote_pending(struct via_remote *remote);

/* Blocks until all puts, started gets and updates, and messages of this attachment have ended. 0,
 * or the first failure since the last quiet; -ENOTCONN, -ENOBUFS (see via_message_receive()). */
VIADUCT_API int via_attach_quiet(struct via_attach *attach);

/* The first failure since the last quiet, as via_attach_quiet() will report it; 0: none so far.
 * Does not block. via_attach_poll() handles later results. */
VIADUCT_API int via_attach_failure(struct via_attach *attach);

/* --- messages, boards, barriers -------------------------------------------------------------- */

/* Claims endpoint number `endpoint` of this host for this attachment, until it closes the endpoint
 * or itself. -EADDRINUSE; -EACCES: only the owner of the host and root may use numbers from
 * 0xfffffe00 on, also as source_endpoint; -EINVAL: 0, or from 0xffffff00 on; -ENOSPC: the host, or
 * the user, has its maximum of endpoints; -ENOMEM. close: -ENOENT: not claimed here. */
VIADUCT_API int via_endpoint_open(struct via_attach *attach, uint32_t endpoint);
VIADUCT_API int via_endpoint_close(struct via_attach *attach, uint32_t endpoint);

/* Sends one message of up to via_message_bytes_max() bytes. Blocks while the pipe to the host is
 * full, not until the receiver gets the message. -EMSGSIZE; -EINVAL: no such host id. Later
 * failures (no such endpoint: -ENOENT) are reported by via_attach_quiet(). */
VIADUCT_API size_t via_message_bytes_max(const struct via_attach *attach);
VIADUCT_API int via_message_send(struct via_attach *attach, unsigned host, uint32_t endpoint,
                                 uint32_t source_endpoint, const void *data, size_t bytes);

/* Receives the next message for any endpoint of this attachment: copies up to max bytes, discards
 * the rest, and returns the number of bytes copied. Waits up to timeout_ms (0: not at all;
 * negative: without limit). ret_info may be NULL. -ETIMEDOUT, -EINTR, -ENOTCONN. The library keeps
 * messages until they are received, up to 64 MiB. Further ones stay in the pipe, and calls that
 * wait for a reply behind them fail with -ENOBUFS after 5 seconds. */
struct via_message_info {
    uint16_t source_host;
    uint32_t source_endpoint;
    uint32_t endpoint;
    uint32_t bytes; /* as sent */
};
VIADUCT_API int via_message_receive(struct via_attach *attach, void *buffer, size_t max,
                                    int timeout_ms, struct via_message_info *ret_info);

/*
 * A host's board has notes, by key, that a process on any host posts for another one. post replaces
 * a note of the same user and key, and blocks until the note is on the board of `host`: a process
 * that gets a later message finds the note. The host removes it after ttl_ms, or when its poster
 * detaches. -EDQUOT: the user has its maximum of notes there; -ENOSPC: the board is full;
 * -EHOSTUNREACH; -EAGAIN: this host has its maximum of requests under way; -EINVAL.
 *
 * take removes a note that a process of the same user has posted on the board of this process's own
 * host, copies up to max bytes of the value, and returns their number; -ENOENT: no such note. key:
 * 1 to VIADUCT_BOARD_KEY_MAX bytes; value: 0 to VIADUCT_BOARD_VALUE_MAX.
 */
#define VIADUCT_BOARD_KEY_MAX 64u
#define VIADUCT_BOARD_VALUE_MAX 512u
VIADUCT_API int via_board_post(struct via_attach *attach, unsigned host, const void *key,
                               size_t key_bytes, const void *value, size_t value_bytes,
                               unsigned ttl_ms);
VIADUCT_API int via_board_take(struct via_attach *attach, const void *key, size_t key_bytes,
                               void *ret_value, size_t max);

/*
 * Barrier among hosts: returns when one process of each host in `hosts` (ascending ids, with that
 * of the own host) has called it with this group number. All of them must have the same user id:
 * the groups of other users are separate. One process of a host per group at a time. -ETIMEDOUT
 * (after viaductd --wait-ms): a host can be reached, but no process of it has called; the barrier
 * has not taken place, and may be called again. -EHOSTUNREACH (after viaductd --give-up-ms),
 * -ECONNRESET: a host can not be reached, or has restarted; the barrier may have taken place for
 * others. -ENOSPC: this host waits in too many barriers of the first host in `hosts`; try again
 * later. -EINVAL, -ENOTCONN, -ENOBUFS.
 */
VIADUCT_API int via_barrier(struct via_attach *attach, uint32_t group, const uint16_t *hosts,
                            unsigned hosts_count);

#ifdef __cplusplus
}
#endif

#endif
