/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "conform_agent.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/types.h"

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * VIA_SEC_NS + (uint64_t)time.tv_nsec;
}

/* --- the process or thread of the end --- */

static void caps(struct conform_end *end, struct conform_call *call)
{
    struct conform_caps caps = {
        .caps = end->port->caps,
        .side = end->port->side,
        .inbox_address = (uintptr_t)end->port->inbox,
        .has_window = end->port->window != NULL,
        .has_bell = end->bell != NULL,
    };
    memcpy(call->data, &caps, sizeof(caps));
}

/* The queue of the thread that makes the suite's calls. */
#define QUEUE 0u

static void post_any(struct via_port *port, struct conform_call *call)
{
    const struct via_port_ops *ops = port->ops;
    unsigned char *source = calloc(1, call->count + 1);
    memset(source, (int)call->value, call->count);
    (call->verb == CONFORM_BODY_ANY ? ops->body : ops->commit)(port, QUEUE, call->off, source,
                                                               call->bytes);
    free(source);
}

static void window(struct via_port *port, struct conform_call *call)
{
    call->count = port->window == NULL;
    if (port->window == NULL) {
        return;
    }
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(port->window + call->off);
    if (call->verb == CONFORM_WINDOW_STORE) {
        atomic_store_explicit(word, call->value, memory_order_release);
    } else {
        call->result = (int64_t)atomic_load_explicit(word, memory_order_acquire);
    }
}

static void inbox(struct via_port *port, struct conform_call *call)
{
    if (call->verb == CONFORM_INBOX_FILL) {
        memset(port->inbox + call->off, (int)call->value, call->bytes);
        return;
    }
    /* The puts that the peer's agent made before its report are visible, because the suite has
     * received this report. */
    atomic_thread_fence(memory_order_acquire);
    via_copy_foreign(call->data, port->inbox + call->off, call->bytes);
}

static void worker_call(struct conform_agent *agent, struct conform_end *end,
                        struct conform_call *call)
{
    struct conform_worker *worker = &agent->workers[call->worker % CONFORM_WORKERS_MAX];
    struct conform_report report;
    switch (call->verb) {
    case CONFORM_START:
        conform_worker_start(worker, end, 1 + (unsigned)(worker - agent->workers),
                             agent->place != CONFORM_INLINE, (enum conform_work)call->value,
                             call->off, call->count);
        return;
    case CONFORM_STOP:
        conform_worker_stop(worker);
        break;
    default:
        break;
    }
    conform_worker_check(worker, &report);
    memcpy(call->data, &report, sizeof(report));
}

/* --- DMA: source buffers live as long as the agent --- */

static unsigned char *dma_source(struct conform_agent *agent, struct conform_end *end,
                                 uint64_t cookie)
{
    size_t bytes = (size_t)CONFORM_DMA_SOURCES * CONFORM_DATA_BYTES;
    if (agent->dma_sources == NULL) {
        agent->dma_sources = aligned_alloc(4096, bytes);
        if (end->kind->memory != NULL && end->kind->memory(end, agent->dma_sources, bytes) != 0) {
            abort();
        }
    }
    return agent->dma_sources + cookie % CONFORM_DMA_SOURCES * CONFORM_DATA_BYTES;
}

static void dma(struct conform_agent *agent, struct conform_end *end, struct conform_call *call)
{
    struct via_port *port = end->port;
    if (port->ops->dma == NULL) {
        call->result = -ENOTSUP;
        return;
    }
    unsigned char *source = dma_source(agent, end, call->value);
    memcpy(source, call->data, CONFORM_DATA_BYTES);
    call->result = port->ops->dma(port, QUEUE, call->off, source, call->bytes, call->value);
}

static void dma_take(struct conform_agent *agent, struct conform_end *end,
                     struct conform_call *call)
{
    struct via_port *port = end->port;
    uint64_t cookie = 0;
    int result = 0;
    if (port->ops->dma_take == NULL) {
        return;
    }
    call->result = port->ops->dma_take(port, QUEUE, &cookie, &result, 1);
    if (call->result != 0) {
        memset(dma_source(agent, end, cookie), 0xee, CONFORM_DATA_BYTES);
    }
    call->value = cookie;
    call->count = (uint64_t)(int64_t)result;
}

