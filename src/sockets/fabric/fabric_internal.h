/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Internals of src/sockets/fabric: connections between hosts. */
#ifndef VIA_SOCKETS_FABRIC_INTERNAL_H
#define VIA_SOCKETS_FABRIC_INTERNAL_H

#include <stdatomic.h>

#include "host/client.h"
#include "sockets/fabric/fabric.h"
#include "sockets/meet/stream_meet.h"
#include "viaduct/viaduct.h"

struct via_fabric {
    unsigned host;                  /* of the peer */
    struct via_fabric_note note;    /* acceptor: the note from the board */
    int32_t slot;                   /* connector: slot of the mailbox, -1 = none */
    struct via_attach *slot_attach; /* attachment of the mailbox; possibly a parent's */
    uint64_t nonce;
    struct via_attach *attach;         /* the attachment that opened `remote` */
    struct via_segment *segment;       /* this end's segment */
    struct via_attach *segment_attach; /* attachment that made it; possibly a parent's */
    struct via_remote *remote;         /* the peer's segment; NULL: not known yet */
    uint64_t remote_handle;
    unsigned char *mirror;    /* of the peer's segment */
    struct via_segment *lent; /* the mirror as a segment that the daemon may read; NULL: none */
    struct via_attach *lent_to;
    bool counted; /* included in the count of connections whose records are frames */
    struct via_pipe_geometry geometry;
    size_t bytes;             /* of either segment */
    _Atomic uint32_t version; /* increased when tx_base and rx_base must be computed again */
    uint32_t tx_version;
    uint32_t rx_version;
    unsigned char *tx_base; /* where this end stores now: mirror or mapped segment */
    unsigned char *rx_base;
    /* Twice the number of records put as frames; odd: a put is in progress. */
    _Atomic uint32_t records;
    _Atomic uint32_t records_there; /* `records` when a check last found none under way */
    uint64_t pushed_credit;         /* words of the mirror, as last put */
    uint64_t pushed_prompt;
    uint64_t pushed_want;
    uint64_t pushed_flags;
    uint32_t prompt_words; /* number of consecutive credit words that were stored through slices */
    uint32_t prompt_words_min; /* how many of those are needed before the peer may rely on them; 0:
                                  the minimum */
    uint32_t answered;         /* side->rx_taken at the last put of a record */
    uint32_t answers_missed;   /* consecutive records whose answer came late, up to a limit */
    uint32_t answer_pause;     /* number of next records whose answer is not awaited */
    unsigned full_pending;     /* puts under way when the path was full; 0: it was not */
    uint64_t way;              /* the path to the peer's host when the connection began */
    uint64_t fin_ns; /* begin of the wait for the pipe's FIN; now, while the host is cut off */
    uint64_t fin_first_ns;       /* when the kernel's FIN was noticed */
    uint64_t request_ns;         /* when find_end() first requested how far the peer had read */
    bool follows;                /* included in the count of connections that wait for the rest */
    uint8_t end;                 /* enum via_carrier_end, once it is known */
    struct via_client_word read; /* request: how far a dead peer had read */
    struct via_client_word sent; /* request: how much a dead peer had sent */
    bool all_is_there;           /* the peer has ended, and all of its puts have arrived */
    _Atomic int error;           /* not 0: the connection is lost; the first error */
};

/* True if this process can put frames: it has opened the peer's segment. A process that was forked
 * later opens the segment once more for itself. */
bool via_fabric_is_put_possible(struct via_fabric *fabric);

/* For a process that was forked while puts of its parent were under way: makes a put of its own
 * behind them, so that a sleeping thread is woken when they are cancelled. */
void via_fabric_follow(struct via_fabric *fabric);

/* Puts a word of the mirror if it differs from *pushed, and updates *pushed. 0, or an error of
 * via_remote_try_put(). reader: NULL: the daemon always wakes the reader. wait: retries for up to a
 * second if the path is full. */
int via_fabric_push_word(struct via_fabric *fabric, size_t off, uint64_t *pushed,
                         const struct via_client_reader *reader, bool wait);

/*
 * The mirror: fabric_mirror.c. For connections whose records are frames from the start, the mirror
 * is registered at the daemon as a segment that no other process can access. The daemon takes the
 * bodies of records from it, so they need not be copied into the daemon's command pipe first. They
 * stay there until the peer has released the record; by then all puts of it have arrived.
 */
int via_fabric_mirror_new(struct via_fabric *fabric, struct via_attach *attach);
void via_fabric_mirror_free(struct via_fabric *fabric);
/* Releases the daemon's resources of a connection: at once; or when its puts have ended; or, if
 * other processes still hold the connection, when these have closed it. In the last case the side
 * stays alive, and conn->side is NULL afterwards. */
void via_fabric_give_back(struct via_conn *conn);
/* Returns the segment from which the daemon may read the mirror; NULL: copy the bytes. A forked
 * process can not use memory that its parent has lent. With two processes neither lends, because
 * neither can find out which puts of the other are under way. */
struct via_segment *via_fabric_mirror_lent(const struct via_conn *conn);
/* Called when the attachment is about to be closed, or is a parent's. */
void via_fabric_mirrors_end(void);
void via_fabric_mirrors_forked(void);
/* The geometry that a new connection offers: longer rings for frames, which take long, but only for
 * the first connections of a process. */
struct via_pipe_geometry via_fabric_geometry(const struct via_fabric *fabric);

/* Frees the connector's slot of the mailbox. */
void via_fabric_slot_give(struct via_fabric *fabric);
/* Reads the acceptor's last message in the slot: 0 and an offer, -EAGAIN (nothing yet), -ECANCELED
 * (withdrawn), -ESHUTDOWN (ended), -EPROTO. */
int via_fabric_read_offer(const struct via_fabric *fabric, struct via_fabric_offer *ret_offer);

/*
 * True, once, if puts were under way at the last via_fabric_before_sleep() of this thread. The word
 * by which a thread announces its sleep is sent as a frame if earlier frames have not arrived yet
 * or a cable was just cut. A peer that then stores its record directly has not got that word and
 * does not ring, so the thread would not wake. Therefore a thread that sleeps with puts under way
 * checks once more after some time; by then they have arrived.
 */
bool via_fabric_take_unproven(void);

/* Changes the state of this end's offer: VIA_FABRIC_READY, _WITHDRAWN or _ENDED. */
int via_fabric_put_offer(struct via_conn *conn, uint64_t ready);

/* This process's attachment, opened at first use; NULL: there is none. */
struct via_attach *via_fabric_attach(void);
/* The attachment if there is one already. */
struct via_attach *via_fabric_attached(void);

/* Returns the mailbox that the note names; NULL: it can not be opened. It stays open until
 * via_fabric_mailbox_put(). */
struct via_remote *via_fabric_mailbox_get(struct via_attach *attach,
                                          const struct via_fabric_note *note);
void via_fabric_mailbox_put(struct via_remote *mailbox);

#endif
