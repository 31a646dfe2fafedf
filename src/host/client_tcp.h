/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CLIENT_TCP_H
#define VIA_HOST_CLIENT_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"
#include "viaduct/viaduct.h"

/*
 * Direct connections: if a link over TCP joins two neighbours, a process reaches the memory of a
 * process of the neighbour over its own TCP connection. The daemons set it up, and none of their
 * threads handles its data. docs/adr/0059-direct-connections.md has the reasons, docs/protocol.md
 * section 18 the format on the wire.
 *
 *   client_tcp.c        the connector, which puts and gets: sends requests, takes answers
 *   client_tcp_dial.c   the connector: connects and closes
 *   client_tcp_serve.c  the acceptor, which owns the memory: applies requests
 *   client_tcp_thread.c the acceptor's threads
 *   client_tcp_listen.c the acceptor's address
 *
 * The acceptor may also be the owner's host, for all of its processes (host_direct.h):
 * via_remote_connect() connects a remote to it.
 *
 * The owner makes a card and stores it into the segment itself, where only processes that may
 * access the segment can read it. The connector reads the card by frames and connects. From then on
 * the connection carries puts, and all operations of the remote that wait, while a link joins the
 * two hosts. Without a link frames carry them, after all requests on the connection were applied.
 * The connection carries them again when no frames are under way.
 *
 * A connection is reliable and in order, so nothing is sent twice. When the connection ends, the
 * owner is regarded as ended: later operations fail with -ECONNRESET.
 *
 * Progress: a thread of the library sleeps on the connections. A program that polls its own memory
 * for puts of other processes calls via_client_tcp_all_poll(), and meanwhile the library's thread
 * leaves the connections to it.
 */

struct via_attach;
struct via_remote;
struct via_segment;

#define VIA_TCP_TOKEN_BYTES 16u

struct via_tcp_card {
    uint64_t magic; /* 0: none */
    uint8_t token[VIA_TCP_TOKEN_BYTES];
    uint8_t address[16]; /* IPv4: the first four */
    uint16_t family;     /* 4 or 6 */
    uint16_t port;
    uint32_t scope; /* 0: link-local addresses are not offered */
};
_Static_assert(sizeof(struct via_tcp_card) == 48, "no gaps");

/* VIADUCT_DIRECT in the environment of this process. */
enum via_tcp_setting {
    VIA_TCP_AUTO,       /* "auto", empty or unset: the library connects to hosts by itself */
    VIA_TCP_ON_REQUEST, /* "asked": only via_remote_connect() connects to hosts */
    VIA_TCP_OFF,        /* "off": no direct connections */
};
/* 0; -EINVAL: the value is none of these. */
VIA_MUST_CHECK int via_tcp_setting_read(enum via_tcp_setting *ret_setting);
bool via_tcp_is_switched_off(void);
/* Requests from the daemon the addresses of a link over TCP to a neighbour; or, if `host` is this
 * host, for this host's address of such a link. 0; -EXDEV: there is none now, or direct connections
 * are switched off (VIADUCT_DIRECT=off). */
struct via_attach_tcp;
VIA_MUST_CHECK int via_tcp_request_address(struct via_attach *attach, unsigned host,
                                           struct via_attach_tcp *ret_where);
/* Listens for the processes of neighbours, and fills in the card. 0; -EXDEV: no link of this host
 * can have connections, or they are switched off (VIADUCT_DIRECT=off); or another negative errno.
 */
VIA_MUST_CHECK int via_tcp_offer(struct via_attach *attach, struct via_tcp_card *ret_card);
/* After via_tcp_offer(): connections reach the segment, too, until it is freed. Every process with
 * its handle may read and write it. 0, -ENOSPC. */
VIA_MUST_CHECK int via_tcp_serve(struct via_segment *segment);
/*
 * Connects; called before the first operation of the remote. Waits a second at most. 0; or frames
 * carry everything: -EXDEV (no direct connection is possible), -ENOSPC (this process has too many),
 * or another error. -EHOSTDOWN: no answer (a firewall); this process no longer connects to
 * processes of that host.
 */
