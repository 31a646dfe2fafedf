/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Input of a peer over an ofi link, in the greeting and after it, in plain text and sealed: it
 * writes into the inbox only, no link comes up without a proof of the key, plain text is refused
 * once messages are sealed, and the other end can open this end's messages. libfabric is simulated
 * here, so there is no network and no thread.
 *
 * Input: a byte of options, then messages: a byte of options, then entries of a kind, numbers
 * (input_edgy) and data.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/types.h"
#include "port/ofi/greet.h"
#include "port/ofi/port.h"
#include "sim/ofi/mac.h"
#include "tests/fuzz/input.h"

#define OPTION_ENCRYPTED 0x01u
#define OPTION_CONNECTS 0x02u /* this end */
#define OPTION_KEYED 0x04u
#define OPTION_CUT 0x08u
#define OPTION_GREETED 0x10u /* so that more inputs pass the check */
#define OPTION_ANSWER 0x20u  /* the listener's answer is part of the input */
#define HOW_RAW 0x01u        /* unchanged, even if messages should be sealed */
#define HOW_CUT_SHORT 0x02u
#define HOW_ENTRIES_SHIFT 4
#define KIND_TRUE_PROOF 15u
#define PAGE 4096u
#define INBOX_BYTES (4 * PAGE)
#define THREADS 3u
#define MESSAGES_MAX 24u
#define QUEUE_MAX 512u
#define MINE 1u /* hosts; the other one is 0 or 2 */

/* --- libfabric ------------------------------------------------------------------------------- */

static struct fi_cq_msg_entry queue[QUEUE_MAX];
static unsigned queue_count;

static struct via_ofi_hub hub;
static struct via_driver_host offers[2]; /* of this end, and of the peer */
static struct via_ofi_port *port;
static struct via_ofi_conn *conn;
static unsigned char *inbox;

/* The other end. */
static struct {
    bool connects;
    bool has_sent_proof; /* a proof with the secret below */
    bool has_received_proof;
    bool sealed;
    uint8_t secret[VIA_OFI_EXCHANGE_BYTES];
    struct via_ofi_proof proof, received;
    struct via_ofi_seal send, receive;
} peer;

static void complete(void *context, size_t bytes)
{
    require(queue_count < QUEUE_MAX);
    queue[queue_count++] = (struct fi_cq_msg_entry){.op_context = context, .len = bytes};
}

static ssize_t cq_read(struct fid_cq *cq, void *entries, size_t count)
{
    size_t some = via_min(count, (size_t)queue_count);
    (void)cq;
    if (some == 0) {
        return -FI_EAGAIN;
    }
    memcpy(entries, queue, some * sizeof(queue[0]));
    memmove(queue, queue + some, (queue_count - some) * sizeof(queue[0]));
    queue_count -= (unsigned)some;
    return (ssize_t)some;
}

static void agree(void)
{
    if (port->encrypted && peer.has_sent_proof && peer.has_received_proof) {
        require(via_ofi_seal_agree(&offers[1], peer.connects, peer.secret, &conn->request,
                                   &conn->answer, &peer.proof, &peer.received, &peer.send,
                                   &peer.receive) == 0);
        peer.sealed = true;
    }
}

/* Receives what this end sends: the peer opens each message, and remembers the proof. */
static void take_proof(const unsigned char *data, size_t bytes)
{
    static unsigned char copy[VIA_OFI_MESSAGE_BYTES_ENCRYPTED];
    struct via_ofi_entry head;
    require(bytes >= sizeof(head) && bytes <= port->message_bytes);
    if (conn->sealed) {
        memcpy(copy, data, bytes);
        require(!peer.sealed || via_ofi_seal_take(&peer.receive, copy, bytes) >= 0);
        return;
    }
    memcpy(&head, data, sizeof(head));
    if (head.kind == VIA_OFI_ENTRY_PROOF || head.kind == VIA_OFI_ENTRY_GRANT) {
        memcpy(&peer.received, data + sizeof(head), sizeof(peer.received));
        peer.has_received_proof = true;
        if (peer.connects) {
            agree();
        }
    } else {
        /* Before messages are sealed, and on links without encryption. */
        require(head.kind == VIA_OFI_ENTRY_REFUSE || !port->encrypted);
    }
}

static ssize_t ep_recv(struct fid_ep *ep, void *data, size_t bytes, void *desc, fi_addr_t from,
                       void *context)
{
    (void)ep, (void)data, (void)bytes, (void)desc, (void)from, (void)context;
    return 0; /* deliver() knows the kind of message */
}

static ssize_t ep_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
    (void)ep, (void)flags;
    take_proof(msg->msg_iov[0].iov_base, msg->msg_iov[0].iov_len);
    complete(msg->context, 0);
    return 0;
}