static void execute(struct conform_agent *agent, struct conform_end *end, struct conform_call *call)
{
    struct via_port *port = end->port;
    const struct via_port_ops *ops = port->ops;

    call->result = 0;
    switch ((enum conform_verb)call->verb) {
    case CONFORM_BODY:
    case CONFORM_COMMIT:
        (call->verb == CONFORM_BODY ? ops->body : ops->commit)(port, (unsigned)call->value,
                                                               call->off, call->data, call->bytes);
        memset(call->data, 0xee, sizeof(call->data)); /* the caller may use src again */
        break;
    case CONFORM_BODY_ANY:
    case CONFORM_COMMIT_ANY:
        post_any(port, call);
        break;
    case CONFORM_WINDOW_STORE:
    case CONFORM_WINDOW_LOAD:
        window(port, call);
        break;
    case CONFORM_FLUSH:
        ops->flush(port, (unsigned)call->value);
        break;
    case CONFORM_FENCE_START:
        call->result = ops->fence_start(port, (unsigned)call->value);
        break;
    case CONFORM_FENCE_POLL:
        call->result = ops->fence_poll(port, (unsigned)call->value);
        break;
    case CONFORM_RING:
        call->result = ops->ring(port, QUEUE, (unsigned)call->value);
        break;
    case CONFORM_EVENTS:
        call->result = (int64_t)ops->events(port, call->value);
        break;
    case CONFORM_LINK_IS_UP:
        call->result = ops->link_is_up(port);
        break;
    case CONFORM_SCRATCHPAD_READ:
        call->result = ops->scratchpad_read(port, (unsigned)call->value);
        break;
    case CONFORM_SCRATCHPAD_WRITE:
        ops->scratchpad_write(port, (unsigned)call->value, (uint32_t)call->count);
        break;
    case CONFORM_INBOX_READ:
    case CONFORM_INBOX_FILL:
        inbox(port, call);
        break;
    case CONFORM_CAPS:
        caps(end, call);
        break;
    case CONFORM_DMA:
        dma(agent, end, call);
        break;
    case CONFORM_DMA_TAKE:
        dma_take(agent, end, call);
        break;
    case CONFORM_DMA_ABORT:
        if (ops->dma_abort != NULL) {
            ops->dma_abort(port, QUEUE);
        }
        break;
    case CONFORM_PUTS_OUT_OF_BOUNDS:
        call->result = (int64_t)end->kind->puts_out_of_bounds(end);
        break;
    case CONFORM_BELL_COUNT:
        call->result = end->bell ? atomic_load(&end->bell[call->value].count) : 0;
        break;
    case CONFORM_CUT:
        end->kind->cut(end, call->value != 0);
        break;
    case CONFORM_START:
    case CONFORM_STATE:
    case CONFORM_STOP:
        worker_call(agent, end, call);
        break;
    case CONFORM_QUIT:
        break;
    }
}

/* Called after the port is closed, because until then an engine may read. */
static void free_sources(struct conform_agent *agent)
{
    free(agent->dma_sources);
    agent->dma_sources = NULL;
}

static void stop_workers(struct conform_agent *agent)
{
    for (unsigned i = 0; i < CONFORM_WORKERS_MAX; i++) {
        conform_worker_stop(&agent->workers[i]);
    }
}

static void serve(struct conform_agent *agent, struct conform_end *end)
{
    struct pollfd fds[2] = {{.fd = agent->agent_socket, .events = POLLIN},
                            {.fd = end->kind->fd(end), .events = POLLIN}};
    struct conform_call call;

    for (bool quit = false; !quit;) {
        uint64_t deadline_ns;
        end->kind->service(end, now(), &deadline_ns);
        uint64_t time_ns = now();
        uint64_t wait_ns = deadline_ns > time_ns ? deadline_ns - time_ns : 0;
        int wait_ms = (int)via_min(wait_ns / VIA_MSEC_NS + (wait_ns != 0), UINT64_C(1000));
        if (poll(fds, 2, wait_ms) <= 0 || fds[0].revents == 0) {
            continue;
        }
        if (recv(agent->agent_socket, &call, sizeof(call), 0) != (ssize_t)sizeof(call)) {
            break; /* the suite has ended */
        }
        quit = call.verb == CONFORM_QUIT;
        /* Interrupts from before the call are handled before the call is made. */
        end->kind->service(end, now(), &deadline_ns);
        execute(agent, end, &call);
        if (!quit) {
            /* The effects of a cut and of similar calls are complete before the suite continues. */
            end->kind->service(end, now(), &deadline_ns);
            (void)!send(agent->agent_socket, &call, sizeof(call), MSG_NOSIGNAL);
        }
    }
    stop_workers(agent);
}

