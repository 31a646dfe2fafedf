/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Internals of the ofi port: ops.c implements the operations of core/port.h, send.c and receive.c
 * send and receive on a connection, link.c brings the link up and down, conn.c opens and closes a
 * connection. */
#ifndef VIA_PORT_OFI_PORT_H
#define VIA_PORT_OFI_PORT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/types.h"
#include "core/port.h"
#include "port/driver.h"
#include "port/ofi/decision.h"
#include "port/ofi/hub.h"
#include "port/ofi/resolve.h"
#include "port/ofi/seal.h"
#include "port/ofi/wire.h"

#define VIA_OFI_MESSAGES 128u /* of a port, free or under way */
#define VIA_OFI_WRITES 256u   /* the same */
#define VIA_OFI_DMA_DEPTH 32u
#define VIA_OFI_RECEIVES 64u /* of a connection */
#define VIA_OFI_GREETINGS 4u
#define VIA_OFI_GREETING_BYTES 128u
#define VIA_OFI_CANDIDATES_MAX 8u /* connections of a port before their greeting is complete */

enum via_ofi_op_kind {
    VIA_OFI_OP_RECEIVE,
    VIA_OFI_OP_GREETING,
    VIA_OFI_OP_MESSAGE,
    VIA_OFI_OP_WRITE,
    VIA_OFI_OP_DMA,
};

/* First field of every context passed to libfabric; some providers store data of their own in it.
 */
struct via_ofi_op {
    struct fi_context2 context;
    _Atomic bool posted; /* cleared by the completion; a second completion is ignored */
    enum via_ofi_op_kind kind;
};

/* A send operation: a message, a body from the shadow of the window, or DMA. It is in one of the
 * port's lists, or is the `open` message of a queue. Guarded by tx_lock. */
struct via_ofi_send {
    struct via_ofi_op op;
    struct via_list link;
    unsigned char *data;
    uint32_t bytes;
    bool sealed;       /* message: encrypted */
    uint32_t session;  /* DMA: of the port when it was started */
    uint64_t off;      /* in the peer's inbox */
    void *desc;        /* libfabric's descriptor of the memory */
    uint64_t cookie;   /* DMA */
    unsigned queue;    /* DMA */
    int result;        /* DMA */
    uint64_t abort_ns; /* DMA: when it was aborted; 0: not aborted */
};

struct via_ofi_receive {
    struct via_ofi_op op;
    unsigned char *data; /* port->message_bytes */
};

struct via_ofi_greeting {
    struct via_ofi_op op;
    bool busy;
    unsigned char *data; /* VIA_OFI_GREETING_BYTES */
};

enum via_ofi_conn_state {
    VIA_OFI_CONN_CONNECTING, /* the request is on its way, or the acceptance */
    VIA_OFI_CONN_GREETING,   /* connected; the peer must authenticate */
    VIA_OFI_CONN_HELD,       /* both ends have authenticated; the link is cut */
    VIA_OFI_CONN_UP,         /* the port's `conn` */
    VIA_OFI_CONN_LEAVING,    /* a REFUSE message is on its way */
};

/* Guarded by the hub's lock. A change of the port's `conn` also needs rx_lock and tx_lock. */
struct via_ofi_conn {
    struct via_list link; /* hub->conns */
    struct via_ofi_hub *hub;
    struct via_ofi_port *port;
    uint64_t number;
    enum via_ofi_conn_state state;
    bool connector;
    _Atomic bool broken; /* to be closed */
    bool watched;        /* the hub's thread sleeps on cq_fd */
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_mr *inbox_mr;  /* registration of the memory that the peer may write */
    struct fid_mr *memory_mr; /* of receives; NULL: not needed */
    int cq_fd;
    uint64_t deadline_ns; /* of a state that ends */
    uint64_t received_ns;
    uint64_t alive_ns;         /* when the last ALIVE was sent */
    _Atomic bool has_received; /* a message arrived since received_ns */
    struct via_ofi_request request;
    struct via_ofi_answer answer;
    struct via_ofi_proof mine;
    struct via_ofi_proof peer; /* checked */
    /* Of a link that is encrypted. */
    uint8_t secret[VIA_OFI_EXCHANGE_BYTES];
    bool sealed;                 /* all later messages; set before this is the port's `conn` */
    struct via_ofi_seal send;    /* [tx_lock] once this is the port's `conn` */
    struct via_ofi_seal receive; /* [rx_lock] likewise */
    char local_text[80];
    char peer_text[80];
    unsigned char *memory;
    struct via_ofi_receive receives[VIA_OFI_RECEIVES];
    struct via_ofi_greeting greetings[VIA_OFI_GREETINGS];
};

