/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIADUCT_VIADUCT_H
#define VIADUCT_VIADUCT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Viaduct's client interface: what a process needs to use the fabric of the host it runs on.
 *
 * A process attaches to its host (the viaductd of that host), registers segments, opens segments of
 * other processes on any host, and puts, gets and updates them. Where the peer's memory can be
 * reached (same host, or a neighbour behind a coherent window) put and get are stores and loads of
 * the calling thread; elsewhere they travel as frames. Both are the same calls.
 *
 * Threads: every function may be called from any thread. Fork: a child must not use its parent's
 * attachment, but for closing it; it may open its own. Errors: 0 or a positive count, or a negative
 * errno; the text of the last error of the calling thread is via_error_text().
 */

#define VIADUCT_API __attribute__((visibility("default")))
#define VIADUCT_MUST_CHECK __attribute__((warn_unused_result))

/* Text of the last error in this thread: object, attempt and cause. Never NULL; valid until the
 * next call of this library in the thread. */
VIADUCT_API const char *via_error_text(void);

/* --- attachment ------------------------------------------------------------------------------ */

struct via_attach;

/*
 * size: sizeof(struct via_attach_options) as compiled, so that the struct may grow.
 * rundir: directory of the fabric's sockets; NULL = $VIADUCT_RUNDIR, else the default fabric's.
 * host: id of the host to attach to; -1 = $VIADUCT_HOST.
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
 * Attaches; blocks for a few milliseconds. options may be NULL. -ENOENT (no such host is up),
 * -ECONNREFUSED (stale socket: the host has died), -EACCES (this user may not), -EPROTO (other
 * protocol version), -EINVAL (no host is named, or the environment is invalid), -EMFILE, -ENOMEM.
 * Everything made through the attachment is void after close; close waits until accepted puts are
 * handed to the host, at most one second.
 */
VIADUCT_API int via_attach_open(const struct via_attach_options *options,
                                struct via_attach **ret_attach) VIADUCT_MUST_CHECK;
VIADUCT_API void via_attach_close(struct via_attach *attach);

VIADUCT_API unsigned via_attach_host(const struct via_attach *attach);

/* Ids of all hosts that can be reached now, ascending, mine among them; the count (may exceed max).
 */
VIADUCT_API int via_attach_hosts(struct via_attach *attach, uint16_t *ret_hosts, unsigned max);

/* Hops to a host: 0 = mine, 1 = neighbour, n; -EHOSTUNREACH. */
VIADUCT_API int via_attach_hops(struct via_attach *attach, unsigned host);

/*
 * A file descriptor (an eventfd, owned by the attachment) that is signalled whenever the host has
 * something for this process: a completion, a message, a NOTIFY put into one of its segments, a
 * change of the way to a host that it has asked about (via_attach_hops(), via_attach_hosts(),
 * via_remote_open(), messages to it). It is a hint. Watch it with EPOLLIN | EPOLLOUT | EPOLLET:
 * each ring is an edge, and there is one at the beginning. Do not read or write it: it is never
 * empty, so that no holder can silence it. Before sleeping on it, call via_attach_poll(): what
 * comes after a poll that brought nothing rings.
 */
VIADUCT_API int via_attach_bell_fd(const struct via_attach *attach);

/* Takes in completions and link changes without blocking; the other calls do so themselves. Returns
 * how much was taken in, -ENOTCONN when the host has died. */
VIADUCT_API int via_attach_poll(struct via_attach *attach);

/* --- segments -------------------------------------------------------------------------------- */

#define VIADUCT_SEGMENT_READ 1u
#define VIADUCT_SEGMENT_WRITE 2u
#define VIADUCT_SEGMENT_LINGER 4u

struct via_segment;

/*
 * Registers `bytes` (rounded up to pages) of fresh zeroed shared memory, mapped in this process.
 * access: VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, what others may do; 0 for a source of own
 * puts. Other processes never map a segment that they may not read: frames carry puts. With
 * VIADUCT_SEGMENT_LINGER besides, gets by frames still find it for some seconds after the process
 * has ended without freeing it, when puts are refused already: what was in it last can be read by
 * the caller that learns of the end. -ENOMEM, -ENOSPC (the host's table is full), -EDQUOT (the user
 * has as many segments or as much memory as it may have on this host), -EINVAL, -ENOTCONN.
 */