/* Reports through the socket whether the end could be opened, then serves it. */
static void *live(void *arg)
{
    struct conform_agent *agent = arg;
    struct conform_end end = {.kind = agent->kind, .side = agent->side};
    struct conform_call hello = {.result = agent->kind->open(&end, agent->directory)};
    (void)!send(agent->agent_socket, &hello, sizeof(hello), MSG_NOSIGNAL);
    if (hello.result == 0) {
        serve(agent, &end);
        agent->kind->close(&end);
        free_sources(agent);
    }
    return NULL;
}

/* --- the suite's side --- */

static int start_process(struct conform_agent *agent)
{
    fflush(NULL);
    agent->pid = fork();
    if (agent->pid < 0) {
        return -errno;
    }
    if (agent->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(agent->socket);
        live(agent);
        _exit(0);
    }
    close(agent->agent_socket);
    agent->agent_socket = -1;
    return 0;
}

int conform_agent_start(struct conform_agent *agent, const struct conform_kind *kind,
                        enum conform_place place, unsigned side, const char *directory,
                        struct conform_end *end)
{
    memset(agent, 0, sizeof(*agent));
    agent->kind = kind;
    agent->place = place;
    agent->side = side;
    snprintf(agent->directory, sizeof(agent->directory), "%s", directory);
    if (place == CONFORM_INLINE) {
        agent->end = end;
        *end = (struct conform_end){.kind = kind, .side = side};
        int rc = kind->open(end, directory);
        agent->alive = rc == 0;
        return rc;
    }
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return -errno;
    }
    agent->socket = sockets[0];
    agent->agent_socket = sockets[1];
    int rc = place == CONFORM_PROCESSES ? start_process(agent)
                                        : -pthread_create(&agent->thread, NULL, live, agent);
    if (rc != 0) {
        return rc;
    }
    agent->alive = true;
    struct conform_call hello;
    if (recv(agent->socket, &hello, sizeof(hello), 0) != (ssize_t)sizeof(hello)) {
        return -EPIPE;
    }
    return (int)hello.result;
}

int conform_agent_call(struct conform_agent *agent, struct conform_call *call)
{
    if (agent->place == CONFORM_INLINE) {
        agent->kind->enter(agent->end, 0);
        execute(agent, agent->end, call);
        agent->kind->enter(agent->end, 0);
        return 0;
    }
    if (send(agent->socket, call, sizeof(*call), MSG_NOSIGNAL) != (ssize_t)sizeof(*call) ||
        recv(agent->socket, call, sizeof(*call), 0) != (ssize_t)sizeof(*call)) {
        return -EPIPE;
    }
    return 0;
}

int conform_agent_quit(struct conform_agent *agent)
{
    if (!agent->alive) {
        return 0;
    }
    agent->alive = false;
    struct conform_call quit = {.verb = CONFORM_QUIT};
    int status = 0;
    switch (agent->place) {
    case CONFORM_INLINE:
        stop_workers(agent);
        agent->kind->close(agent->end);
        free_sources(agent);
        return 0;
    case CONFORM_THREADS:
        (void)!send(agent->socket, &quit, sizeof(quit), MSG_NOSIGNAL);
        pthread_join(agent->thread, NULL);
        close(agent->agent_socket);
        break;
    case CONFORM_PROCESSES:
        (void)!send(agent->socket, &quit, sizeof(quit), MSG_NOSIGNAL);
        waitpid(agent->pid, &status, 0);
        break;
    }
    close(agent->socket);
    /* A report of a sanitizer ends the process with a status of its own. */
    return status == 0 ? 0 : -EIO;
}

void conform_agent_kill(struct conform_agent *agent)
{
    if (!agent->alive || agent->place != CONFORM_PROCESSES) {
        (void)conform_agent_quit(agent);
        return;
    }
    agent->alive = false;
    kill(agent->pid, SIGKILL);
    waitpid(agent->pid, NULL, 0);
    close(agent->socket);
}

int conform_count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}