/* Belongs to the thread that uses the queue. */
struct via_ofi_queue {
    struct via_ofi_send *open VIA_CACHELINE_ALIGNED; /* message not flushed yet; owned */
    uint32_t open_session;                           /* of the port, when `open` was begun */
    uint32_t fence;                                  /* number of the last one */
    uint32_t fence_session;
    uint64_t fence_ns;       /* when it was started, or last extended */
    uint64_t fence_messages; /* port->messages_received at that time */
    unsigned fence_turns;    /* how often it was extended */
    bool fence_under_way;
    /* Number of the last fence that the peer has answered. Release in receive.c, acquire in
     * is_fenced() (ops.c). */
    _Atomic uint32_t fenced;
};

struct via_ofi_counters {
    _Atomic uint64_t puts_out_of_bounds;
    _Atomic uint64_t puts_vanished;
    _Atomic uint64_t doorbells_fired;
    _Atomic uint64_t doorbells_coalesced;
    _Atomic uint64_t scratchpads_refused;
};

struct via_ofi_port {
    struct via_port base;

    /* --- constant while the port is open --- */
    struct via_ofi_hub *hub;
    const struct via_driver_host *host; /* borrowed */
    struct via_ofi_place place;         /* of the peer */
    uint16_t id, peer_id;
    bool unordered; /* a message waits until earlier writes have completed */
    bool encrypted; /* all data goes in messages, which are sealed */
    uint32_t message_bytes;
    uint64_t instance;
    uint64_t usable_bytes; /* of the inbox */
    int changed_fd; /* for the control thread; the system opens it, the port closes it. -1: none */
    unsigned char *shadow; /* memory from which bodies are sent: as large as the window */
    struct fid_mr *shadow_mr, *messages_mr, *dma_mr; /* NULL: not needed */
    unsigned char *messages;                         /* memory of the messages */
    struct via_ofi_send *sends;                      /* array of all: messages, writes, DMA */

    struct via_ofi_queue queues[VIA_PORT_QUEUES];

    /* --- any thread --- */
    _Atomic bool up; /* release in attach() when `conn` is set; posting threads take tx_lock */
    _Atomic uint32_t session;           /* counts link ups */
    _Atomic uint64_t reach_bytes;       /* of the window: the size of the peer's inbox */
    _Atomic uint64_t edges;             /* VIA_PORT_EVENT_* not yet read */
    _Atomic uint32_t bells;             /* doorbells not yet read */
    _Atomic uint64_t messages_received; /* messages of the peer, signs of life included */
    _Atomic uint32_t pads[VIA_PORT_SCRATCHPADS];
    _Atomic bool changed; /* service() has something to report */
    _Atomic bool polled;  /* a transfer thread makes progress, so the hub's thread need not */
    _Atomic bool resting; /* the hub's thread does not watch the connection, because of `polled` */
    struct via_ofi_counters counters;

    /* For the completions of `conn`. Recursive, because the link comes up while the hub's thread
     * handles an entry of the greeting under this lock: no transfer thread may poll the connection
     * before the hub's thread has handled the later entries of the message. */
    pthread_mutex_t rx_lock;

    pthread_mutex_t tx_lock;
    struct via_ofi_conn *conn; /* [also rx_lock, hub->lock: all to change it] */
    struct via_list messages_free, writes_free, dma_free;
    unsigned messages_free_count;
    struct via_list pending; /* to be passed to libfabric, in this order */
    struct via_list flying;  /* passed to libfabric, not completed */
    unsigned writes_flying;
    struct via_list dma_done[VIA_PORT_DATA_DOORBELLS];
    uint32_t fences_due; /* queues of the peer whose fence must be answered */
    uint32_t fence_numbers[VIA_PORT_QUEUES];

    pthread_mutex_t state_lock; /* innermost: `up` changes together with its edge */
    char down_why[160];         /* reason of the last link down */

    /* --- the hub's lock --- */
    struct via_list link; /* hub->ports */
    struct via_ofi_decision decision;
    uint64_t retry_at_ns, retry_ns;
    struct via_ofi_resolve *resolve;
    char address[VIA_OFI_ADDRESS_BYTES];
    uint64_t address_until_ns;
    uint64_t tick_ns;
    uint64_t peers_refused;
    char found[256]; /* for describe() */
    char error[256];
};

/* init: initializes locks and lists, in zeroed memory. */
void via_ofi_port_init(struct via_ofi_port *port);
void via_ofi_port_fini(struct via_ofi_port *port);

static inline struct via_ofi_port *via_ofi_port_of(const struct via_port *port)
{
    return via_container_of((uintptr_t)port, struct via_ofi_port, base);
}

static inline bool via_ofi_port_is_up(const struct via_ofi_port *port)
{
    return atomic_load_explicit(&port->up, memory_order_acquire);
}

static inline void via_ofi_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static inline bool via_ofi_side_is_connector(const struct via_ofi_port *port)
{
    return port->base.side == 0;
}

