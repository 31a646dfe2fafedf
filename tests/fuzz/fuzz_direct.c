/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Direct connections between processes (src/host/client_tcp.h), both ends, and the end of a host.
 * An owner of memory, or its host, gets requests: each answer equals that of a model of the memory,
 * and no memory outside the segment changes. A connector gets answers: it takes them or ends the
 * connection, and writes only to the destinations of its requests.
 *
 * Input: a byte of options, then requests or answers. The options also determine the pieces in
 * which requests are sent.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/types.h"
#include "host/client_tcp_inside.h"
#include "tests/fuzz/input.h"

#define OPTION_ANSWERS 0x01u
#define OPTION_STRANGER 0x02u
#define OPTION_HOST 0x20u     /* requests go to the owner's host */
#define SEGMENT_BYTES 100001u /* more than what is received in one piece */
#define GUARD_BYTES (256u << 10)
#define HANDLE UINT64_C(0x123456789abc)
#define OUTGOING_MAX (256u << 10)
#define REQUESTS_MAX 64u
#define GETS 4u
#define GET_BYTES 40000u /* larger than the buffer of answers */

/* Memory of a segment between guards, and a model of it. */
static unsigned char around[GUARD_BYTES + SEGMENT_BYTES + GUARD_BYTES] __attribute__((aligned(64)));
static unsigned char *const memory = around + GUARD_BYTES;
static unsigned char model[SEGMENT_BYTES];
static unsigned char outgoing[OUTGOING_MAX], expected[2 * OUTGOING_MAX], received[2 * OUTGOING_MAX];

static bool is_guarded(const unsigned char *from, size_t bytes)
{
    return from[0] == 0xa5 && memcmp(from, from + 1, bytes - 1) == 0;
}

/* --- the owner's end -------------------------------------------------------------------------- */

struct owner {
    struct via_attach attach;
    struct via_segment segment;
};

static struct owner *owner_new(void)
{
    struct owner *owner = calloc(1, sizeof(*owner));
    require(owner != NULL);
    owner->attach.pid = getpid();
    owner->segment = (struct via_segment){
        .attach = &owner->attach, .handle = HANDLE, .base = memory, .bytes = SEGMENT_BYTES};
    struct via_client_serve *serve = NULL;
    require(via_client_serve_open(&owner->attach, "127.0.0.1", &serve) == 0);
    owner->attach.serve = serve;
    require(via_tcp_serve(&owner->segment) == 0);
    return owner;
}

/* --- the owner's host ------------------------------------------------------------------------- */

#define HOST_PEER 7u

static const uint8_t host_token[VIA_TCP_TOKEN_BYTES] = "a token for one";
static _Atomic bool is_in_turn;
static _Atomic int host_conns;

static bool host_admit(void *ctx, const uint8_t *token, uint32_t *ret_peer)
{
    (void)ctx;
    if (memcmp(token, host_token, sizeof(host_token)) != 0) {
        return false;
    }
    *ret_peer = HOST_PEER;
    host_conns++;
    return true;
}

static void host_left(void *ctx, uint32_t peer, const struct via_attach_position *end)
{
    (void)ctx;
    require(end->refusal <= 0 && end->answered_bytes <= end->position);
    require(end->refusal != 0 || end->answered_bytes == 0);
    require(peer == HOST_PEER && host_conns-- > 0);
}

static bool host_is_unwanted(void *ctx, uint32_t peer, uint64_t idle_ns)
{
    (void)idle_ns;
    (void)ctx;
    require(peer == HOST_PEER);
    return false;
}

static void host_turn(void *ctx, bool begins)
{
    (void)ctx;
    require(is_in_turn != begins);
    is_in_turn = begins;
}

static unsigned char *host_reach(void *ctx, uint64_t handle, uint64_t off, uint64_t bytes,
                                 unsigned need)
{
    (void)ctx;
    require(is_in_turn && need != 0);
    bool inside = handle == HANDLE && off <= SEGMENT_BYTES && bytes <= SEGMENT_BYTES - off;
    return inside ? memory + off : NULL;
}

