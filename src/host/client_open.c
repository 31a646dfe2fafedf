/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Attaches to a host, and detaches. */
#include "host/client.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "host/client_auto.h"
#include "host/client_sys.h"
#include "host/client_tcp.h"
#include "host/rundir.h"

#define WELCOME_NS_MAX (5 * VIA_SEC_NS)
#define CLOSE_NS_MAX VIA_SEC_NS
/* Polling up to about this time is cheaper than a sleep and a wake-up. */
#define SPIN_NS_MAX (50 * VIA_USEC_NS)
#define CONNECT_RETRY_NS VIA_MSEC_NS

static _Thread_local char error_text[VIA_ERROR_TEXT_BYTES];

const char *via_error_text(void)
{
    return error_text;
}

int via_client_error(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_text, sizeof(error_text), format, args);
    va_end(args);
    return code;
}

int via_client_dead(const struct via_attach *attach)
{
    return via_client_error(-ENOTCONN, "host %u: its daemon has ended, or violated the protocol",
                            attach->host);
}

/* --- finding the host --------------------------------------------------------------------------*/

/* dir: the run directory; NULL: the default. */
static bool is_of_a_host(const char *dir, unsigned *ret_host)
{
    struct via_rundir_path rundir;
    if (dir == NULL && via_rundir_default(NULL, &rundir, NULL) == 0) {
        dir = rundir.text;
    }
    return dir != NULL && via_rundir_local(dir, ret_host) == 0;
}

static int find_host(const struct via_attach_options *options, unsigned *ret_host)
{
    const char *text = getenv("VIADUCT_HOST");
    if (options->host >= 0) {
        *ret_host = (unsigned)options->host;
    } else if (text != NULL || !is_of_a_host(options->rundir, ret_host)) {
        if (text == NULL || text[0] == '\0') {
            return via_client_error(-EINVAL, "attach: which host? VIADUCT_HOST is not set (see "
                                             "viaduct run)");
        }
        char *end;
        errno = 0;
        unsigned long host = strtoul(text, &end, 10);
        if (errno != 0 || *end != '\0' || host >= VIA_CLIENT_HOSTS_MAX) {
            return via_client_error(-EINVAL, "attach: VIADUCT_HOST='%.40s' is not the id of a host",
                                    text);
        }
        *ret_host = (unsigned)host;
    }
    if (*ret_host >= VIA_CLIENT_HOSTS_MAX) {
        return via_client_error(-EINVAL, "attach: %u is not the id of a host", *ret_host);
    }
    return 0;
}

static int find_path(const struct via_attach_options *options, unsigned host,
                     struct via_rundir_path *ret_path)
{
    struct via_rundir_path rundir;
    struct via_error err;
    const char *dir = options->rundir;
    int rc = 0;
    if (dir == NULL) {
        rc = via_rundir_default(NULL, &rundir, &err);
        dir = rundir.text;
    }
    if (rc == 0) {
        rc = via_rundir_attach_path(dir, host, ret_path, &err);
    }
    return rc == 0 ? 0 : via_client_error(rc, "host %u: attach: %s", host, err.text);
}

static int connect_error(int code, unsigned host, const char *path)
{
    const char *cause = strerror(-code);
    switch (code) {
    case -ENOENT:
        cause = "no such host is up in this fabric";
        break;
    case -ECONNREFUSED:
        cause = "its daemon has died";
        break;
    case -EPERM:
        code = -EACCES;
        __attribute__((fallthrough));
    case -EACCES:
        cause = "permission denied: the fabric belongs to another user";
        break;
    case -EAGAIN:
        code = -ETIMEDOUT;
        cause = "its daemon accepts no connections";
        break;
    }
    return via_client_error(code, "host %u: attach by %s: %s", host, path, cause);
}

static void sleep_for(uint64_t ns)
{
    struct timespec time = {.tv_nsec = (long)ns};
    nanosleep(&time, NULL);
}

static int connect_to(struct via_attach *attach, unsigned host, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = via_sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return via_client_error(fd, "host %u: attach: socket: %s", host, strerror(-fd));
    }
    attach->socket_fd = via_client_fd_keep(fd);
    uint64_t until_ns = via_client_now_ns() + WELCOME_NS_MAX;
    for (;;) {
        int rc = via_sys_connect(attach->socket_fd, &address, sizeof(address));
        if (rc == 0) {
            return 0;
        }
        /* EAGAIN: the backlog is full, and the kernel does not report when it has room again. */
        if ((rc != -EAGAIN && rc != -EINTR) || via_client_now_ns() >= until_ns) {
            return connect_error(rc, host, path);
        }
        sleep_for(CONNECT_RETRY_NS);
    }
}

