/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The ivshmem port for the suite: its ends are peers on the socket of a server, which is a separate
 * process. Each link has a cell, which still has the contents of earlier tests' links. */
#include "conform_ivshmem.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "port/ivshmem/ivshmem.h"
#include "port/ivshmem/server.h"

#define MEMORY_BYTES (4u << 20)
#define VECTORS 16u
#define CLIENTS_MAX 8u

static char directory[64];
static char path[96];
static struct via_ivshmem_server *server;
static pid_t server_pid;

static _Noreturn void serve(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        struct pollfd look = {.fd = via_ivshmem_server_fd(server), .events = POLLIN};
        poll(&look, 1, -1);
        via_ivshmem_server_service(server);
    }
}

int conform_ivshmem_begin(void)
{
    struct via_error err = {0};
    strcpy(directory, "/tmp/via-ivshmem-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        perror("mkdtemp");
        return 1;
    }
    snprintf(path, sizeof(path), "%s/server.sock", directory);
    struct via_ivshmem_server_options options = {
        .path = path, .memory_bytes = MEMORY_BYTES, .vectors = VECTORS, .clients_max = CLIENTS_MAX};
    if (via_ivshmem_server_open(&options, &server, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        rmdir(directory);
        return 1;
    }
    server_pid = fork();
    if (server_pid == 0) {
        serve();
    }
    return server_pid > 0 ? 0 : 1;
}

void conform_ivshmem_end(void)
{
    kill(server_pid, SIGKILL);
    waitpid(server_pid, NULL, 0);
    via_ivshmem_server_close(server);
    rmdir(directory);
}

static void wake(void *ctx, unsigned thread)
{
    struct via_bell *bells = ctx;
    via_bell_ring(&bells[thread]);
}

static int ivshmem_open(struct conform_end *end, const char *unused)
{
    (void)unused;
    struct via_error err = {0};
    end->bell = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct via_ivshmem_options options = {
        .target = path,
        .side = end->side,
        .cell = 1,
        .window_bytes = CONFORM_INBOX_BYTES,
        .host = (uint16_t)(end->side + 1),
        .threads_count = CONFORM_BELL_LINES,
        .wake = wake,
        .ctx = end->bell,
    };
    int rc = via_ivshmem_port_open(&options, &end->port, &err);
    if (rc != 0) {
        fprintf(stderr, "%s\n", err.text);
        munmap(end->bell, 4096);
    }
    return rc;
}

static int ivshmem_fd(struct conform_end *end)
{
    return via_ivshmem_port_fd(end->port);
}

static void ivshmem_service(struct conform_end *end, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    via_ivshmem_port_service(end->port, now_ns, ret_deadline_ns);
}

static void ivshmem_cut(struct conform_end *end, bool cut)
{
    via_ivshmem_port_cut(end->port, cut);
}

static uint64_t ivshmem_puts_out_of_bounds(struct conform_end *end)
{
    struct via_ivshmem_status status;
    via_ivshmem_port_status(end->port, &status);
    return status.puts_out_of_bounds;
}

static void ivshmem_close(struct conform_end *end)
{
    end->port->ops->close(end->port);
    munmap(end->bell, 4096);
}

const struct conform_kind conform_ivshmem = {
    .name = "ivshmem",
    .open = ivshmem_open,
    .fd = ivshmem_fd,
    .service = ivshmem_service,
    .cut = ivshmem_cut,
    .puts_out_of_bounds = ivshmem_puts_out_of_bounds,
    .close = ivshmem_close,
};
