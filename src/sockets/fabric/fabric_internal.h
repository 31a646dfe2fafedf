/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What meeting over the fabric and carrying over it share. */
#ifndef VIA_SOCKETS_FABRIC_INTERNAL_H
#define VIA_SOCKETS_FABRIC_INTERNAL_H

#include <stdatomic.h>

#include "host/client.h"
#include "sockets/fabric/fabric.h"
#include "sockets/meet/stream_meet.h"
#include "viaduct/viaduct.h"

struct via_fabric {
    unsigned host;                  /* the peer's */
    struct via_fabric_note note;    /* acceptor: what was on the board */
    int32_t slot;                   /* connector: of the mailbox, -1 = none */
    struct via_attach *slot_attach; /* whose mailbox that is; a parent's, perhaps */
    uint64_t nonce;
    struct via_attach *attach;         /* by which the remote was made */
    struct via_segment *segment;       /* own */
    struct via_attach *segment_attach; /* by which that was made; a parent's, perhaps */
    struct via_remote *remote;         /* the peer's; NULL: not known yet */
    uint64_t remote_handle;
    unsigned char *mirror;    /* of the peer's segment */
    struct via_segment *lent; /* the mirror, where the host may read it; NULL: it may not */
    struct via_attach *lent_to;
    bool counted; /* as one that goes by frames */
    struct via_pipe_geometry geometry;
    size_t bytes;             /* of either segment */
    _Atomic uint32_t version; /* counts what makes old bases void */
    uint32_t tx_version;
    uint32_t rx_version;
    unsigned char *tx_base; /* where posts go now: mirror or mapped */
    unsigned char *rx_base;
    _Atomic uint32_t records;       /* counts those put as frames, twice each; odd: now */
    _Atomic uint32_t records_there; /* ... at the last look that found nothing under way */
    uint64_t pushed_credit;         /* words of the mirror as put last */
    uint64_t pushed_prompt;
    uint64_t pushed_want;
    uint64_t pushed_flags;
    uint32_t prompt_words;     /* credit words in a row that came through slices, up to ... */
    uint32_t prompt_words_min; /* ... so many, when the peer is told; 0 = the least */
    unsigned full_pending;     /* puts under way when the way was full, 0 = it was not */
    uint64_t way;              /* to the peer's host when the connection was made */
    uint64_t fin_ns;       /* when the kernel's FIN was seen without the pipe's, with a way to it */
    uint64_t fin_first_ns; /* ... at first */
    bool follows;          /* is counted as waiting for it */
    uint8_t end;           /* enum via_carrier_end, once it is known */
    struct via_client_word read; /* asked for: how far a peer that has died had read */
    struct via_client_word sent; /* ... and how much it had sent */
    bool all_is_there;           /* the peer has gone, and nothing of it is under way */
    _Atomic int error;           /* the connection is lost */
};

/* Can frames be put? A process forked later opens the peer's segment once more for itself. */
bool via_fabric_is_put_possible(struct via_fabric *fabric);

/* A process forked with puts of its parent under way: a sleeping thread learns of it when they are
 * given up, by a put of its own behind them. */
void via_fabric_follow(struct via_fabric *fabric);

/* Puts a word of the mirror if it is not *pushed, which it then becomes. 0, or as
 * via_remote_try_put(). wait: up to a second for a full way. */
int via_fabric_push_word(struct via_fabric *fabric, size_t off, uint64_t *pushed, bool wait);

/*
 * The mirror: fabric_mirror.c. Of connections that go by frames when they are made the host is told
 * of it, as of a segment that nobody else may touch: then it takes the bodies of records from
 * there, and they are not copied into its command pipe first. They stay there until the peer has
 * released the record, which is after all puts of it have arrived.
 */
int via_fabric_mirror_new(struct via_fabric *fabric, struct via_attach *attach);
void via_fabric_mirror_free(struct via_fabric *fabric);
/* What this process had of the host for a connection goes, at once or when its puts have ended; or,
 * if others hold it still, when they have closed it. Then conn->side is kept, and NULL here. */
void via_fabric_give_back(struct via_conn *conn);
/* For puts from the mirror; NULL: they are to be copied. A process that was forked has no part in
 * what its parent lends, and once there are two, neither lends: what one of them has under way the
 * other does not know. */
struct via_segment *via_fabric_mirror_lent(const struct via_conn *conn);
/* The attachment is closed, or a parent's. */
void via_fabric_mirrors_end(void);
void via_fabric_mirrors_forked(void);
/* What a new connection offers: longer rings where frames take long, for the first of a process. */
struct via_pipe_geometry via_fabric_geometry(const struct via_fabric *fabric);

/* The connector has no more use for its slot of the mailbox. */
void via_fabric_slot_give(struct via_fabric *fabric);
/* What the acceptor has put there last: 0 and an offer, -EAGAIN (nothing), -ECANCELED (withdrawn),
 * -ESHUTDOWN (ended), -EPROTO. */
int via_fabric_read_offer(const struct via_fabric *fabric, struct via_fabric_offer *ret_offer);

/*
 * Were there puts under way at the last via_fabric_before_sleep() of this thread? A word that says
 * "I sleep" as a frame, because other frames had to arrive first or a cable was just cut, is not
 * seen by a peer that stores its record directly: neither rings the other. So a thread that sleeps
 * with puts under way checks once more after some time; the second time they have arrived. Said
 * once.
 */
bool via_fabric_take_unproven(void);

/* An offer of this end's, with another word that says whether it holds. */
int via_fabric_put_offer(struct via_conn *conn, uint64_t ready);

/* This process's attachment, opened at first use; NULL: there is none. */
struct via_attach *via_fabric_attach(void);
/* The attachment if there is one already. */
struct via_attach *via_fabric_attached(void);

/* Other people's mailboxes: the one of this note, NULL when it can not be opened; it stays open
 * until it is put back. */
struct via_remote *via_fabric_mailbox_get(struct via_attach *attach,
                                          const struct via_fabric_note *note);
void via_fabric_mailbox_put(struct via_remote *mailbox);

#endif