VIA_MUST_CHECK int via_tcp_dial(struct via_remote *remote, const struct via_tcp_card *card);

/* A flag of via_remote_put(): via_attach_quiet() need not wait for this put if a connection carries
 * it.
 */
#define VIA_CLIENT_PUT_UNCOUNTED 0x40000000u

/* Sends delayed requests, takes answers, applies requests of other processes. Does not wait. */
void via_client_tcp_all_poll(struct via_attach *attach);

/* --- for the client library ------------------------------------------------------------------- */

struct via_client_tcp;

/*
 * The present path to the remote. 0 and the connection; or NULL for frames or a mapping, on which
 * no put overtakes puts of the connection. Waits until operations on the former path have ended.
 * -ECONNRESET if the owner has ended; -ENOTCONN, ...
 */
VIA_MUST_CHECK int via_client_tcp_way(struct via_remote *remote, struct via_client_tcp **ret_tcp);
/* Waits until the peer has applied all requests on the remote's connection, if it has one: the
 * caller is about to send in frames. */
VIA_MUST_CHECK int via_client_tcp_leave(struct via_remote *remote);

/* Operations on the remote's connection. They return when src may be changed; get returns when dst
 * is filled. */
int via_client_tcp_put(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                       const void *src, size_t bytes, unsigned flags);
/* After the put it sets an aligned word of the same segment to `value`, or adds `value` to it. */
int via_client_tcp_put_signal(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                              const void *src, size_t bytes, uint64_t signal_off, uint64_t value,
                              unsigned signal_op);
int via_client_tcp_get(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                       void *dst, size_t bytes, bool waits);
/* ret_old: the old value; the call waits for it. NULL: does not wait; the old value is at `fetch`,
 * unless that is NULL, after a quiet. */
int via_client_tcp_atomic(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                          unsigned width, enum viaduct_atomic operation, uint64_t operand,
                          uint64_t compare, uint64_t *ret_old, void *fetch);

/* [attach locked] Called before a remote with a connection is freed. */
void via_client_tcp_release(struct via_remote *remote);

/* Waits until the hosts have applied all counted requests, and all answers have arrived. */
VIA_MUST_CHECK int via_client_tcp_all_quiet(struct via_attach *attach);
/* The first failure of a connection, or 0. */
int via_client_tcp_all_failure(const struct via_attach *attach);
/* Sends delayed requests, and ends all connections of the attachment. */
void via_client_tcp_all_close(struct via_attach *attach);

/* [any thread] Sends delayed requests of connections whose sockets have room and that no other
 * thread uses. False: some requests are left. */
bool via_client_tcp_all_flush(struct via_attach *attach);

/* client_tcp_serve.c: the functions that client_tcp.c calls. */
struct via_client_serve;
/* Listens at a numeric address, and starts the thread. address NULL: it does not listen, and the
 * thread only sends delayed requests of this process's connections. */
VIA_MUST_CHECK int via_client_serve_open(struct via_attach *attach, const char *address,
                                         struct via_client_serve **ret_serve);
struct via_attach_position;
/* Callbacks of a host that serves the memory of its processes. The serving thread calls them. */
struct via_client_serve_calls {
    void *ctx;
    /* A connection has presented this token: is it valid? Stores the number of its peer. */
    bool (*admit)(void *ctx, const uint8_t *token, uint32_t *ret_peer);
    /* A connection of this peer has ended. */
    void (*left)(void *ctx, uint32_t peer, const struct via_attach_position *end);
    bool (*is_unwanted)(void *ctx, uint32_t peer, uint64_t idle_ns);
    /* Before the first reach() of a turn, and after the last access to memory from reach(). */
    void (*turn)(void *ctx, bool begins);
    /* The memory, or NULL. need: VIADUCT_SEGMENT_*. */
    unsigned char *(*reach)(void *ctx, uint64_t handle, uint64_t off, uint64_t bytes,
                            unsigned need);
    bool (*is_crowded)(void *ctx); /* true: the thread sleeps instead of polling */
    uint64_t spin_ns_max;          /* longest time that it polls before it sleeps */
};
/* The same for a host. calls: borrowed until close. */
VIA_MUST_CHECK int via_client_serve_open_host(const struct via_client_serve_calls *calls,
                                              const char *address,
                                              struct via_client_serve **ret_serve);
