/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_CARRIER_H
#define VIA_SOCKETS_CARRIER_H

#include "sockets/conn/conn.h"

/*
 * A carrier moves the bytes of a pipe, its credits and flags to the peer, and sets up the pipes of
 * two ends. Within one machine (carrier_local.c) both ends map the same memory, and wake each other
 * by bells. Between hosts (carrier_fabric.c, fabric.h) each end stores into its peer's segment, or
 * sends frames to it, which arrive later and are lost if the peer's host stays unreachable.
 *
 * The operations that each message needs are inline below: for the local carrier they cost one
 * comparison, and no function call.
 */

/* The state of the writer before a record, so that the record can be taken back. */
struct via_carrier_undo {
    struct via_stream_tx tx; /* valid with `frames` */
    uint32_t sequence;
    bool frames;
};

/* How the stream ended, when the kernel has reported an end that the peer has not announced. */
enum via_carrier_end {
    /* not known yet: report no end, sleeping threads check again */
    VIA_CARRIER_END_OPEN = 0,
    VIA_CARRIER_END_PLAIN,
    VIA_CARRIER_END_RESET, /* as by RST: bytes were unread, or some can not arrive any more */
};

struct via_carrier {
    /*
     * These set up the pipes; called by the thread that has claimed the end (phase.h). find_offer
     * is for a connector in PENDING, take_offer for one in ANNOUNCED, make_offer for the acceptor.
     * 0: the side is attached; -EAGAIN: not yet; -EALREADY (find_offer only): the acceptor has
     * connected; else an enum via_reason why there will be no pipes.
     */
    int (*find_offer)(struct via_op *op);
    int (*take_offer)(struct via_op *op);
    int (*make_offer)(struct via_op *op);
    /* Announces to the peer that the connector has pipes. */
    void (*announce_taken)(struct via_conn *conn);
    /* For a claimed acceptor: true if the connector has taken the offer. */
    bool (*is_taken)(struct via_conn *conn);
    /* Announces to the peer that the connector will not take its offer, if it makes one. flag: see
     * side.h. */
    void (*decline)(struct via_conn *conn, uint64_t flag);

    /*
     * Called with the tx token before and after one record is written: begin chooses the path
     * (stores or frames), end sends the record. NULL for the local carrier, as are all operations
     * that are inline below.
     *
     * Results of tx_end:
     *   0        the record is sent.
     *   -EAGAIN  the path is full, or this process can not open the peer's segment yet. The
     *            record is taken back; the caller writes it again later. With `wait` a full
     *            path is first retried for up to a second.
     *   others   negative errno: the connection is lost, and later calls fail, too. A record
     *            for frames is taken back; one that was stored stays in the peer's memory.
     */
    void (*tx_begin)(struct via_conn *conn, struct via_carrier_undo *ret_undo);
    int (*tx_end)(struct via_conn *conn, const struct via_carrier_undo *undo, bool wait);
    /* tx_request_room requests a wake-up when the peer returns credit. has_path_room: true if a
     * path that was full has room again. */
    void (*tx_request_room)(struct via_conn *conn);
    bool (*has_path_room)(struct via_conn *conn);
    /* Called with the rx token before and after reading: credits take the same paths as records. */
    void (*rx_begin)(struct via_conn *conn);
    void (*rx_end)(struct via_conn *conn);

    /* With the tx token: sends the flags word to the peer, and wakes it at least for the flags of a
     * demotion (demote.h). 0, or -EAGAIN without wait. */
    int (*send_flags)(struct via_conn *conn, uint64_t flags, bool wait);
    /* Called with the tx token before this direction is shut down in the kernel: writes FIN into
     * the pipe if this end uses the pipe, and between hosts always. 0; -EAGAIN without wait. */
    int (*send_fin)(struct via_conn *conn, int fd, uint8_t flags, bool wait);
    /* With the tx token: true if nothing is under way to the peer. */
    bool (*has_arrived)(struct via_conn *conn);
    bool (*is_cut_off)(const struct via_conn *conn);
    /* Called before the last descriptor is closed. */
    void (*announce_close)(struct via_conn *conn, int fd);

    /* True if every process that held the other end has closed it or died. Makes system calls, so
     * it is not for every call of the program. */
    bool (*is_over)(struct via_conn *conn, int fd);
    /* Called when the kernel has reported the end, and the pipe has no FIN. is_follow_possible:
     * records may still follow. is_switch_allowed: the record that announces the use of the pipe
     * may still follow. If true, sleeping threads check again. */
    bool (*is_follow_possible)(struct via_conn *conn);
    bool (*is_switch_allowed)(struct via_conn *conn);
    void (*stop_following)(struct via_conn *conn);
    enum via_carrier_end (*end_of)(struct via_conn *conn);
    /* True if bytes could not be delivered: via_fabric_is_given_up(). */
    bool (*is_given_up)(struct via_conn *conn);

    /* Called before this end leaves the pipes. 0; 1: the peer has no pipes and will not get any; or
     * a negative errno. */
    int (*leave_begin)(struct via_conn *conn);
    /* With the tx token: copies all records for which the peer has not returned credit into this
     * end's memory. 0 or a negative errno. */
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

static inline bool via_carrier_has_path_room(struct via_conn *conn)
{
    return via_likely(via_conn_is_local(conn)) || conn->carrier->has_path_room(conn);
}

static inline bool via_carrier_is_given_up(struct via_conn *conn)
{
    return via_unlikely(!via_conn_is_local(conn)) && conn->carrier->is_given_up(conn);
}

/* For carriers that set up pipes: true after enough calls, and bytes, without a sign of the
 * peer. */
bool via_conn_has_waited_enough(const struct via_conn *conn);

#endif
