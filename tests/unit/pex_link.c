/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "tests/unit/pex_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "vfio/user.h"

/* --- the model behind sockets --- */

#define SOCKETS 4u /* both functions of the NT port, then the DMA functions of both hosts */

struct served {
    struct pex_link_server *server;
    unsigned index;
    int fd;
    char path[64];
    pthread_t thread;
};

struct pex_link_server {
    struct via_pex *pex;
    _Atomic bool stop;
    char folder[32];
    struct served served[SOCKETS];
};

static int attach(void *ctx, struct via_pci **ret_pci)
{
    struct served *served = ctx;
    enum via_pex_side side = served->index % 2 == 0 ? VIA_PEX_VIRTUAL : VIA_PEX_LINK;
    return served->index >= 2 ? via_pex_attach_engine_apart(served->server->pex, side, ret_pci)
                              : via_pex_attach(served->server->pex, side, ret_pci);
}

static void *serve(void *arg)
{
    struct served *served = arg;
    via_vfio_user_serve(served->fd, attach, served, NULL, 0, &served->server->stop);
    return NULL;
}

static void start_server(struct pex_link_server *server)
{
    struct via_error err;
    atomic_store(&server->stop, false);
    assert_int_equal(via_pex_new(&via_pex_options_default, &server->pex, &err), 0);
    for (unsigned i = 0; i < SOCKETS; i++) {
        struct served *served = &server->served[i];
        served->server = server;
        served->index = i;
        snprintf(served->path, sizeof(served->path), "%s/%u", server->folder, i);
        assert_int_equal(via_vfio_user_listen(served->path, &served->fd, &err), 0);
        assert_int_equal(pthread_create(&served->thread, NULL, serve, served), 0);
    }
}

static struct pex_link_server *begin_server(void)
{
    struct pex_link_server *server = calloc(1, sizeof(*server));
    assert_non_null(server);
    strcpy(server->folder, "/tmp/via-pex-XXXXXX");
    assert_non_null(mkdtemp(server->folder));
    start_server(server);
    return server;
}

static void stop_server(struct pex_link_server *server)
{
    atomic_store(&server->stop, true);
    for (unsigned i = 0; i < SOCKETS; i++) {
        pthread_join(server->served[i].thread, NULL);
        close(server->served[i].fd);
        unlink(server->served[i].path);
    }
    via_pex_free(server->pex);
}

void pex_link_stop_server(struct pex_link *link)
{
    stop_server(link->server);
}

void pex_link_start_server(struct pex_link *link)
{
    start_server(link->server);
    link->pex = link->server->pex;
}

static void end_server(struct pex_link_server *server)
{
    stop_server(server);
    assert_int_equal(rmdir(server->folder), 0);
    free(server);
}

/* --- ends --- */

static void wake(void *ctx, unsigned thread)
{
    ((struct pex_link_end *)ctx)->wakes[thread]++;
}

static void describe(struct pex_link *link, unsigned side, char *ret_text, size_t bytes)
{
    static const char *const more[] = {
        [PEX_LINK_MODEL] = "", [PEX_LINK_NT0] = ",nt=0", [PEX_LINK_NT1] = ",nt=1"};
    if (link->kind == PEX_LINK_USER) {
        const struct served *served = link->server->served;
        snprintf(ret_text, bytes, "pex:vfio-user:%s%s%s", served[side].path,
                 link->dma ? ",dma=" : "", link->dma ? served[2 + side].path : "");
    } else if (link->kind == PEX_LINK_PAIR) {
        snprintf(ret_text, bytes, "pex:model:test,b2b=%u", side);
    } else {
        snprintf(ret_text, bytes, "pex:model:test,side=%s%s", side == 0 ? "virtual" : "link",
                 more[link->kind]);
    }
}

int pex_link_open_end(struct pex_link *link, unsigned side, const char *options,
                      struct via_error *err)
{
    struct pex_link_end *end = &link->end[side];
    struct via_link_config config;
    char text[224];
    describe(link, side, text, sizeof(text));
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", options);
    assert_int_equal(via_link_parse(text, &config, err), 0);
    end->host = (struct via_driver_host){.host = (uint16_t)(side + 1),
                                         .inbox_bytes = 65536,
                                         .inbox_bytes_min = end->host.inbox_bytes_min,
                                         .threads_count = 4,
                                         .bell_fd = -1,
                                         .dma = link->dma,
                                         .wake = wake,
                                         .ctx = end};
    return via_pex_driver.open(config.config, &end->host, &end->port, err);
}