/* --- the welcome -------------------------------------------------------------------------------*/

static int wait_readable(int fd, uint64_t until_ns)
{
    uint64_t now = via_client_now_ns();
    if (now >= until_ns) {
        return -ETIMEDOUT;
    }
    struct timespec left = {
        .tv_sec = (time_t)((until_ns - now) / VIA_SEC_NS),
        .tv_nsec = (long)((until_ns - now) % VIA_SEC_NS),
    };
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    long rc = via_sys_result(syscall(SYS_ppoll, &pollfd, 1, &left, NULL, 8));
    return rc < 0 && rc != -EINTR ? (int)rc : 0;
}

/* Exchanges HELLO and its answer. 0, or an error with its text. */
static int greet(struct via_attach *attach, unsigned host, int channel,
                 struct via_attach_answer *answer, int *fds, unsigned *ret_fds_count)
{
    struct via_attach_request hello = {
        .magic = VIA_ATTACH_MAGIC,
        .version = VIA_ATTACH_VERSION,
        .type = VIA_ATTACH_HELLO,
        .channel = channel,
        .flow = attach->flow,
        .handle = attach->order,
        .access = attach->late ? VIA_ATTACH_LATE : 0,
    };
    uint64_t until_ns = via_client_now_ns() + WELCOME_NS_MAX;
    long rc = via_client_socket_send(attach->socket_fd, &hello, -1);
    while (rc == 0 || rc == -EAGAIN || rc == -EINTR) {
        rc = wait_readable(attach->socket_fd, until_ns);
        if (rc == 0) {
            rc = via_client_socket_receive(attach->socket_fd, answer, fds, ret_fds_count);
            if (rc == 0) {
                rc = -ECONNRESET;
            }
        }
    }
    if (rc == -ETIMEDOUT) {
        return via_client_error(-ETIMEDOUT, "host %u: attach: no answer within %u s", host,
                                (unsigned)(WELCOME_NS_MAX / VIA_SEC_NS));
    }
    if (rc == -ECONNRESET || rc == -EPIPE) {
        return via_client_error(-ECONNREFUSED, "host %u: attach: its daemon has died", host);
    }
    if (rc < 0) {
        return via_client_error((int)rc, "host %u: attach: %s", host,
                                rc == -EPROTO ? "the answer is not of the attach protocol"
                                              : strerror((int)-rc));
    }
    if (answer->version != VIA_ATTACH_VERSION) {
        return via_client_error(-EPROTO,
                                "host %u: attach: the host speaks version %u of the attach "
                                "protocol, this library version %u",
                                host, answer->version, VIA_ATTACH_VERSION);
    }
    if (answer->status != 0) {
        int status = answer->status > 0 ? -EPROTO : answer->status;
        return via_client_error(status, "host %u: attach: refused: %s", host,
                                via_client_cause(answer));
    }
    return 0;
}

static bool has_bytes(int fd, size_t bytes)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_size >= 0 && (uint64_t)st.st_size >= bytes;
}

/* Maps the first `bytes` of fd if the file has that length. 0 or negative errno. */
static int map(int fd, size_t bytes, int protection, void *ret_base)
{
    if (!has_bytes(fd, bytes)) {
        return -EPROTO;
    }
    void *base = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return -errno;
    }
    memcpy(ret_base, &base, sizeof(base));
    return 0;
}

static int check_welcome(const struct via_attach_answer *answer, unsigned fds_count, unsigned host)
{
    size_t need = VIA_ATTACH_COMMAND_OFF;
    if (fds_count != 4 || answer->host != host || answer->channels_count == 0 ||
        answer->channels_count > VIA_CLIENT_CHANNELS_MAX ||
        answer->hosts_max > VIA_CLIENT_HOSTS_MAX || answer->hosts_max <= host) {
        return -EPROTO;
    }
    if (via_pipe_geometry_check(&answer->command) != 0 ||
        via_pipe_geometry_check(&answer->reply) != 0 || answer->command.body_bytes_max == 0 ||
        answer->reply.body_bytes_max == 0) {
        return -EPROTO;
    }
    need += via_pipe_memory_bytes(&answer->command) + via_pipe_memory_bytes(&answer->reply);
    return answer->area_bytes < need || answer->area_bytes % 4096 != 0 ? -EPROTO : 0;
}