VIADUCT_API int via_segment_new(struct via_attach *attach, size_t bytes, unsigned access,
                                struct via_segment **ret_segment) VIADUCT_MUST_CHECK;

/*
 * The same for a memfd of the caller's, sealed against shrinking (F_SEAL_SHRINK; -EPERM otherwise).
 * The fd is duplicated; base is where the caller has it mapped, and may be NULL. If others
 * may read it and not write it, the host seals it when one of them maps it (F_SEAL_FUTURE_WRITE):
 * existing mappings can still be written, new ones can not. With F_SEAL_SEAL it is never mapped by
 * others.
 */
VIADUCT_API int via_segment_adopt(struct via_attach *attach, int memfd, size_t bytes, void *base,
                                  unsigned access,
                                  struct via_segment **ret_segment) VIADUCT_MUST_CHECK;
VIADUCT_API void via_segment_free(struct via_segment *segment);
VIADUCT_API void *via_segment_base(const struct via_segment *segment);
VIADUCT_API size_t via_segment_bytes(const struct via_segment *segment);

/* The handle others need, with the host id, to open the segment. It holds the key: give it only to
 * those who may access the memory. */
VIADUCT_API uint64_t via_segment_handle(const struct via_segment *segment);

/* --- remote memory --------------------------------------------------------------------------- */

struct via_remote;

/*
 * Opens segment `handle` of `host`. A wrong handle is found out here when the memory can be mapped
 * (-EACCES), else by the first access. Blocks for a round trip to the host at most. When the owner
 * dies or frees it, accesses fail with -ECONNRESET as soon as its host has noticed; with -EACCES
 * when it was never mapped, because its handle is then one of many wrong ones.
 */
VIADUCT_API int via_remote_open(struct via_attach *attach, unsigned host, uint64_t handle,
                                size_t bytes, struct via_remote **ret_remote) VIADUCT_MUST_CHECK;
VIADUCT_API void via_remote_close(struct via_remote *remote);

/*
 * Before the first access of a remote: from now on its puts, gets and updates use a connection to
 * its host (which the library opens by itself for puts alone), where that is a neighbour over
 * libfabric's TCP and the link is not encrypted. Remotes of an attachment at one host share a
 * connection. The daemon of this process is not on the way, so a round trip takes a fraction of the
 * time. While the link is down, frames carry accesses. Blocks for some round trips, one second at
 * most. 0. -EXDEV: such a connection cannot be; -EHOSTDOWN: a firewall is in between; -EBUSY,
 * -ENOSPC: there are as many connections as there may be; -ENOMEM; -ENOTCONN. After a failure
 * frames carry everything, as without this call.
 *
 * Accesses of one thread stay in order: those sent as frames (VIADUCT_PUT_NOTIFY, all that is
 * called try) wait until those by the connection have arrived. Messages do not: call
 * via_attach_quiet() before. When the connection ends, because the host has, accesses fail with
 * -ECONNRESET: some of what was put since the last quiet may not have arrived, and nothing arrives
 * afterwards.
 */
VIADUCT_API int via_remote_connect(struct via_remote *remote) VIADUCT_MUST_CHECK;

/*
 * The segment mapped for direct access, or NULL when it can not be reached so right now (the link
 * is down, not a neighbour, or puts by frames are still under way: then direct stores could
 * overtake them). The answer can change at any time: ask before each burst of accesses; it is a few
 * loads. Stores through it are ordered like any stores; a store done before a link went down has
 * arrived.
 */
VIADUCT_API void *via_remote_direct(struct via_remote *remote);

/* Rings the owner's bell (see via_attach_bell_fd) after direct stores. */
VIADUCT_API int via_remote_ring(struct via_remote *remote);

/* Flags of a put: ring the owner's bell after the store; store the last aligned 8 bytes last, with
 * release order; no thread will wait for its completion, so hosts do not wake each other to report
 * it (via_attach_quiet() and via_remote_pending() may have to wait a millisecond for it). */
