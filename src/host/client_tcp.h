/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CLIENT_TCP_H
#define VIA_HOST_CLIENT_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"
#include "viaduct/viaduct.h"

/*
 * Direct connections: where two neighbours are joined by TCP, a process reaches the memory of a
 * process of the other host by a TCP connection of its own. The daemons set it up, and no thread of
 * theirs is on its path. docs/adr/0059-direct-connections.md has the reasons, docs/protocol.md
 * section 18 the format on the wire.
 *
 *   client_tcp.c        the end that puts and gets: sends requests, takes answers
 *   client_tcp_dial.c   how that end connects and closes
 *   client_tcp_serve.c  the end that owns the memory: applies requests
 *   client_tcp_thread.c its threads
 *   client_tcp_listen.c its address
 *
 * That end may be the owner's host, too, for all of its processes (host_direct.h): a remote gets a
 * connection to it by via_remote_connect().
 *
 * The owner offers: it gets a card, which it lays where only those find it that may reach its
 * segment anyway, in the segment itself. The other end reads the card by frames and dials. From
 * then on all operations of the remote that wait, and puts, go through the connection while a link
 * joins the two hosts; else by frames, when all that the connection has got has been applied. And
 * by the connection again when no frames are under way.
 *
 * A connection is reliable and in order, so nothing is sent twice. The end of the connection counts
 * as the end of the owner: later operations fail with -ECONNRESET.
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

/* Does the environment say VIADUCT_DIRECT=off? */
bool via_tcp_is_switched_off(void);
/* Is the host a neighbour by a link over TCP now, and between which addresses; or, for the own
 * host, at which is one? 0; -EXDEV: no, or direct connections are switched off
 * (VIADUCT_DIRECT=off). Asks the daemon. */
struct via_attach_tcp;
VIA_MUST_CHECK int via_tcp_ask(struct via_attach *attach, unsigned host,
                               struct via_attach_tcp *ret_where);
/* Listens for the processes of neighbours, and fills in the card. 0; -EXDEV: no link of this host
 * can have connections, or they are switched off (VIADUCT_DIRECT=off); or another negative errno.
 */
VIA_MUST_CHECK int via_tcp_offer(struct via_attach *attach, struct via_tcp_card *ret_card);
/* After via_tcp_offer(): the segment, which all that have its handle may read and write, is
 * reached by connections, too, until it is freed. 0, -ENOSPC. */
VIA_MUST_CHECK int via_tcp_serve(struct via_segment *segment);
/*
 * Before the first operation of the remote. Waits for the connection, a second at most. 0; -EXDEV
 * when there can be none, -ENOSPC when this process has too many, or why it has failed: then all
 * goes in frames. -EHOSTDOWN: nothing has answered (a firewall), and no process of that host is
 * dialled any more.
 */
VIA_MUST_CHECK int via_tcp_dial(struct via_remote *remote, const struct via_tcp_card *card);

/* A flag of via_remote_put(): via_attach_quiet() need not wait for this put if a connection carries
 * it.
 */
#define VIA_CLIENT_PUT_UNCOUNTED 0x40000000u

/* Sends held-back requests, takes answers, applies requests of others. Does not wait. */
void via_client_tcp_all_poll(struct via_attach *attach);

/* --- for the client library ------------------------------------------------------------------- */

struct via_client_tcp;

/*
 * How the remote is reached now. 0 and the connection; or NULL for another way, on which no put
 * overtakes those of the connection. Waits until the operations on the former way have ended.
 * -ECONNRESET when the owner has gone; -ENOTCONN, ...
 */
VIA_MUST_CHECK int via_client_tcp_way(struct via_remote *remote, struct via_client_tcp **ret_tcp);
/* Waits until the peer has applied all requests on the remote's connection, if it has one: the
 * caller is about to send in frames. */
VIA_MUST_CHECK int via_client_tcp_leave(struct via_remote *remote);

/* Of the remote's connection. They return when src may be changed; get when dst is filled. */
int via_client_tcp_put(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                       const void *src, size_t bytes, unsigned flags);
/* Behind the put an aligned word of the same segment is set to `value`, or added to. */
int via_client_tcp_put_signal(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                              const void *src, size_t bytes, uint64_t signal_off, uint64_t value,
                              unsigned signal_op);
int via_client_tcp_get(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                       void *dst, size_t bytes, bool waits);
/* ret_old: NULL and not waits: not wanted, or at `fetch` when a quiet is over. */
int via_client_tcp_atomic(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                          unsigned width, enum viaduct_atomic operation, uint64_t operand,
                          uint64_t compare, uint64_t *ret_old, void *fetch);