static ssize_t ep_inject(struct fid_ep *ep, const void *data, size_t bytes, fi_addr_t to)
{
    (void)ep, (void)to;
    take_proof(data, bytes);
    return 0;
}

static int no_name(fid_t fid, void *address, size_t *bytes)
{
    (void)fid, (void)address, (void)bytes;
    return -FI_ENOSYS;
}

static int no_peer(struct fid_ep *ep, void *address, size_t *bytes)
{
    (void)ep, (void)address, (void)bytes;
    return -FI_ENOSYS;
}

static int close_nothing(struct fid *fid)
{
    (void)fid;
    queue_count = 0;
    return 0;
}

static int close_mr(struct fid *fid)
{
    free(via_container_of(fid, struct fid_mr, fid));
    return 0;
}

static struct fi_ops nothing_ops = {.size = sizeof(nothing_ops), .close = close_nothing};
static struct fi_ops mr_ops = {.size = sizeof(mr_ops), .close = close_mr};

static int mr_reg(struct fid *fid, const void *memory, size_t bytes, uint64_t access,
                  uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **ret_mr, void *ctx)
{
    (void)fid, (void)offset, (void)flags, (void)ctx;
    /* The peer gets access to the inbox, unless the link is encrypted. */
    require(memory == inbox && bytes == INBOX_BYTES && access == FI_REMOTE_WRITE);
    require(!port->encrypted);
    struct fid_mr *mr = calloc(1, sizeof(*mr));
    require(mr != NULL);
    mr->fid.ops = &mr_ops;
    mr->key = key;
    *ret_mr = mr;
    return 0;
}

static struct fi_ops_cq cq_ops = {.size = sizeof(cq_ops), .read = cq_read};
static struct fi_ops_msg msg_ops = {
    .size = sizeof(msg_ops), .recv = ep_recv, .sendmsg = ep_sendmsg, .inject = ep_inject};
static struct fi_ops_cm cm_ops = {.size = sizeof(cm_ops), .getname = no_name, .getpeer = no_peer};
static struct fi_ops_mr domain_mr_ops = {.size = sizeof(domain_mr_ops), .reg = mr_reg};
static struct fid_cq cq = {.fid.ops = &nothing_ops, .ops = &cq_ops};
static struct fid_ep ep = {.fid.ops = &nothing_ops, .cm = &cm_ops, .msg = &msg_ops};
static struct fid_domain domain = {.fid.ops = &nothing_ops, .mr = &domain_mr_ops};

static const char *error_text(int code)
{
    return strerror(code);
}

/* --- both ends ------------------------------------------------------------------------------- */

static void wake(void *ctx, unsigned thread)
{
    (void)ctx;
    require(thread < THREADS);
}

static void mac(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[32])
{
    (void)ctx;
    sim_ofi_mac(1, data, bytes, ret_mac);
}

static uint64_t get_time(const struct via_ofi_system *unused)
{
    (void)unused;
    return via_ofi_now_ns();
}

static bool get_random(const struct via_ofi_system *unused, void *ret_bytes, size_t bytes)
{
    (void)unused;
    return getrandom(ret_bytes, bytes, 0) == (ssize_t)bytes;
}

static void kick(struct via_ofi_hub *unused)
{
    (void)unused;
}

static void ignore_change(struct via_ofi_port *unused)
{
    (void)unused;
}

static void ignore_conn(struct via_ofi_conn *unused)
{
    (void)unused;
}

static void begin(void)
{
    static const struct via_ofi_system system = {.now_ns = get_time,
                                                 .random = get_random,
                                                 .kick = kick,
                                                 .watch_close = ignore_conn,
                                                 .changed = ignore_change};
    static struct via_ofi_library library = {.strerror = error_text};
    static struct fi_domain_attr attr = {.mr_key_size = sizeof(uint64_t)};
    static struct fi_info info = {.domain_attr = &attr};
    hub.library = &library;
    hub.info = &info;
    hub.domain = &domain;
    hub.system = &system;
    snprintf(hub.provider, sizeof(hub.provider), "played");
    pthread_mutex_init(&hub.lock, NULL);
    via_list_init(&hub.ports);
    via_list_init(&hub.conns);
}