static int map_all(struct via_attach *attach, const struct via_attach_answer *answer,
                   const int *fds)
{
    size_t areas_bytes = (size_t)answer->area_bytes * answer->channels_count;
    attach->memory_bytes = areas_bytes + VIA_ATTACH_TAIL_BYTES;
    attach->status_bytes = sizeof(*attach->status);
    attach->bells_bytes = sizeof(struct via_bell) * answer->channels_count;
    int rc = map(fds[0], attach->memory_bytes, PROT_READ | PROT_WRITE, &attach->memory);
    if (rc == 0) {
        attach->busy = (struct via_slice_busy *)(void *)(attach->memory + areas_bytes);
        attach->interest =
            (_Atomic uint64_t *)(void *)(attach->memory + areas_bytes + VIA_ATTACH_BUSY_BYTES);
        rc = map(fds[1], attach->status_bytes, PROT_READ, &attach->status);
    }
    if (rc == 0) {
        rc = map(fds[2], attach->bells_bytes, PROT_READ | PROT_WRITE, &attach->bells);
    }
    if (rc == 0 && attach->status->magic != VIA_STATUS_MAGIC) {
        rc = -EPROTO;
    }
    return rc;
}

static int channel_init(struct via_attach *attach, const struct via_attach_answer *answer,
                        unsigned index)
{
    struct via_client_channel *channel = &attach->channels[index];
    unsigned char *area = attach->memory + (size_t)index * answer->area_bytes;
    unsigned char *command = area + VIA_ATTACH_COMMAND_OFF;
    unsigned char *reply = command + via_pipe_memory_bytes(&answer->command);
    struct via_pipe_target target = {.direct = command};
    struct via_pipe_target credit = {.direct = area + VIA_ATTACH_REPLY_CREDIT_OFF};

    channel->data_ends = calloc(answer->command.slots_count, sizeof(*channel->data_ends));
    if (channel->data_ends == NULL) {
        return -ENOMEM;
    }
    channel->bell = &attach->bells[index];
    via_pipe_writer_init(&channel->writer, &answer->command, &target,
                         (const _Atomic uint64_t *)(void *)(area + VIA_ATTACH_COMMAND_CREDIT_OFF),
                         channel->data_ends, VIA_ATTACH_EPOCH);
    via_pipe_reader_init(&channel->reader, &answer->reply, reply, &credit, VIA_ATTACH_EPOCH);
    return 0;
}

/* As many operations as the command pipes have slots, so that a pipe is full before the operations
 * run out. */
static int ops_init(struct via_attach *attach, const struct via_attach_answer *answer)
{
    attach->ops_count = via_min(answer->command.slots_count * answer->channels_count, 1u << 20);
    attach->ops = calloc(attach->ops_count, sizeof(*attach->ops));
    if (attach->ops == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < attach->ops_count; i++) {
        attach->ops[i].index_next_free = i + 1;
    }
    return 0;
}