/* --- conn.c: [hub] --- */
/* 0 and the connection; later via_ofi_conn_connected() or via_ofi_conn_ended() reports the result.
 * Or negative errno. The caller keeps info. */
int via_ofi_conn_connect(struct via_ofi_port *port, struct fi_info *info,
                         const struct via_ofi_request *request, struct via_ofi_conn **ret_conn);
/* ret_owned: the endpoint owns the connection, which can not be refused any more. */
int via_ofi_conn_accept(struct via_ofi_port *port, struct fi_info *info,
                        const struct via_ofi_request *request, const struct via_ofi_answer *answer,
                        bool *ret_owned, struct via_ofi_conn **ret_conn);
void via_ofi_conn_connected_to(struct via_ofi_conn *conn); /* sets local_text and peer_text */
/* Posts a receive again. */
int via_ofi_conn_repost(struct via_ofi_conn *conn, struct via_ofi_receive *receive);
/* Sends a message of one entry, before the link is up. 0, or negative errno. */
int via_ofi_conn_send(struct via_ofi_conn *conn, enum via_ofi_entry_kind kind, uint32_t value,
                      const void *data, uint16_t bytes);
/* Closes the libfabric objects of a connection: it sends and receives nothing after that. It must
 * not be the port's `conn`; the hub's thread frees it in its next turn, or hang_up() does. */
void via_ofi_conn_close(struct via_ofi_conn *conn);
void via_ofi_conn_free(struct via_ofi_conn *conn);
/* Registers the inbox, so that the peer may write it. */
int via_ofi_conn_open_inbox(struct via_ofi_conn *conn);

/* --- receive.c --- */
/* Polls completions of the connection, a bounded number. Locks: see struct via_ofi_conn.
 */
void via_ofi_conn_progress(struct via_ofi_conn *conn);
/* [any thread] The same for a link that is up. false: another thread polls it now. */
bool via_ofi_port_progress(struct via_ofi_port *port);

/* --- send.c --- */
int via_ofi_sends_open(struct via_ofi_port *port); /* 0 or negative errno */
void via_ofi_sends_close(struct via_ofi_port *port);
/* [tx_lock] The completion of a send, one of `flying`. */
void via_ofi_send_done(struct via_ofi_port *port, struct via_ofi_send *send);
/* [tx_lock] A FENCE entry of the peer has arrived. */
void via_ofi_fence_requested(struct via_ofi_port *port, unsigned queue, uint32_t number);
/* [tx_lock] Passes pending sends to libfabric, and answers fences. */
void via_ofi_port_drain(struct via_ofi_port *port);
/* [tx_lock] The connection is closed: sends under way are lost. */
void via_ofi_port_forget(struct via_ofi_port *port);
/* Appends an entry to the queue's open message. data may be NULL. */
void via_ofi_post_entry(struct via_ofi_port *port, unsigned queue, const struct via_ofi_entry *head,
                        const void *data);
void via_ofi_post_body(struct via_ofi_port *port, unsigned queue, uint64_t off, const void *src,
                       size_t len);
void via_ofi_post_flush(struct via_ofi_port *port, unsigned queue);
/* [hub] Sends a sign of life if one is due. */
void via_ofi_post_alive(struct via_ofi_port *port);
int via_ofi_dma(struct via_port *port, unsigned queue, uint64_t off, const void *src, size_t len,
                uint64_t cookie);
unsigned via_ofi_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                          int *ret_results, unsigned max);
void via_ofi_dma_abort(struct via_port *port, unsigned queue);
/* [hub] Takes the link down if aborted DMA does not end. */
void via_ofi_dma_tick(struct via_ofi_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns);

/* --- link.c --- */
/* [any thread] Takes the link down; the hub's thread then closes the connection. why: reason for
 * the status; NULL: by request, or already reported. */
void via_ofi_port_down(struct via_ofi_port *port, const char *why);
/* [hub] The port's and the connection's part of a turn. */
void via_ofi_port_tick(struct via_ofi_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns);
void via_ofi_conn_tick(struct via_ofi_conn *conn, uint64_t now_ns, uint64_t *ret_deadline_ns);
void via_ofi_port_cut(struct via_port *port, bool cut);
/* [hub] Closes all connections of a port. */
void via_ofi_port_hang_up(struct via_ofi_port *port);
/* [hub] Events of a connection. */
void via_ofi_conn_connected(struct via_ofi_conn *conn, const void *answer, size_t bytes);
void via_ofi_conn_ended(struct via_ofi_conn *conn, int code, const void *answer, size_t bytes);
/* [hub] Accepts or refuses a connection request, and frees info. */
void via_ofi_hub_requested(struct via_ofi_hub *hub, struct fi_info *info, const void *request,
                           size_t bytes);
/* [hub] Handles an entry on a connection that is not up. */
void via_ofi_conn_take(struct via_ofi_conn *conn, const struct via_ofi_entry *head,
                       const void *data);

#endif