static void open_port(unsigned options)
{
    bool connects = (options & OPTION_CONNECTS) != 0;
    port = aligned_alloc(VIA_CACHELINE, sizeof(*port));
    inbox = aligned_alloc(PAGE, INBOX_BYTES);
    require(port != NULL && inbox != NULL);
    memset(port, 0, sizeof(*port));
    memset(inbox, 0, INBOX_BYTES);
    port->encrypted = (options & OPTION_ENCRYPTED) != 0;
    bool keyed = port->encrypted || (options & OPTION_KEYED) != 0;
    for (unsigned i = 0; i < 2; i++) {
        offers[i] = (struct via_driver_host){.host = i == 0     ? MINE
                                                     : connects ? 2
                                                                : 0,
                                             .inbox_bytes = INBOX_BYTES,
                                             .inbox_bytes_min = PAGE,
                                             .threads_count = THREADS,
                                             .wake = wake,
                                             .mac = keyed ? mac : NULL};
    }
    port->base.side = connects ? 0 : 1;
    port->base.inbox = inbox;
    port->base.caps.window_bytes = INBOX_BYTES;
    port->base.caps.inbox_bytes = INBOX_BYTES;
    port->hub = &hub;
    port->host = &offers[0];
    port->id = MINE;
    port->peer_id = offers[1].host;
    port->instance = 1;
    port->message_bytes = port->encrypted ? VIA_OFI_MESSAGE_BYTES_ENCRYPTED : VIA_OFI_MESSAGE_BYTES;
    port->changed_fd = -1;
    port->decision.last = (options & OPTION_CUT) != 0 ? VIA_OFI_DECISION_CUT : 0;
    via_ofi_port_init(port);
    require(via_ofi_sends_open(port) == 0);
    via_list_push_back(&hub.ports, &port->link);
}

static void close_port(void)
{
    via_ofi_port_hang_up(port);
    via_list_remove(&port->link);
    via_ofi_sends_close(port);
    via_ofi_port_fini(port);
    free(port);
    free(inbox);
}

/* Connected, and the peer's turn in the greeting. */
static void open_conn(struct input *input, unsigned options, unsigned char *greetings)
{
    struct via_ofi_answer answer;
    conn = calloc(1, sizeof(*conn));
    require(conn != NULL);
    conn->hub = &hub;
    conn->port = port;
    conn->number = ++hub.conns_made;
    conn->connector = (options & OPTION_CONNECTS) != 0;
    conn->cq = &cq;
    conn->ep = &ep;
    conn->deadline_ns = VIA_NEVER_NS;
    for (unsigned i = 0; i < VIA_OFI_GREETINGS; i++) {
        conn->greetings[i].op.kind = VIA_OFI_OP_GREETING;
        conn->greetings[i].data = greetings + (size_t)i * VIA_OFI_GREETING_BYTES;
    }
    via_list_push_back(&hub.conns, &conn->link);
    const struct via_driver_host *asks = &offers[conn->connector ? 0 : 1];
    const struct via_driver_host *answers = &offers[conn->connector ? 1 : 0];
    require(via_ofi_request_make(asks, answers->host, port->encrypted, &conn->request) == 0);
    require(via_ofi_answer_make(answers, &conn->request, VIA_OFI_ACCEPTED, &answer) == 0);
    if (!conn->connector) {
        conn->answer = answer;
    } else if ((options & OPTION_ANSWER) != 0) {
        input_take(input, &answer, sizeof(answer));
    }
    via_ofi_conn_connected(conn, &answer, sizeof(answer));
}

/* --- messages -------------------------------------------------------------------------------- */

struct message {
    unsigned char data[VIA_OFI_MESSAGE_BYTES_ENCRYPTED];
    size_t bytes;
    bool proves;      /* it contains a valid proof */
    bool goes_on;     /* entries follow the proof */
    bool has_unkeyed; /* without a key any proof is valid */
};

static size_t room_of(const struct message *message)
{
    return port->message_bytes - (port->encrypted ? VIA_OFI_TAG_BYTES : 0) - message->bytes;
}

static void append(struct message *message, const struct via_ofi_entry *head, struct input *input,
                   const void *data)
{
    size_t padded = via_align_up(head->bytes, 8);
    if (room_of(message) < sizeof(*head)) {
        return;
    }
    message->goes_on = message->proves;
    memcpy(message->data + message->bytes, head, sizeof(*head));
    message->bytes += sizeof(*head);
    padded = via_min(padded, room_of(message));
    if (data != NULL) {
        memcpy(message->data + message->bytes, data, padded);
    } else {
        input_take(input, message->data + message->bytes, padded);
    }
    message->bytes += padded;
}