static bool host_is_crowded(void *ctx)
{
    (void)ctx;
    return true;
}

static struct via_client_serve *host_new(void)
{
    static const struct via_client_serve_calls calls = {
        .admit = host_admit,
        .left = host_left,
        .is_unwanted = host_is_unwanted,
        .turn = host_turn,
        .reach = host_reach,
        .is_crowded = host_is_crowded,
    };
    struct via_client_serve *serve = NULL;
    require(via_client_serve_open_host(&calls, "127.0.0.1", &serve) == 0);
    return serve;
}

/* Bytes for the owner, and the expected answers. */
struct talk {
    size_t outgoing, expected;
    int status;   /* the status that the next answer must have */
    bool is_over; /* the owner ends the connection here */
};

static void talk_add(struct talk *talk, const void *data, size_t bytes)
{
    require(bytes <= OUTGOING_MAX - talk->outgoing);
    memcpy(outgoing + talk->outgoing, data, bytes);
    talk->outgoing += bytes;
}

static void talk_expect(struct talk *talk, int status, const void *data, size_t bytes)
{
    struct via_tcp_answer answer = {.status = status, .bytes = status == 0 ? bytes : 0};
    if (talk->is_over) {
        return;
    }
    require(sizeof(answer) + bytes <= sizeof(expected) - talk->expected);
    memcpy(expected + talk->expected, &answer, sizeof(answer));
    talk->expected += sizeof(answer);
    if (status == 0 && bytes != 0) {
        memcpy(expected + talk->expected, data, bytes);
        talk->expected += bytes;
    }
}

/* The status that the next answer must have, from this request or an earlier one. */
static int talk_report(struct talk *talk, int status)
{
    int reported = talk->status != 0 ? talk->status : status;
    talk->status = 0;
    return reported;
}

static bool is_inside(const struct via_tcp_request *request, uint64_t bytes)
{
    return request->handle == HANDLE && request->off <= SEGMENT_BYTES &&
           bytes <= SEGMENT_BYTES - request->off;
}

static void say_put(struct input *input, struct talk *talk, const struct via_tcp_request *request)
{
    static unsigned char payload[OUTGOING_MAX];
    size_t bytes = (size_t)via_min(request->bytes, (uint64_t)(OUTGOING_MAX - talk->outgoing));
    memset(payload, input_byte(input), bytes);
    talk_add(talk, payload, bytes);
    if (talk->is_over) {
        return;
    }
    if (!is_inside(request, request->bytes)) {
        talk->status = talk->status != 0 ? talk->status : -EACCES;
    } else if (bytes == request->bytes) {
        memcpy(model + request->off, payload, bytes);
    } else {
        talk->is_over = true; /* the rest is not sent, so the number of stored bytes is unknown */
    }
}

static void say_atomic(struct input *input, struct talk *talk,
                       const struct via_tcp_request *request)
{
    struct via_tcp_operands operands = {.operand = input_word(input), .compare = input_byte(input)};
    uint64_t word[2] = {0, 0};
    talk_add(talk, &operands, sizeof(operands));
    talk->is_over |=
        (request->width != 4 && request->width != 8) || request->off % request->width != 0 ||
        request->operation < VIADUCT_ATOMIC_ADD || request->operation > VIADUCT_ATOMIC_FETCH;
    if (talk->is_over) {
        return;
    }
    int status = 0;
    if (is_inside(request, request->width)) {
        memcpy(word, model + request->off, request->width);
        word[1] =
            via_client_atomic_update(word, request->width, (enum viaduct_atomic)request->operation,
                                     operands.operand, operands.compare);
        memcpy(model + request->off, word, request->width);
    } else {
        status = talk->status = talk->status != 0 ? talk->status : -EACCES;
    }
    if ((request->flags & VIA_TCP_FETCHES) != 0) {
        talk_expect(talk, talk_report(talk, status), &word[1], sizeof(word[1]));
    }
}