/* [any thread] Makes the thread call is_unwanted() for each connection. */
void via_client_serve_review(struct via_client_serve *serve);
const struct via_tcp_card *via_client_serve_card(const struct via_client_serve *serve);
/* Serves the connections of other processes; returns the number of things done. NULL is allowed. */
unsigned via_client_serve_poll(struct via_client_serve *serve);
/* Wakes the library's thread, which sends delayed requests of the connections soon. */
void via_client_serve_poke(struct via_client_serve *serve);
/* The segment is being freed: after this no request reaches it. */
void via_client_serve_drop(struct via_client_serve *serve, const struct via_segment *segment);
/* Ends the thread and the connections. own: this process made them; false: they are a forked copy
 * of the parent's. */
void via_client_serve_close(struct via_client_serve *serve, bool own);
/* Listens at a numeric address: the descriptor, kept, and the address and port in the card; or a
 * negative errno. */
VIA_MUST_CHECK int via_client_tcp_listen(const char *text, struct via_tcp_card *card);
/* Converts a numeric address without a port to a socket address with the card's port, and stores it
 * in the card. 0; -EXDEV: the text is not an address, or is an address with a scope. */
struct sockaddr_storage;
int via_client_tcp_address(const char *text, struct via_tcp_card *card,
                           struct sockaddr_storage *ret_address, unsigned *ret_bytes);
/* An atomic of this host's CPU. Returns the old value. */
uint64_t via_client_atomic_update(void *word, unsigned width, enum viaduct_atomic operation,
                                  uint64_t operand, uint64_t compare);

/* --- the wire: little-endian, because all hosts of Viaduct are ----------------------------------
 */

#define VIA_TCP_MAGIC UINT64_C(0x315254534149562e) /* ".VIASTR1" */
/* Buffers contain requests and answers up to VIA_TCP_SMALL_BYTES as a whole, so each aligned word
 * of them is stored at once. */
#define VIA_TCP_SMALL_BYTES 4096u

struct via_tcp_hello {
    uint64_t magic;
    uint8_t token[VIA_TCP_TOKEN_BYTES];
};

/* The answer to a hello. */
struct via_tcp_ready {
    uint64_t magic;
};

enum via_tcp_kind {
    VIA_TCP_PUT = 1,    /* `bytes` follow */
    VIA_TCP_GET = 2,    /* answered: with `bytes` */
    VIA_TCP_ATOMIC = 3, /* operands follow; answered with the old value if it FETCHES */
    VIA_TCP_FENCE = 4,  /* answered when all earlier requests have been applied */
};
#define VIA_TCP_FETCHES 1u

struct via_tcp_request {
    uint8_t kind;
    uint8_t width;
    uint8_t operation; /* enum viaduct_atomic */
    uint8_t flags;
    uint32_t zero;
    uint64_t handle;
    uint64_t off;
    uint64_t bytes;
};
_Static_assert(sizeof(struct via_tcp_request) == 32, "words in buffers stay aligned");

struct via_tcp_operands {
    uint64_t operand;
    uint64_t compare;
};

/* Answers arrive in the order of their requests. */
struct via_tcp_answer {
    int32_t status; /* 0, or a negative errno: of this request or of one before it that has no
                       answer. Then no bytes follow */
    uint32_t zero;
    uint64_t bytes; /* that follow */
};

#endif
