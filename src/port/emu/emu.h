/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The emulated port: an NTB link between two processes of one machine (or two threads of one).
 *
 * Side 0 listens on a UNIX socket, the cable; side 1 connects to it, again and again until side 0
 * is there. Either may start first, be killed, and come back. Over the cable both pass memfds: the
 * inbox, the bell page, and, from side 0, the bridge with its scratchpads, doorbells and link
 * state. From then on put, ring and scratchpads are stores and loads; the cable only notices that
 * the other end has died.
 *
 * There are no threads inside. The control thread watches via_emu_port_fd() and calls
 * via_emu_port_service(); all other functions here are the control thread's as well, except
 * via_bell_ring(). The calls of core/port.h keep their own rule: transfer threads may be in the
 * middle of any of them while the control thread takes the link up or down.
 *
 * A store to a link that is down vanishes; a load from the window then gives all-ones, but for
 * places the loading process itself has stored to since it went down. When the other end cuts,
 * body, commit, ring and scratchpads stop at once; direct stores go on into an inbox whose owner
 * knows the link to be down until this end's service has run, and the link does not come up before
 * that.
 */
#ifndef VIA_PORT_EMU_EMU_H
#define VIA_PORT_EMU_EMU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/types.h"
#include "core/port.h"
#include "port/bell.h"
#include "port/slice.h"

/*
 * The bell page of a host: a struct via_bell per transfer thread; all ports of the host ring the
 * same page. A sleeper clears the events of its ports after it loaded the count of its line: a
 * doorbell that is still pending does not change the count again.
 */
#define VIA_EMU_BELL_LINES_MAX VIA_BELL_LINES_MAX

/* The line that doorbell `bit` of a port wakes at a host with `lines` lines. */
static inline unsigned via_emu_bell_line(unsigned bit, unsigned lines)
{
    return bit < VIA_PORT_DATA_DOORBELLS ? bit % lines : 0;
}

struct via_emu_like; /* like.h */

#define VIA_EMU_MESSAGE_BYTES_MAX 4096u
#define VIA_EMU_MESSAGE_FDS_MAX 8u
#define VIA_EMU_INBOX_BYTES_MAX (UINT64_C(1) << 36)
#define VIA_EMU_DMA_DEPTH_MAX 64u

/*
 * A message of the other end. fds belong to the port and are closed after the call; to keep one,
 * put -1 in its place. msg is a private copy, 8-byte aligned, and hostile. Must not close the port;
 * may send requests.
 */
typedef void via_emu_on_message(void *ctx, const void *msg, size_t len, int *fds, unsigned nfds);

struct via_emu_options {
    const char *path;      /* of the socket, the same at both ends. "DIR/link-1-2-0.sock" is called
                              "link-1-2-0" in texts */
    unsigned side;         /* 0 listens, 1 connects */
    uint16_t host;         /* my id, told to the other end */
    uint64_t inbox_bytes;  /* multiple of the page size */
    uint64_t window_bytes; /* how much of the other's inbox to reach; 0 = as much as inbox_bytes,
                              or what the class has. Offsets beyond the other's inbox behave
                              like a link that is down */
    const struct via_emu_like *like; /* class of links; NULL: plain shared memory. Both ends have
                                        the same. Where windows have a size, inbox_bytes is not
                                        asked for: the inbox is as large as the window */
    uint64_t delay_ns;   /* a flushed write of such a class is so late at most; 0 = the class's */
    uint64_t seed;       /* of what chance decides in such a class */
    int bell_fd;         /* bell page of my host: a memfd sealed against shrinking, duplicated.
                            -1: no thread sleeps on this port */
    unsigned bell_lines; /* 1..VIA_EMU_BELL_LINES_MAX; 0 with bell_fd -1 */
    bool direct;         /* port->window can be stored to. Otherwise it is NULL and the port says
                            it is not coherent: then core does all that real hardware needs */
    unsigned dma_depth;  /* how many copies the port's engine takes, 0..VIA_EMU_DMA_DEPTH_MAX;
                            0: no engine. It copies when it is asked what has ended */
    bool slices;         /* the rest of a window with a size, behind inbox_bytes, is slices, where
                            the class has them. Then inbox_bytes is asked for, and window_bytes of
                            the port are those of the inbox */
    uint64_t inbox_bytes_min; /* with slices: the least size of the inbox, if the window has it */
    mode_t mode;              /* of the socket file; 0 = 0600. Other users than mine and root are
                                 refused nevertheless */
    via_emu_on_message *on_message; /* NULL: messages are dropped and counted */
    void *ctx;
};

/*
 * Opens an end; the link comes up by via_emu_port_service(). -EADDRINUSE: a living process listens
 * on the path (a socket that a dead one left behind is replaced). -EINVAL, -ENAMETOOLONG, -ENOMEM,
 * -EMFILE, -EPERM (bell_fd is not
 * sealed), and what bind() says. The directory is locked with flock() while the socket is made.
 * Close with port->ops->close(port).
 */
VIA_MUST_CHECK int via_emu_port_open(const struct via_emu_options *options,
                                     struct via_port **ret_port, struct via_error *err);

/* Readable when via_emu_port_service() has something to do. Owned by the port. */
int via_emu_port_fd(const struct via_port *port);

/*
 * Accepts, connects, shakes hands, takes messages, notices death: a bounded turn that does not
 * block. *ret_deadline_ns: when to call again at the latest. 1 when the link went up or down (the
 * edges wait in events()), else 0. A fault of the link is a text in the status, not an
 * error here.
 */
int via_emu_port_service(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns);

/*
 * Cuts the cable or mends it, for both ends at once, whichever of them says it. It stays cut while
 * either end lives. Call service afterwards, at once.
 */
void via_emu_port_cut(struct via_port *port, bool cut);

/*
 * Sends a message to the other end's on_message, with fds (borrowed). 0, -ENOLINK (the link is
 * down; also what is under way when it goes down is dropped), -EAGAIN (the socket is full: again
 * later), -EMSGSIZE, -EINVAL, or what sendmsg() says.
 */
VIA_MUST_CHECK int via_emu_port_request(struct via_port *port, const void *msg, size_t len,
                                        const int *fds, unsigned nfds);

/* The slices of the window; NULL: there are none. Constant while the port is open. */
struct via_port_slices *via_emu_port_slices(struct via_port *port);

struct via_emu_status {
    bool connected; /* both ends are there, cut or not */
    bool up;
    bool cut;
    pid_t peer_pid;     /* 0 when not connected */
    uint16_t peer_host; /* as it says; valid when connected */
    uint64_t peer_inbox_bytes;
    uint64_t window_bytes; /* with the slices */
    uint64_t ups_count, downs_count;
    uint64_t puts_out_of_bounds; /* dropped: errors of the caller; commits of other sizes, too */
    uint64_t puts_vanished;      /* by body() and commit(), while the link was down */
    uint64_t doorbells_fired, doorbells_coalesced;
    uint64_t scratchpads_refused; /* writes to the other end's, or beyond the last */
    uint64_t messages_sent, messages_received, messages_dropped;
    uint64_t peers_refused; /* connections ended for what they sent, or for their user */
    char error[256];        /* why the last connection failed; "" when nothing is wrong */
};
void via_emu_port_status(const struct via_port *port, struct via_emu_status *ret_status);

#endif