static void say_request(struct input *input, struct talk *talk)
{
    struct via_tcp_request request = {
        .kind = input_byte(input) % 6,
        .width = input_byte(input) % 16,
        .operation = input_byte(input) % 10,
        .flags = input_byte(input) & 1,
        .handle = input_byte(input) % 8 != 0 ? HANDLE : input_edgy(input),
        .off = input_edgy(input),
        .bytes = input_edgy(input),
    };
    if (OUTGOING_MAX - talk->outgoing < sizeof(request) + sizeof(struct via_tcp_operands) ||
        sizeof(expected) - talk->expected < SEGMENT_BYTES + sizeof(struct via_tcp_answer)) {
        return;
    }
    talk_add(talk, &request, sizeof(request));
    talk->is_over |= request.bytes > UINT64_MAX / 2 || request.off > UINT64_MAX / 2;
    switch (request.kind) {
    case VIA_TCP_PUT:
        say_put(input, talk, &request);
        break;
    case VIA_TCP_GET: {
        bool inside = is_inside(&request, request.bytes);
        talk_expect(talk, talk_report(talk, inside ? 0 : -EACCES),
                    inside ? model + request.off : NULL, inside ? (size_t)request.bytes : 0);
        break;
    }
    case VIA_TCP_ATOMIC:
        say_atomic(input, talk, &request);
        break;
    case VIA_TCP_FENCE:
        talk_expect(talk, talk_report(talk, 0), NULL, 0);
        break;
    default:
        talk->is_over = true;
    }
}

static int call(const struct via_tcp_card *card)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = card->port};
    memcpy(&to.sin_addr, card->address, sizeof(to.sin_addr));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    return fd;
}

/* Sends everything in pieces, and receives all answers until the owner closes. Returns how many
 * bytes were received. */