/* [attach locked] The remote goes. */
void via_client_tcp_release(struct via_remote *remote);

/* Until all that was counted has been applied, and all answers have come. */
VIA_MUST_CHECK int via_client_tcp_all_quiet(struct via_attach *attach);
/* The first failure of a connection, or 0. */
int via_client_tcp_all_failure(const struct via_attach *attach);
/* Sends held-back requests, and ends all connections of the attachment. */
void via_client_tcp_all_close(struct via_attach *attach);

/* [any thread] Sends held-back requests, as far as the sockets take it and no thread is at it.
 * False: something is left. */
bool via_client_tcp_all_flush(struct via_attach *attach);

/* client_tcp_serve.c: the functions that client_tcp.c calls. */
struct via_client_serve;
/* Listens at a numeric address; starts the thread. address NULL: it listens nowhere, and the thread
 * only sends what own connections hold back. */
VIA_MUST_CHECK int via_client_serve_open(struct via_attach *attach, const char *address,
                                         struct via_client_serve **ret_serve);
/* Callbacks of a host that serves the memory of its processes. The serving thread calls them. */
struct via_client_serve_calls {
    void *ctx;
    /* A connection shows this token: may it be used, and whose is it? */
    bool (*admit)(void *ctx, const uint8_t *token, uint32_t *ret_peer);
    /* A connection of this peer has ended: how many bytes of its requests were applied, and the
     * failure that no answer has reported. */
    void (*left)(void *ctx, uint32_t peer, uint64_t position, int refusal);
    bool (*is_unwanted)(void *ctx, uint32_t peer, uint64_t idle_ns);
    /* Before the first reach() of a turn, and after the last access to what it has found. */
    void (*turn)(void *ctx, bool begins);
    /* The memory, or NULL. need: VIADUCT_SEGMENT_*. */
    unsigned char *(*reach)(void *ctx, uint64_t handle, uint64_t off, uint64_t bytes,
                            unsigned need);
    bool (*is_crowded)(void *ctx); /* then the thread sleeps instead of polling */
    uint64_t spin_ns_max;          /* longest time that it polls before it sleeps */
};
/* The same for a host. calls: borrowed until close. */
VIA_MUST_CHECK int via_client_serve_open_host(const struct via_client_serve_calls *calls,
                                              const char *address,
                                              struct via_client_serve **ret_serve);
/* [any thread] Has the thread ask is_unwanted() for each connection. */
void via_client_serve_review(struct via_client_serve *serve);
const struct via_tcp_card *via_client_serve_card(const struct via_client_serve *serve);
/* Progress of the connections of others; returns how much was done. NULL is nothing. */
unsigned via_client_serve_poll(struct via_client_serve *serve);
/* Asks the library's thread to send the held-back requests of the connections soon. */
void via_client_serve_poke(struct via_client_serve *serve);
/* The segment goes: after this no request reaches it. */
void via_client_serve_drop(struct via_client_serve *serve, const struct via_segment *segment);
/* Ends the thread and the connections. own: it is this process's, and not a copy of a parent's. */
void via_client_serve_close(struct via_client_serve *serve, bool own);
/* Listens at a numeric address: the descriptor, kept, and the address and port in the card; or a
 * negative errno. */
VIA_MUST_CHECK int via_client_tcp_listen(const char *text, struct via_tcp_card *card);
/* A numeric address without a port, as a socket address with the card's port; and into the card. 0,
 * or -EXDEV: it is none, or has a scope. */
struct sockaddr_storage;
int via_client_tcp_address(const char *text, struct via_tcp_card *card,
                           struct sockaddr_storage *ret_address, unsigned *ret_bytes);
/* An atomic of this host's CPU. Returns the old value. */
uint64_t via_client_atomic_update(void *word, unsigned width, enum viaduct_atomic operation,
                                  uint64_t operand, uint64_t compare);

/* --- the wire: little-endian, as all of Viaduct's hosts are ---------------------------------- */

#define VIA_TCP_MAGIC UINT64_C(0x315254534149562e) /* ".VIASTR1" */
/* Requests and answers up to VIA_TCP_SMALL_BYTES lie in buffers whole; words in them are stored
 * whole.
 */
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
    VIA_TCP_FENCE = 4,  /* answered when all before it has been applied */
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

/* Answers come in the order of their requests. */
struct via_tcp_answer {
    int32_t status; /* 0, or a negative errno: of this request or of one before it that has no
                       answer. Then no bytes follow */
    uint32_t zero;
    uint64_t bytes; /* that follow */
};

#endif
