/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The pex port for the suite, on the register model, in the same process or behind a socket. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/pex/pex.h"
#include "port/bell.h"
#include "port/driver.h"
#include "port/pex/driver.h"
#include "port/pex/port.h"
#include "port_conform.h"
#include "vfio/user.h"

struct pex_end {
    struct via_driver_host host; /* outlives the port */
    struct via_bell bells[CONFORM_BELL_LINES];
};

static void wake(void *ctx, unsigned thread)
{
    struct pex_end *state = ctx;
    via_bell_ring(&state->bells[thread]);
}

/* --- a model of its own process --- */

static pid_t server_pid;

#define SOCKETS 4u /* both functions of the NT port, then the DMA function of both hosts */

struct served {
    struct via_pex *pex;
    enum via_pex_side side;
    bool is_engine;
    int fd;
};

static int attach(void *ctx, struct via_pci **ret_pci)
{
    struct served *served = ctx;
    return served->is_engine ? via_pex_attach_engine_apart(served->pex, served->side, ret_pci)
                             : via_pex_attach(served->pex, served->side, ret_pci);
}

static void *serve(void *arg)
{
    static const _Atomic bool never;
    struct served *served = arg;
    via_vfio_user_serve(served->fd, attach, served, NULL, 0, &never);
    return NULL;
}

static void socket_path(const char *directory, unsigned side, char *ret_path, size_t bytes)
{
    snprintf(ret_path, bytes, "%s/nt%u.sock", directory, side);
}

static void run_server(struct served *served)
{
    pthread_t threads[SOCKETS];
    struct via_pex *pex;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (via_pex_new(&via_pex_options_default, &pex, NULL) != 0) {
        _exit(1);
    }
    for (unsigned i = 0; i < SOCKETS; i++) {
        served[i].pex = pex;
        served[i].side = i % 2 == 0 ? VIA_PEX_VIRTUAL : VIA_PEX_LINK;
        served[i].is_engine = i >= 2;
        pthread_create(&threads[i], NULL, serve, &served[i]);
    }
    for (;;) {
        pause();
    }
}

static int begin_server(const char *directory)
{
    struct served served[SOCKETS];
    struct via_error err;
    char path[128];
    for (unsigned i = 0; i < SOCKETS; i++) {
        socket_path(directory, i, path, sizeof(path));
        if (via_vfio_user_listen(path, &served[i].fd, &err) != 0) {
            fprintf(stderr, "%s\n", err.text);
            return -1;
        }
    }
    fflush(NULL);
    server_pid = fork();
    if (server_pid == 0) {
        run_server(served);
    }
    for (unsigned i = 0; i < SOCKETS; i++) {
        close(served[i].fd);
    }
    return server_pid > 0 ? 0 : -1;
}

static void end_server(const char *directory)
{
    char path[128];
    kill(server_pid, SIGKILL);
    waitpid(server_pid, NULL, 0);
    for (unsigned i = 0; i < SOCKETS; i++) {
        socket_path(directory, i, path, sizeof(path));
        unlink(path);
    }
}

/* --- ends --- */

static int open_pex(struct conform_end *end, const char *directory, const char *options, bool user,
                    bool dma)
{
    struct via_error err = {0};
    struct via_link_config config;
    char text[VIA_LINK_DESCRIPTION_BYTES];
    struct pex_end *state = aligned_alloc(VIA_CACHELINE, VIA_ALIGN_UP(sizeof(*state), 64));
    memset(state, 0, sizeof(*state));
    state->host = (struct via_driver_host){.host = (uint16_t)(end->side + 1),
                                           .inbox_bytes = CONFORM_INBOX_BYTES,
                                           .inbox_bytes_min = CONFORM_INBOX_BYTES,
                                           .threads_count = CONFORM_BELL_LINES,
                                           .bell_fd = -1,
                                           .dma = dma,
                                           .wake = wake,
                                           .ctx = state};
    char target[160];
    if (user) {
        strcpy(target, "vfio-user:");
        socket_path(directory, end->side, target + strlen(target), 128);
    } else if (strstr(options, "b2b") != NULL) {
        snprintf(target, sizeof(target), "model:%s", directory);
    } else {
        snprintf(target, sizeof(target), "model:%s,side=%s", directory,
                 end->side == 0 ? "virtual" : "link");
    }
    char engine[160] = "";
    if (user && dma) {
        strcpy(engine, ",dma=");
        socket_path(directory, 2 + end->side, engine + strlen(engine), 128);
    }
    snprintf(text, sizeof(text), "pex:%s%s%s", target, options, engine);
    int rc = via_link_parse(text, &config, &err);
    if (rc == 0) {
        rc = via_pex_driver.open(config.config, &state->host, &end->port, &err);
    }
    if (rc != 0) {
        fprintf(stderr, "%s\n", err.text);
        free(state);
        return rc;
    }
    end->bell = state->bells;
    end->state = state;
    return 0;
}