static size_t talk_to(struct via_client_serve *serve, const struct talk *talk, unsigned options)
{
    size_t piece_max = (size_t)1 << (9 + (options >> 2) % 8);
    int fd = call(via_client_serve_card(serve));
    size_t sent = 0, got = 0;
    for (bool is_open = true; is_open;) {
        struct pollfd any = {.fd = fd, .events = POLLIN};
        if (sent < talk->outgoing) {
            size_t piece = via_min(1 + (sent * 7919 + options) % piece_max, talk->outgoing - sent);
            ssize_t rc = send(fd, outgoing + sent, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
            sent = rc > 0 ? sent + (size_t)rc : errno == EAGAIN ? sent : talk->outgoing;
        } else {
            shutdown(fd, SHUT_WR);
        }
        if ((options & OPTION_HOST) == 0) {
            (void)via_client_serve_poll(serve);
        }
        if (poll(&any, 1, sent < talk->outgoing ? 0 : 1) == 0) {
            continue;
        }
        ssize_t rc = recv(fd, received + got, sizeof(received) - got, MSG_DONTWAIT);
        is_open = rc > 0 || (rc < 0 && errno == EAGAIN);
        got += rc > 0 ? (size_t)rc : 0;
    }
    close(fd);
    return got;
}

static void take_requests(struct input *input, unsigned options)
{
    static struct owner *owner;
    static struct via_client_serve *host;
    struct via_tcp_hello hello = {.magic = VIA_TCP_MAGIC};
    struct via_tcp_ready ready = {.magic = VIA_TCP_MAGIC};
    struct talk talk = {0};
    owner = owner != NULL ? owner : owner_new();
    host = host != NULL ? host : host_new();
    bool to_host = (options & OPTION_HOST) != 0;
    struct via_client_serve *serve = to_host ? host : owner->attach.serve;
    memcpy(hello.token, to_host ? host_token : via_client_serve_card(serve)->token,
           sizeof(hello.token));
    hello.token[VIA_TCP_TOKEN_BYTES - 1] ^= (options & OPTION_STRANGER) != 0 ? 1 : 0;
    memset(around, 0xa5, sizeof(around));
    memset(model, 0xa5, sizeof(model));
    talk_add(&talk, &hello, sizeof(hello));
    if ((options & OPTION_STRANGER) == 0) {
        memcpy(expected, &ready, sizeof(ready));
        talk.expected = sizeof(ready);
    }
    talk.is_over = (options & OPTION_STRANGER) != 0;
    for (unsigned i = 0; i < REQUESTS_MAX && input->bytes != 0; i++) {
        say_request(input, &talk);
    }
    size_t got = talk_to(serve, &talk, options);
    /* An owner that ends a connection resets it, and answers under way are lost. */
    require(talk.is_over ? got <= talk.expected : got == talk.expected);
    require(memcmp(received, expected, got) == 0);
    require(talk.is_over || memcmp(memory, model, SEGMENT_BYTES) == 0);
    require((options & OPTION_STRANGER) == 0 || is_guarded(memory, SEGMENT_BYTES));
    require(is_guarded(around, GUARD_BYTES) && is_guarded(memory + SEGMENT_BYTES, GUARD_BYTES));
}

/* --- the connector ---------------------------------------------------------------------------- */

static struct via_client_tcp *tcp_new(struct via_attach *attach, int fd)
{
    struct via_client_tcp *tcp = calloc(1, sizeof(*tcp));
    require(tcp != NULL);
    tcp->attach = attach;
    tcp->fd = fd;
    tcp->out = malloc(VIA_CLIENT_TCP_OUT_BYTES);
    tcp->in = malloc(VIA_CLIENT_TCP_IN_BYTES);
    tcp->expected = calloc(VIA_CLIENT_TCP_EXPECTED_MAX, sizeof(*tcp->expected));
    require(tcp->out != NULL && tcp->in != NULL && tcp->expected != NULL);
    pthread_mutex_init(&tcp->lock, NULL);
    return tcp;
}

static void tcp_free(struct via_client_tcp *tcp)
{
    pthread_mutex_destroy(&tcp->lock);
    free(tcp->out);
    free(tcp->in);
    free(tcp->expected);
    free(tcp);
}

/* Sends all answers, as many as the socket accepts. */
static void say_answers(struct input *input, int fd)
{
    static unsigned char payload[GET_BYTES + 64];
    while (input->bytes != 0) {
        uint8_t form = input_byte(input);
        struct via_tcp_answer answer = {.status = (form & 1) != 0 ? (int32_t)input_edgy(input) : 0,
                                        .bytes = (form & 2) != 0 ? input_edgy(input) : GET_BYTES};
        size_t bytes = (size_t)via_min(answer.bytes, (uint64_t)sizeof(payload));
        memset(payload, form, bytes);
        (void)!send(fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)!send(fd, payload, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    shutdown(fd, SHUT_WR);
}

static void take_answers(struct input *input)
{
    static struct via_attach attach = {.socket_fd = -1};
    struct via_remote remote = {.attach = &attach, .handle = HANDLE};
    const size_t sizes[GETS] = {8, GET_BYTES, 3, 4096};
    unsigned char *to[GETS];
    int fds[2];
    int room = 4 << 20;
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    (void)setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    struct via_client_tcp *tcp = tcp_new(&attach, fds[0]);
    unsigned order = input_byte(input);
    say_answers(input, fds[1]);
    for (unsigned i = 0; i < GETS; i++) {
        size_t bytes = sizes[(i + order) % GETS];
        to[i] = malloc(bytes + 64); /* the sanitizer does not see read(2) */
        require(to[i] != NULL);
        memset(to[i], 0xa5, bytes + 64);
        int rc = via_client_tcp_get(tcp, &remote, 0, to[i], bytes, true);
        require(rc == 0 || rc == -ECONNRESET || rc == -EPROTO);
        require(is_guarded(to[i] + bytes, 64));
        free(to[i]);
    }
    tcp_free(tcp);
    close(fds[0]);
    close(fds[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    unsigned options = input_byte(&input);
    if ((options & OPTION_ANSWERS) != 0) {
        take_answers(&input);
    } else {
        take_requests(&input, options);
    }
    return 0;
}
