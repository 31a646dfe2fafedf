/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_CARRIER_H
#define VIA_SOCKETS_CARRIER_H

#include "sockets/conn/conn.h"

/*
 * The carrier takes the bytes of a pipe, its credits and flags to the peer, and sets up the pipes
 * of two ends. Within one machine (carrier_local.c) both ends map the same memory, and bells wake.
 * Between hosts (carrier_fabric.c, fabric.h) each end has a segment that its peer stores into or
 * puts frames into, which come late and may be lost with a host.
 *
 * The operations of every message are inline below: one comparison, and no call for the local
 * carrier.
 */

/* The overwritten contents of a record's place, so that the record can be taken back. */
struct via_carrier_undo {
    struct via_stream_tx tx; /* valid with `frames` */
    uint32_t sequence;
    bool frames;
};

/* How the stream ended, when the kernel has reported the end and the peer has not announced it. */
enum via_carrier_end {
    VIA_CARRIER_END_OPEN = 0, /* not known yet: report no end, sleepers check again */
    VIA_CARRIER_END_PLAIN,
    VIA_CARRIER_END_RESET, /* as by RST: bytes were unread, or some can not come any more */
};

struct via_carrier {
    /*
     * Getting to pipes, by the thread that has claimed the end (phase.h). find_offer: the
     * connector, PENDING; take_offer: ANNOUNCED; make_offer: the acceptor. 0: the side is attached;
     * -EAGAIN: not yet; -EALREADY: the acceptor has come, find_offer only; else an enum via_reason
     * why not.
     */
    int (*find_offer)(struct via_op *op);
    int (*take_offer)(struct via_op *op);
    int (*make_offer)(struct via_op *op);
    /* The connector has pipes, and tells its peer. */
    void (*say_taken)(struct via_conn *conn);
    /* The acceptor, claimed: has the offer been taken? */
    bool (*is_taken)(struct via_conn *conn);
    /* A connector will not take an offer, if there is one. flag: of side.h. */
    void (*decline)(struct via_conn *conn, uint64_t flag);

    /*
     * With the tx token, around writing one record: begin decides the path; end sends it. 0, or
     * -EAGAIN if the path is full (then the record has not been written), or the connection is
     * lost. wait: up to a second for a full path. NULL, like all inline operations below: local.
     */
    void (*tx_begin)(struct via_conn *conn, struct via_carrier_undo *ret_undo);
    int (*tx_end)(struct via_conn *conn, const struct via_carrier_undo *undo, bool wait);
    /* A ring is wanted when there is room. Does a path that was full have room again? */
    void (*tx_want)(struct via_conn *conn);
    bool (*has_way)(struct via_conn *conn);
    /* With the rx token, before reading and after: credits use the same paths. */
    void (*rx_begin)(struct via_conn *conn);
    void (*rx_end)(struct via_conn *conn);

    /* Sends the flags word to the peer, and a ring, with the tx token. 0, or -EAGAIN without
     * wait. */
    int (*say)(struct via_conn *conn, uint64_t flags, bool wait);
    /* With the tx token, before the kernel is told the end of this direction: writes FIN into the
     * pipe, if that is in use, and between hosts in any case. 0; -EAGAIN without wait. */
    int (*fin)(struct via_conn *conn, int fd, uint8_t flags, bool wait);
    /* With the tx token: is nothing under way to the peer? */
    bool (*has_arrived)(struct via_conn *conn);
    bool (*is_cut_off)(const struct via_conn *conn);
    /* The last descriptor is about to be closed. */
    void (*close)(struct via_conn *conn, int fd);

    /* Has every process that held the other end closed it or died? Not for every call. */
    bool (*is_over)(struct via_conn *conn, int fd);
    /* The kernel has reported the end and the pipe has not: may records follow? ... may the record
     * come that announces the use of the pipe? Sleepers check again. */
    bool (*is_follow_possible)(struct via_conn *conn);
    bool (*is_switch_allowed)(struct via_conn *conn);
    void (*follows_no_more)(struct via_conn *conn);
    enum via_carrier_end (*end_of)(struct via_conn *conn);
    /* Has a put been given up? */
    bool (*is_given_up)(struct via_conn *conn);

    /* Before this end leaves: 0; 1: the peer has no pipes and will not get any; -errno. */
    int (*leave_begin)(struct via_conn *conn);
    /* With the tx token: copies everything that the peer has not given back to this end's
     * memory. */
    int (*gather)(struct via_conn *conn);
};

extern const struct via_carrier via_carrier_fabric;

static inline void via_carrier_tx_begin(struct via_conn *conn, struct via_carrier_undo *ret_undo)
{
    if (via_unlikely(!via_conn_is_local(conn))) {
        conn->carrier->tx_begin(conn, ret_undo);
    }
}

static inline int via_carrier_tx_end(struct via_conn *conn, const struct via_carrier_undo *undo,
                                     bool wait)
{
    if (via_unlikely(!via_conn_is_local(conn))) {
        return conn->carrier->tx_end(conn, undo, wait);
    }
    via_conn_posted_record(conn);
    return 0;
}

static inline void via_carrier_rx_begin(struct via_conn *conn)
{
    if (via_unlikely(!via_conn_is_local(conn))) {
        conn->carrier->rx_begin(conn);
    }
}

static inline void via_carrier_rx_end(struct via_conn *conn)
{
    if (via_unlikely(!via_conn_is_local(conn))) {
        conn->carrier->rx_end(conn);
    }
}

static inline bool via_carrier_has_way(struct via_conn *conn)
{
    return via_likely(via_conn_is_local(conn)) || conn->carrier->has_way(conn);
}

static inline bool via_carrier_is_given_up(struct via_conn *conn)
{
    return via_unlikely(!via_conn_is_local(conn)) && conn->carrier->is_given_up(conn);
}

/* Setting up pipes, for the carriers: calls were made, and bytes moved, and the peer has not
 * come. */
bool via_conn_has_waited_enough(const struct via_conn *conn);

#endif