static int watch(struct via_attach *attach)
{
    int rc = via_sys_epoll_create();
    if (rc < 0) {
        return rc;
    }
    attach->epoll_fd = via_client_fd_keep(rc);
    rc = via_sys_bell_new();
    if (rc < 0) {
        return rc;
    }
    attach->nudge_fd = via_client_fd_keep(rc);
    const struct {
        int fd;
        uint32_t events;
    } sources[] = {{attach->socket_fd, EPOLLIN | EPOLLRDHUP | EPOLLET},
                   {attach->bell_fd, VIA_BELL_EVENTS},
                   {attach->nudge_fd, VIA_BELL_EVENTS}};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(sources); i++) {
        rc = via_sys_epoll_add(attach->epoll_fd, sources[i].fd, sources[i].events,
                               (uint32_t)sources[i].fd);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int set_up(struct via_attach *attach, const struct via_attach_answer *answer, int *fds)
{
    attach->host = answer->host;
    attach->hosts_max = answer->hosts_max;
    attach->channels_count = answer->channels_count;
    attach->channel_first = answer->channel_first % answer->channels_count;
    attach->flow = answer->flow;
    attach->order = answer->handle;
    attach->tcp_lost_ns_max =
        answer->give_up_ns != 0 ? answer->give_up_ns : VIA_CLIENT_TCP_LOST_NS_MAX;
    attach->message_bytes_max = via_min(answer->message_bytes_max, answer->command.body_bytes_max);
    attach->body_bytes_max = answer->command.body_bytes_max;
    attach->reply_bytes_max = answer->reply.body_bytes_max;
    attach->bell_fd = fds[3];
    fds[3] = -1;
    int rc = map_all(attach, answer, fds);
    for (unsigned i = 0; i < answer->channels_count && rc == 0; i++) {
        rc = channel_init(attach, answer, i);
    }
    if (rc == 0) {
        rc = ops_init(attach, answer);
    }
    return rc == 0 ? watch(attach) : rc;
}

static int lock_init(struct via_attach *attach)
{
    pthread_condattr_t attributes;
    if (pthread_mutex_init(&attach->lock, NULL) != 0 ||
        pthread_mutex_init(&attach->dial_lock, NULL) != 0 ||
        pthread_condattr_init(&attributes) != 0) {
        return -ENOMEM;
    }
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(&attach->turn, &attributes);
    pthread_condattr_destroy(&attributes);
    return rc == 0 ? 0 : -ENOMEM;
}

static struct via_attach *attach_new(void)
{
    struct via_attach *attach = calloc(1, sizeof(*attach));
    if (attach == NULL || lock_init(attach) != 0) {
        free(attach);
        return NULL;
    }
    attach->pid = getpid();
    attach->inbox_bytes_max = VIA_CLIENT_INBOX_BYTES_MAX;
    attach->stuck_ns_max = VIA_CLIENT_STUCK_NS_MAX;
    attach->socket_fd = -1;
    attach->bell_fd = -1;
    attach->nudge_fd = -1;
    attach->epoll_fd = -1;
    attach->socket_ready = true;
    via_list_init(&attach->pending);
    via_list_init(&attach->messages);
    via_list_init(&attach->requests);
    via_list_init(&attach->segments);
    via_list_init(&attach->segments_left);
    attach->request_id_next = 1;
    via_list_init(&attach->remotes);
    via_host_spin_init(&attach->spin, via_host_spin_cpus() > 1 ? SPIN_NS_MAX : 0);
    return attach;
}

static void unmap(const void *base, size_t bytes)
{
    if (base != NULL) {
        munmap((void *)base, bytes);
    }
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        via_client_fd_close(fd);
    }
}

static void attach_free(struct via_attach *attach)
{
    via_list_foreach_safe(it, &attach->remotes) {
        via_client_remote_free(via_list_entry(it, struct via_remote, link));
    }
    via_list_foreach_safe(it, &attach->segments) {
        via_client_segment_free(via_list_entry(it, struct via_segment, link));
    }
    via_list_foreach_safe(it, &attach->segments_left) {
        via_client_segment_free(via_list_entry(it, struct via_segment, link));
    }
    struct via_list *it;
    while ((it = via_list_pop_front(&attach->messages)) != NULL) {
        free(via_list_entry(it, struct via_client_message, link));
    }
    free(attach->autos);
    for (unsigned i = 0; i < VIA_CLIENT_CHANNELS_MAX; i++) {
        free(attach->channels[i].data_ends);
    }
    free(attach->ops);
    unmap(attach->memory, attach->memory_bytes);
    unmap(attach->status, attach->status_bytes);
    unmap(attach->bells, attach->bells_bytes);
    close_fd(attach->epoll_fd);
    close_fd(attach->nudge_fd);
    close_fd(attach->bell_fd);
    close_fd(attach->socket_fd);
    pthread_cond_destroy(&attach->turn);
    pthread_mutex_destroy(&attach->lock);
    pthread_mutex_destroy(&attach->dial_lock);
    free(attach);
}

/* --- the two calls -----------------------------------------------------------------------------*/

static int attach_to(struct via_attach *attach, const struct via_attach_options *options)
{
    unsigned host = 0;
    struct via_rundir_path path;
    int rc = find_host(options, &host);
    if (rc == 0) {
        rc = find_path(options, host, &path);
    }
    if (rc == 0) {
        rc = connect_to(attach, host, path.text);
    }
    struct via_attach_answer answer = {0};
    int fds[VIA_CLIENT_ANSWER_FDS_MAX];
    unsigned fds_count = 0;
    if (rc == 0) {
        rc = greet(attach, host, options->channel, &answer, fds, &fds_count);
        if (rc == 0) {
            rc = check_welcome(&answer, fds_count, host);
            if (rc == 0) {
                rc = set_up(attach, &answer, fds);
            }
            if (rc != 0) {
                via_client_error(rc, "host %u: attach: %s", host,
                                 rc == -EPROTO ? "the answer to HELLO is malformed"
                                               : strerror(-rc));
            }
        }
    }
    for (unsigned i = 0; i < fds_count; i++) {
        close_fd(fds[i]);
    }
    return rc;
}