#define OPEN(name, options, user, dma)                              \
    static int name(struct conform_end *end, const char *directory) \
    {                                                               \
        return open_pex(end, directory, options, user, dma);        \
    }
OPEN(open_plain, "", false, false)
OPEN(open_alut, ",alut,window=2MiB,irq=intx", false, false)
OPEN(open_polls, ",irq=none,window=1MiB", false, false)
OPEN(open_dma, "", false, true)
OPEN(open_nt1, ",nt=1", false, true)
/* Each end has a chip of its own. */
static int open_pair(struct conform_end *end, const char *directory)
{
    return open_pex(end, directory, end->side == 0 ? ",b2b=0" : ",b2b=1", false, false);
}
static int open_pair_alut(struct conform_end *end, const char *directory)
{
    return open_pex(end, directory, end->side == 0 ? ",b2b=0,alut" : ",b2b=1,alut", false, true);
}
static int open_pair_dma(struct conform_end *end, const char *directory)
{
    return open_pex(end, directory, end->side == 0 ? ",b2b=0" : ",b2b=1", false, true);
}
OPEN(open_user, ",window=512KiB", true, false)
OPEN(open_user_dma, ",window=512KiB", true, true)

/* The widest stores that pass the caches. */
static int open_stores(struct conform_end *end, const char *directory)
{
    int rc = open_plain(end, directory);
    for (unsigned i = via_stores_count; i-- > 0 && rc == 0;) {
        if (via_store_is_there(&via_stores[i]) && via_stores[i].is_nontemporal) {
            for (unsigned k = 0; k < VIA_STORE_CLASSES; k++) {
                via_pex_driver.use_store(end->port, k, &via_stores[i]);
            }
            break;
        }
    }
    return rc;
}

static int pex_memory(struct conform_end *end, void *memory, size_t bytes)
{
    return via_pex_driver.memory_register(end->port, memory, bytes, NULL);
}

static int pex_fd(struct conform_end *end)
{
    return via_pex_driver.fd(end->port);
}

static void pex_service(struct conform_end *end, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    via_pex_driver.service(end->port, now_ns, ret_deadline_ns);
}

static void pex_cut(struct conform_end *end, bool cut)
{
    via_pex_driver.cut(end->port, cut);
}

static uint64_t pex_puts_out_of_bounds(struct conform_end *end)
{
    return atomic_load(&via_pex_port_of(end->port)->counters.puts_out_of_bounds);
}

static void pex_close(struct conform_end *end)
{
    end->port->ops->close(end->port);
    free(end->state);
}

#define PEX_KIND(symbol, text, opens, begins, ends, engine) \
    const struct conform_kind symbol = {                    \
        .name = text,                                       \
        .cut_is_own = true,                                 \
        .only_dma = engine,                                 \
        .memory = pex_memory,                               \
        .scratchpads_survive = true,                        \
        .begin = begins,                                    \
        .end = ends,                                        \
        .open = opens,                                      \
        .fd = pex_fd,                                       \
        .service = pex_service,                             \
        .cut = pex_cut,                                     \
        .puts_out_of_bounds = pex_puts_out_of_bounds,       \
        .close = pex_close,                                 \
    }
PEX_KIND(conform_pex, "pex on the model", open_plain, NULL, NULL, false);
PEX_KIND(conform_pex_alut, "pex on the model, A-LUT, INTx", open_alut, NULL, NULL, false);
PEX_KIND(conform_pex_polls, "pex on the model, no interrupts", open_polls, NULL, NULL, false);
PEX_KIND(conform_pex_stores, "pex on the model, wide stores", open_stores, NULL, NULL, false);
PEX_KIND(conform_pex_b2b, "pex on two models back to back", open_pair, NULL, NULL, false);
PEX_KIND(conform_pex_b2b_dma, "pex on two models back to back with DMA", open_pair_dma, NULL, NULL,
         true);
PEX_KIND(conform_pex_b2b_alut, "pex on two models back to back, A-LUT, with DMA", open_pair_alut,
         NULL, NULL, true);
PEX_KIND(conform_pex_nt1, "pex on the model's second NT port with DMA", open_nt1, NULL, NULL, true);
PEX_KIND(conform_pex_user, "pex by vfio-user", open_user, begin_server, end_server, false);
PEX_KIND(conform_pex_user_dma, "pex by vfio-user with DMA", open_user_dma, begin_server, end_server,
         true);
PEX_KIND(conform_pex_dma, "pex on the model with DMA", open_dma, NULL, NULL, true);