#define VIADUCT_PUT_NOTIFY 1u
#define VIADUCT_PUT_LAST_WORD 2u
#define VIADUCT_PUT_LAZY 4u

/*
 * Puts `bytes` from src to offset off. On return src may be changed. Puts of one thread to one host
 * arrive in order. When a program puts for a while to a neighbour over libfabric's TCP, the library
 * opens a connection by itself, and starts threads for it, unless the environment has
 * VIADUCT_DIRECT=asked or off. If the process ends, in whatever way, its host tries for some
 * seconds to deliver the puts whose calls have returned.
 * -EAGAIN never: blocks while the way is full. -ERANGE, -EACCES, -ECONNRESET, -EHOSTUNREACH (no
 * frame of the host came for viaductd --give-up-ms), -ETIMEDOUT (frames came, but the put made no
 * progress for --wait-ms), -ENOTCONN: this or an earlier put failed; reported once.
 */
VIADUCT_API int via_remote_put(struct via_remote *remote, uint64_t off, const void *src,
                               size_t bytes, unsigned flags);

/*
 * The same without copying when frames are needed: src lies in `segment` of this process at src_off
 * and must not change until via_attach_quiet() or until via_remote_pending() is 0.
 */
VIADUCT_API int via_remote_put_from(struct via_remote *remote, uint64_t off,
                                    struct via_segment *segment, uint64_t src_off, size_t bytes,
                                    unsigned flags);

/* Like via_remote_put but never blocks: -EAGAIN when the way is full, nothing was put. bytes must
 * be at most via_remote_try_max(). */
VIADUCT_API int via_remote_try_put(struct via_remote *remote, uint64_t off, const void *src,
                                   size_t bytes, unsigned flags);
VIADUCT_API size_t via_remote_try_max(const struct via_remote *remote);

/* Both: like via_remote_put_from, for any number of bytes, but never blocks. */
VIADUCT_API int via_remote_try_put_from(struct via_remote *remote, uint64_t off,
                                        struct via_segment *segment, uint64_t src_off, size_t bytes,
                                        unsigned flags);

/*
 * Puts `blocks` blocks of block_bytes: from src on, src_step bytes from one to the next, to off on,
 * step bytes from one to the next. Like `blocks` calls of via_remote_put, one after another.
 */
VIADUCT_API int via_remote_put_strided(struct via_remote *remote, uint64_t off, int64_t step,
                                       const void *src, int64_t src_step, size_t block_bytes,
                                       size_t blocks) VIADUCT_MUST_CHECK;

/* Puts, then updates the 8-byte aligned word at signal_off: sets it to value, or adds it. */
#define VIADUCT_SIGNAL_SET 0u
#define VIADUCT_SIGNAL_ADD 1u
VIADUCT_API int via_remote_put_signal(struct via_remote *remote, uint64_t off, const void *src,
                                      size_t bytes, uint64_t signal_off, uint64_t value,
                                      unsigned signal_op);

/* Gets; blocks until the data is there. */
VIADUCT_API int via_remote_get(struct via_remote *remote, uint64_t off, void *dst, size_t bytes);

/*
 * Starts a get: dst is filled when via_attach_quiet() has returned, and is the library's until
 * then. Blocks only while the way is full, and takes in answers meanwhile. -ERANGE, -ENOTCONN, the
 * segment's loss; what fails later is reported by via_attach_quiet().
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

/* Atomic update of a 4- or 8-byte aligned word (width 4 or 8) at its owner; blocks for the old
 * value. */
VIADUCT_API int via_remote_atomic(struct via_remote *remote, uint64_t off, unsigned width,
                                  enum viaduct_atomic operation, uint64_t operand, uint64_t compare,
                                  uint64_t *ret_old);

/*
 * Starts an update: like a put, in order with puts, and done at the owner by the return of
 * via_attach_quiet(). fetch: `width` bytes that have the old value then, and are the library's
 * until then; NULL: do not return it, which compare-and-swap and fetch refuse (-EINVAL).
 */
VIADUCT_API int via_remote_atomic_start(struct via_remote *remote, uint64_t off, unsigned width,
                                        enum viaduct_atomic operation, uint64_t operand,
                                        uint64_t compare, void *fetch) VIADUCT_MUST_CHECK;

