/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Shared by the files that set up connections over the fabric and those that move bytes over it. */
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
    struct via_attach *slot_attach; /* owner of the mailbox, which may be a parent's */
    uint64_t nonce;
    struct via_attach *attach;         /* the attachment that opened `remote` */
    struct via_segment *segment;       /* this end's segment */
    struct via_attach *segment_attach; /* attachment that made it; possibly a parent's */
    struct via_remote *remote;         /* the peer's segment; NULL: not known yet */
    uint64_t remote_handle;
    unsigned char *mirror;    /* of the peer's segment */
    struct via_segment *lent; /* handle of the mirror if the host may read it; NULL: it may not */
    struct via_attach *lent_to;
    bool counted; /* it counts as a connection that goes in frames */
    struct via_pipe_geometry geometry;
    size_t bytes;             /* of either segment */
    _Atomic uint32_t version; /* counts events that void old base addresses */
    uint32_t tx_version;
    uint32_t rx_version;
    unsigned char *tx_base; /* current target of posts: mirror or mapped */
    unsigned char *rx_base;
    /* Number of records put as frames, twice each; odd: a put is in progress. */
    _Atomic uint32_t records;
    _Atomic uint32_t records_there; /* `records` at the last check that found none under way */
    uint64_t pushed_credit;         /* words of the mirror as last put */
    uint64_t pushed_prompt;
    uint64_t pushed_want;
    uint64_t pushed_flags;
    uint32_t prompt_words;     /* consecutive credit words through slices */
    uint32_t prompt_words_min; /* number of those after which the peer may rely on them; 0 = the
                                  minimum */
    uint32_t answered;         /* side->rx_taken at the last put of a record */
    uint32_t
        answers_missed;    /* consecutive records that no answer followed at once, up to a limit */
    uint32_t answer_pause; /* number of records for whose answer it does not wait */
    unsigned full_pending; /* puts under way when the path was full, 0 = it was not */
    uint64_t way;          /* the path to the peer's host when the connection was made */
    uint64_t fin_ns; /* when the kernel's FIN was seen without the pipe's, while there was a path to
                        the peer */
    uint64_t fin_first_ns;       /* when it was seen first */
    uint64_t asked_ns;           /* when find_end() first asked how far the peer had read */
    bool follows;                /* it is counted as a connection that waits for the rest */
    uint8_t end;                 /* enum via_carrier_end, once it is known */
    struct via_client_word read; /* request: how far a dead peer had read */
    struct via_client_word sent; /* request: how much it had sent */
    bool all_is_there;           /* the peer has ended, and none of its puts is under way */
    _Atomic int error;           /* the connection is lost */
};

/* Can frames be put? A process that was forked later opens the peer's segment once more for
 * itself. */
bool via_fabric_is_put_possible(struct via_fabric *fabric);

/* For a process that was forked while puts of its parent were under way: a put of its own behind
 * them tells a sleeping thread when they are cancelled. */
void via_fabric_follow(struct via_fabric *fabric);

/* Puts a word of the mirror if it differs from *pushed, and updates *pushed. 0, or as
 * via_remote_try_put(). wait: waits up to a second for a full path. */
int via_fabric_push_word(struct via_fabric *fabric, size_t off, uint64_t *pushed, bool wait);

/*
 * The mirror: fabric_mirror.c. For connections that go in frames from the start, the mirror is
 * registered at the host as a segment without access for others: the host then takes the bodies of
 * records from it, and they are not copied into the host's command pipe first. They stay there
 * until the peer has released the record, which is after all puts of it have arrived.
 */
int via_fabric_mirror_new(struct via_fabric *fabric, struct via_attach *attach);
void via_fabric_mirror_free(struct via_fabric *fabric);
/* Releases the host's resources of a connection, at once or when its puts have ended; or, if other
 * processes still hold the connection, when they have closed it. In the last case the side stays
 * alive, and conn->side is NULL afterwards. */
void via_fabric_give_back(struct via_conn *conn);
/* The segment from which the host may read the mirror; NULL: copy the bytes. A forked process can
 * not use memory that its parent has lent. Once there are two processes neither lends: neither
 * knows which puts of the other are under way. */
struct via_segment *via_fabric_mirror_lent(const struct via_conn *conn);
/* The attachment is closed, or is a parent's. */
void via_fabric_mirrors_end(void);
void via_fabric_mirrors_forked(void);
/* The geometry that a new connection offers: longer rings where frames take long, for the first
 * connections of a process. */
struct via_pipe_geometry via_fabric_geometry(const struct via_fabric *fabric);

/* The connector does not need its slot of the mailbox any more. */
void via_fabric_slot_give(struct via_fabric *fabric);
/* The acceptor's last message in the slot: 0 and an offer, -EAGAIN (nothing), -ECANCELED
 * (withdrawn), -ESHUTDOWN (ended), -EPROTO. */
int via_fabric_read_offer(const struct via_fabric *fabric, struct via_fabric_offer *ret_offer);

/*
 * True, once, if puts were under way at the last via_fabric_before_sleep() of this thread. A word
 * "I sleep" goes as a frame if other frames had to arrive first or a cable was just cut. A peer
 * that stores its record directly does not see that word, and then neither end rings the other. So
 * a thread that sleeps with puts under way checks once more after some time; by then they have
 * arrived.
 */
bool via_fabric_take_unproven(void);

/* Changes the offer of this end, to one of these states. */
int via_fabric_put_offer(struct via_conn *conn, uint64_t ready);

/* This process's attachment, opened at first use; NULL: there is none. */
struct via_attach *via_fabric_attach(void);
/* The attachment if there is one already. */
struct via_attach *via_fabric_attached(void);

/* Mailboxes of other processes: the one of this note, NULL if it can not be opened; it stays open
 * until it is put back. */
struct via_remote *via_fabric_mailbox_get(struct via_attach *attach,
                                          const struct via_fabric_note *note);
void via_fabric_mailbox_put(struct via_remote *mailbox);

#endif
