/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_CARRIER_H
#define VIA_SOCKETS_CARRIER_H

#include "sockets/conn/conn.h"

/*
 * The carrier moves the bytes of a pipe, its credits and flags to the peer, and sets up the pipes
 * of two ends. Within one machine (carrier_local.c) both ends map the same memory, and wake each
 * other by bells. Between hosts (carrier_fabric.c, fabric.h) the peer stores into this end's
 * segment, or puts frames into it, which arrive late and may be lost with a host.
 *
 * The operations that each message needs are inline below: one comparison, and no function call for
 * the local carrier.
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
    VIA_CARRIER_END_RESET, /* as after RST: bytes were unread, or some can not arrive any more */
};

struct via_carrier {
    /*
     * Set up the pipes; called by the thread that has claimed the end (phase.h). find_offer is for
     * a connector in PENDING, take_offer for one in ANNOUNCED, make_offer for the acceptor. 0: the
     * side is attached; -EAGAIN: not yet; -EALREADY (find_offer only): the acceptor has connected;
     * else an enum via_reason why there will be no pipes.
     */
    int (*find_offer)(struct via_op *op);
    int (*take_offer)(struct via_op *op);
    int (*make_offer)(struct via_op *op);
    /* Tells the peer that the connector has pipes. */
    void (*say_taken)(struct via_conn *conn);
    /* For a claimed acceptor: has the connector taken the offer? */
    bool (*is_taken)(struct via_conn *conn);
    /* Tells the peer that the connector will not take its offer, if it makes one. flag: see
     * side.h. */
    void (*decline)(struct via_conn *conn, uint64_t flag);

    /*
     * Called with the tx token around the writing of one record: begin decides the path, end sends
     * the record. 0, or -EAGAIN if the path is full (then the record has not been written) or the
     * connection is lost. wait: waits up to a second for a full path. NULL for the local carrier,
     * as are all operations that are inline below.
     */
    void (*tx_begin)(struct via_conn *conn, struct via_carrier_undo *ret_undo);
    int (*tx_end)(struct via_conn *conn, const struct via_carrier_undo *undo, bool wait);
    /* tx_want: asks the peer for a ring when there is room. has_way: does a path that was full have
     * room again? */
    void (*tx_want)(struct via_conn *conn);
    bool (*has_way)(struct via_conn *conn);
    /* Called with the rx token before and after reading: credits use the same paths. */
    void (*rx_begin)(struct via_conn *conn);
    void (*rx_end)(struct via_conn *conn);

    /* Sends the flags word to the peer, and a ring, with the tx token. 0, or -EAGAIN without
     * wait. */
    int (*say)(struct via_conn *conn, uint64_t flags, bool wait);
    /* Called with the tx token before this direction is shut down in the kernel: writes FIN into
     * the pipe if this end uses the pipe, and between hosts always. 0; -EAGAIN without wait. */
    int (*fin)(struct via_conn *conn, int fd, uint8_t flags, bool wait);
    /* With the tx token: is nothing under way to the peer? */
    bool (*has_arrived)(struct via_conn *conn);
    bool (*is_cut_off)(const struct via_conn *conn);
    /* The last descriptor is about to be closed. */
    void (*close)(struct via_conn *conn, int fd);

    /* Has every process that held the other end closed it or died? Costs system calls: not for
     * every call. */
    bool (*is_over)(struct via_conn *conn, int fd);
    /* The kernel has reported the end, and the pipe has not. is_follow_possible: may records
     * follow? is_switch_allowed: may the record follow that announces the use of the pipe? Sleepers
     * check again. */
    bool (*is_follow_possible)(struct via_conn *conn);
    bool (*is_switch_allowed)(struct via_conn *conn);
    void (*stop_following)(struct via_conn *conn);
    enum via_carrier_end (*end_of)(struct via_conn *conn);
    /* Was a put cancelled? */
    bool (*is_given_up)(struct via_conn *conn);

    /* Before this end leaves: 0; 1: the peer has no pipes and will not get any; -errno. */
    int (*leave_begin)(struct via_conn *conn);
    /* With the tx token: copies all records for which the peer has not returned credit into this
     * end's memory. */
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

/* For carriers that set up pipes: enough calls were made, and bytes moved, without a sign of the
 * peer. */
bool via_conn_has_waited_enough(const struct via_conn *conn);

#endif