/* Puts to this remote not known to have arrived (0 when it is direct). */
VIADUCT_API unsigned via_remote_pending(struct via_remote *remote);

/* Blocks until all puts of this attachment have arrived. 0, or the first failure since the last
 * quiet. */
VIADUCT_API int via_attach_quiet(struct via_attach *attach);

/* The first failure since the last quiet that is known by now, as via_attach_quiet() will report
 * it: 0, or a negative errno with its text. Does not block; via_attach_poll() takes in what is new.
 */
VIADUCT_API int via_attach_failure(struct via_attach *attach);

/* --- messages, boards, barriers -------------------------------------------------------------- */

/* Claims endpoint number `endpoint` (not 0) of this host for this attachment. -EADDRINUSE; -EACCES:
 * numbers from 0xfffffe00 on are for the owner of the host and root, as are messages in their name.
 */
VIADUCT_API int via_endpoint_open(struct via_attach *attach, uint32_t endpoint);
VIADUCT_API int via_endpoint_close(struct via_attach *attach, uint32_t endpoint);

/* Sends one message of up to via_message_bytes_max(); blocks while the way is full, not until it is
 * taken. Failures (no such endpoint: -ENOENT) are reported by via_attach_quiet. */
VIADUCT_API size_t via_message_bytes_max(const struct via_attach *attach);
VIADUCT_API int via_message_send(struct via_attach *attach, unsigned host, uint32_t endpoint,
                                 uint32_t source_endpoint, const void *data, size_t bytes);

/* Receives the next message for any endpoint of this attachment. Waits up to timeout_ms (-1:
 * forever). Its length (cut to max when longer), -ETIMEDOUT, -EINTR, -ENOTCONN. Messages are kept
 * until they are received; when 64 MiB of them wait, more are not taken, and calls that wait for
 * something that comes behind them fail with -ENOBUFS after 5 seconds. */
struct via_message_info {
    uint16_t source_host;
    uint32_t source_endpoint;
    uint32_t endpoint;
    uint32_t bytes; /* as sent */
};
VIADUCT_API int via_message_receive(struct via_attach *attach, void *buffer, size_t max,
                                    int timeout_ms, struct via_message_info *ret_info);

/*
 * A host's board: small notes by key that one process leaves for another, on any host. post blocks
 * until the note hangs on the board of `host` (so what follows on other ways finds it); it replaces
 * a note of the same user and key and is taken down after ttl_ms or when its poster detaches.
 * -EDQUOT: the user has as many notes there as it may have. take removes and returns a note from
 * the board of this process's own host, which a process of the same user has posted: its length, or
 * -ENOENT at once. key: 1..VIADUCT_BOARD_KEY_MAX bytes; value: 0..VIADUCT_BOARD_VALUE_MAX.
 */
#define VIADUCT_BOARD_KEY_MAX 64u
#define VIADUCT_BOARD_VALUE_MAX 512u
VIADUCT_API int via_board_post(struct via_attach *attach, unsigned host, const void *key,
                               size_t key_bytes, const void *value, size_t value_bytes,
                               unsigned ttl_ms);
VIADUCT_API int via_board_take(struct via_attach *attach, const void *key, size_t key_bytes,
                               void *ret_value, size_t max);

/*
 * Barrier among hosts: returns when one process of each host in `hosts` (ascending ids, mine among
 * them) has called it with this group number; all of them are of one user, by its id. Numbers of
 * other users are other groups. One process of a host per group at a time. -ETIMEDOUT
 * (viaductd --wait-ms): a host can be reached, but none of its processes calls it; the barrier has
 * not taken place, and may be called again. -EHOSTUNREACH (viaductd --give-up-ms), -ECONNRESET: a
 * host cannot be reached, or has restarted; it may have taken place for others. -ENOSPC: this host
 * waits in too many barriers of the first host's; try again later. -EINVAL, -ENOTCONN, -ENOBUFS.
 */
VIADUCT_API int via_barrier(struct via_attach *attach, uint32_t group, const uint16_t *hosts,
                            unsigned hosts_count);

#ifdef __cplusplus
}
#endif

#endif