/* A proof by a peer that has the key; most of its contents come from the input. */
static void append_proof(struct message *message, struct input *input, bool good)
{
    struct via_ofi_entry head = {.kind = peer.connects ? VIA_OFI_ENTRY_PROOF : VIA_OFI_ENTRY_GRANT,
                                 .bytes = sizeof(peer.proof)};
    uint8_t how = good ? 0 : input_byte(input);
    if (room_of(message) < sizeof(head) + sizeof(peer.proof) || message->proves || peer.sealed) {
        return;
    }
    peer.proof = (struct via_ofi_proof){.instance = 2, .inbox_bytes = INBOX_BYTES};
    require(via_ofi_exchange_make(peer.secret, peer.proof.exchange) == 0);
    if ((how & 1) != 0) {
        peer.proof.inbox_bytes = input_edgy(input);
    }
    if ((how & 2) != 0) {
        peer.proof.flags = (uint32_t)input_edgy(input);
    }
    if ((how & 8) != 0) {
        peer.proof.decision = (uint32_t)input_edgy(input);
    }
    peer.has_sent_proof = (how & 4) == 0;
    if ((how & 4) != 0) {
        input_take(input, peer.proof.exchange, sizeof(peer.proof.exchange));
    }
    via_ofi_proof_sign(&offers[1], peer.connects, &conn->request, &conn->answer, &peer.proof);
    append(message, &head, input, &peer.proof);
    message->proves = true;
    message->goes_on = false;
}

static void append_entry(struct message *message, struct input *input)
{
    struct via_ofi_entry head = {.kind = input_byte(input)};
    if (head.kind % 16 == KIND_TRUE_PROOF) {
        append_proof(message, input, false);
        return;
    }
    head.kind = head.kind < 0xf0 ? head.kind % 16 : head.kind;
    switch (head.kind) {
    case VIA_OFI_ENTRY_WORD:
        head.bytes = sizeof(uint64_t);
        break;
    case VIA_OFI_ENTRY_LINE:
        head.bytes = VIA_CACHELINE;
        break;
    default:
        head.bytes = (uint16_t)input_edgy(input);
    }
    head.value = (uint32_t)input_edgy(input);
    head.off = input_edgy(input);
    if (head.off < 0x80 && head.kind >= VIA_OFI_ENTRY_BODY && head.kind <= VIA_OFI_ENTRY_LINE) {
        head.off = INBOX_BYTES - 8 * head.off; /* near the end */
    }
    message->has_unkeyed = true;
    append(message, &head, input, NULL);
}

static void deliver(const struct message *message, bool raw)
{
    struct via_ofi_receive *receive = &conn->receives[0];
    bool was_sealed = conn->sealed;
    bool seals = peer.sealed && !raw;
    size_t bytes = message->bytes + (seals ? VIA_OFI_TAG_BYTES : 0);
    unsigned char *copy = malloc(bytes != 0 ? bytes : 1); /* of that size, for the sanitizer */
    require(copy != NULL);
    memcpy(copy, message->data, message->bytes);
    if (seals) {
        via_ofi_seal_put(&peer.send, copy, message->bytes);
    }
    receive->op.kind = VIA_OFI_OP_RECEIVE;
    receive->op.posted = true;
    receive->data = copy;
    if (message->proves && !peer.connects) {
        agree(); /* before this end does, because it may answer */
    }
    complete(&receive->op, bytes);
    via_ofi_conn_progress(conn);
    free(copy);
    receive->data = NULL;
    require(!was_sealed || seals || conn->broken); /* never in plain text */
    require(was_sealed || !conn->sealed || !message->goes_on || conn->broken);
    require((port->bells & ~((1u << VIA_PORT_DOORBELLS) - 1)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct message message;
    struct input input = {data, bytes};
    unsigned options = input_byte(&input);
    bool proved = false;
    if (hub.library == NULL) {
        begin();
    }
    memset(&peer, 0, sizeof(peer));
    peer.connects = (options & OPTION_CONNECTS) == 0;
    unsigned char *greetings = malloc((size_t)VIA_OFI_GREETINGS * VIA_OFI_GREETING_BYTES);
    require(greetings != NULL);
    pthread_mutex_lock(&hub.lock);
    open_port(options);
    open_conn(&input, options, greetings);
    for (unsigned i = 0; i < MESSAGES_MAX && !conn->broken && input.bytes != 0; i++) {
        message = (struct message){0};
        uint8_t how = i == 0 && (options & OPTION_GREETED) != 0 ? 0 : input_byte(&input);
        if (i == 0 && (options & OPTION_GREETED) != 0) {
            append_proof(&message, &input, true);
        }
        for (unsigned k = how >> HOW_ENTRIES_SHIFT; k != 0; k--) {
            append_entry(&message, &input);
        }
        if ((how & HOW_CUT_SHORT) != 0) {
            message.bytes -= via_min(message.bytes, (size_t)input_byte(&input));
            message.goes_on = false;
        }
        proved = proved || message.proves || (message.has_unkeyed && offers[0].mac == NULL);
        deliver(&message, (how & HOW_RAW) != 0);
        require(proved || !via_ofi_port_is_up(port));
        if (conn->state == VIA_OFI_CONN_UP && !via_ofi_port_is_up(port)) {
            break;
        }
    }
    close_port();
    pthread_mutex_unlock(&hub.lock);
    free(greetings);
    return 0;
}