/* *ret_auto: the library opens connections to hosts by itself (client_auto.h). */
static int read_direct_setting(bool *ret_auto)
{
    enum via_tcp_setting setting;
    if (via_tcp_setting_read(&setting) != 0) {
        return via_client_error(-EINVAL,
                                "attach: VIADUCT_DIRECT='%.40s' is none of auto, asked and off",
                                getenv("VIADUCT_DIRECT"));
    }
    *ret_auto = setting == VIA_TCP_AUTO;
    return 0;
}

static int open_attach(const struct via_attach_options *options, struct via_client_order order,
                       bool late, struct via_attach **ret_attach)
{
    bool is_auto = false;
    int rc = read_direct_setting(&is_auto);
    if (rc != 0) {
        return rc;
    }
    struct via_attach *attach = attach_new();
    if (attach == NULL) {
        return via_client_error(-ENOMEM, "attach: out of memory");
    }
    attach->flow = order.flow;
    attach->order = order.name;
    attach->late = late;
    atomic_init(&attach->auto_off, !is_auto);
    rc = attach_to(attach, options);
    if (rc != 0) {
        attach_free(attach);
        return rc;
    }
    *ret_attach = attach;
    return 0;
}

int via_attach_open(const struct via_attach_options *options, struct via_attach **ret_attach)
{
    struct via_attach_options known = {.host = -1, .channel = -1};
    if (options != NULL) {
        /* The struct of an older or newer program: copies the fields that both have. */
        memcpy(&known, options, via_min(options->size, sizeof(known)));
    }
    return open_attach(&known, (struct via_client_order){.flow = 0}, false, ret_attach);
}

struct via_client_order via_client_order_of(const struct via_attach *attach)
{
    return (struct via_client_order){
        .name = attach->order, .flow = attach->flow, .channel = attach->channel_first};
}

int via_client_attach_behind(struct via_client_order order, struct via_attach **ret_attach)
{
    const struct via_attach_options options = {
        .host = -1, .channel = order.flow != 0 ? (int)order.channel : -1};
    return open_attach(&options, order, true, ret_attach);
}

static bool is_idle(struct via_attach *attach, void *ctx)
{
    (void)ctx;
    return via_list_is_empty(&attach->pending);
}

void via_client_drain(struct via_attach *attach)
{
    if (attach->pid != getpid()) {
        /* a child's copy: the pipes belong to the parent, and the lock may be held forever */
        return;
    }
    via_client_lock(attach);
    if (!attach->dead && !is_idle(attach, NULL)) {
        struct via_client_wait wait = {
            .done = is_idle,
            .deadline_ns = via_client_now_ns() + CLOSE_NS_MAX,
        };
        /* The result is ignored, because there is no caller to report to. */
        (void)!via_client_wait(attach, &wait);
    }
    via_client_unlock(attach);
}

void via_attach_close(struct via_attach *attach)
{
    if (attach != NULL) {
        via_client_auto_close(attach);
        via_client_drain(attach);
        via_client_tcp_all_close(attach);
        attach_free(attach);
    }
}

unsigned via_attach_host(const struct via_attach *attach)
{
    return attach->host;
}

int via_attach_hops(struct via_attach *attach, unsigned host)
{
    uint64_t word = host < attach->hosts_max ? via_client_watch(attach, host) : 0;
    if (!via_status_is_reachable(word)) {
        return via_client_error(-EHOSTUNREACH, "host %u: not to be reached from host %u", host,
                                attach->host);
    }
    return (int)via_status_hops(word);
}

int via_attach_hosts(struct via_attach *attach, uint16_t *ret_hosts, unsigned max)
{
    unsigned count = 0;
    for (unsigned host = 0; host < attach->hosts_max; host++) {
        if (!via_status_is_reachable(via_client_watch(attach, host))) {
            continue;
        }
        if (count < max) {
            ret_hosts[count] = (uint16_t)host;
        }
        count++;
    }
    return (int)count;
}