void pex_link_open(struct pex_link *link, const char *options)
{
    struct via_error err = {0};
    if (link->kind == PEX_LINK_USER && link->server == NULL) {
        link->server = begin_server();
    }
    for (unsigned side = 0; side < 2; side++) {
        if (pex_link_open_end(link, side, options, &err) != 0) {
            fail_msg("%s", err.text);
        }
    }
    link->pex = link->kind == PEX_LINK_USER ? link->server->pex : via_pex_find("test");
    link->pex = link->kind == PEX_LINK_NT1 ? via_pex_twin(link->pex) : link->pex;
    pex_link_wait_for(link, true);
    for (unsigned side = 0; side < 2; side++) {
        assert_true(pex_link_events(link, side, UINT64_MAX) == VIA_PORT_EVENT_LINK_UP);
    }
}

struct pex_link *pex_link_new(enum pex_link_kind kind, bool dma)
{
    struct pex_link *link = calloc(1, sizeof(*link));
    assert_non_null(link);
    link->kind = kind;
    link->dma = dma;
    link->now_ns = VIA_SEC_NS;
    pex_link_open(link, "");
    return link;
}

void pex_link_close_end(struct pex_link *link, unsigned side)
{
    struct via_port *port = link->end[side].port;
    link->end[side].port = NULL;
    if (port != NULL) {
        port->ops->close(port);
    }
}

void pex_link_close(struct pex_link *link)
{
    pex_link_close_end(link, 0);
    pex_link_close_end(link, 1);
    if (link->server != NULL) {
        end_server(link->server);
    }
    free(link);
}

enum pex_link_kind pex_link_kind_of(const void *state)
{
    const enum pex_link_kind *kind = state;
    return *kind;
}

int pex_link_tear_down(void **state)
{
    pex_link_close(*state);
    assert_null(via_pex_find("test"));
    return 0;
}

/* --- turns --- */

void pex_link_turn(struct pex_link *link, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        link->now_ns += VIA_MSEC_NS;
        for (unsigned side = 0; side < 2; side++) {
            struct pex_link_end *end = &link->end[side];
            if (end->port != NULL) {
                via_pex_driver.service(end->port, link->now_ns, &end->deadline_ns);
                assert_true(end->deadline_ns > link->now_ns);
            }
        }
    }
}

bool pex_link_is_up(const struct pex_link *link, unsigned side)
{
    struct via_port *port = link->end[side].port;
    return port->ops->link_is_up(port);
}

void pex_link_wait_for(struct pex_link *link, bool up)
{
    for (unsigned i = 0; pex_link_is_up(link, 0) != up || pex_link_is_up(link, 1) != up; i++) {
        assert_true(i < PEX_LINK_TURNS_MAX);
        pex_link_turn(link, 1);
    }
}

uint64_t pex_link_events(struct pex_link *link, unsigned side, uint64_t mask)
{
    struct via_port *port = link->end[side].port;
    return port->ops->events(port, mask);
}

void pex_link_check_data(struct pex_link *link)
{
    static uint64_t word;
    for (unsigned side = 0; side < 2; side++) {
        struct via_port *from = link->end[side].port, *to = link->end[1 - side].port;
        word += UINT64_C(0x0102030405060708);
        from->ops->commit(from, 0, 4096, &word, sizeof(word));
        assert_int_equal(from->ops->fence_start(from, 0), 0);
        assert_int_equal(from->ops->fence_poll(from, 0), 1);
        assert_memory_equal(to->inbox + 4096, &word, sizeof(word));
        assert_int_equal(from->ops->ring(from, 0, 5), 0);
        pex_link_turn(link, 1);
        assert_true(pex_link_events(link, 1 - side, 0xffff) == VIA_PORT_EVENT_DOORBELL(5));
    }
}

const char *pex_link_error(const struct pex_link *link, unsigned side)
{
    static struct via_port_status status;
    via_pex_driver.status(link->end[side].port, &status);
    return status.error;
}
