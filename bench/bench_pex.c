/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The cost of the pex port on a BAR that is memory, beside the emulated port: 8-byte puts (a commit
 * and a flush), frames' bodies, and a put that is proven to have arrived.
 *
 *   bench_pex [--json FILE]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/types.h"
#include "bench/stats.h"
#include "port/driver.h"

#define ROUNDS 400u
#define OPS 2000u
#define BODY_BYTES 4096u

struct link {
    const char *name;
    struct via_link_config config[2];
    struct via_driver_host host;
    struct via_port *port[2];
    uint64_t number;
};

static _Noreturn void die(const char *attempt, const char *cause)
{
    fprintf(stderr, "bench_pex: %s: %s\n", attempt, cause);
    exit(1);
}

static void open_link(struct link *link, const char *directory, const char *rest,
                      const char *const sides[2])
{
    link->host = (struct via_driver_host){.host = 1, .inbox_bytes = 1 << 20, .bell_fd = -1};
    for (unsigned side = 0; side < 2; side++) {
        struct via_error err = {0};
        char text[160];
        snprintf(text, sizeof(text), "%s%s%s,side=%s",
                 strcmp(link->name, "emu") == 0 ? "emu:" : "pex:model:", directory, rest,
                 sides[side]);
        if (via_link_parse(text, &link->config[side], &err) != 0 ||
            link->config[side].driver->open(link->config[side].config, &link->host,
                                            &link->port[side], &err) != 0) {
            die(link->name, err.text);
        }
    }
    uint64_t now_ns = via_bench_now_ns();
    for (unsigned i = 0; !link->port[0]->ops->link_is_up(link->port[0]) ||
                         !link->port[1]->ops->link_is_up(link->port[1]);
         i++) {
        uint64_t deadline_ns;
        if (i == 1000) {
            die(link->name, "the link does not come up");
        }
        now_ns += VIA_MSEC_NS;
        for (unsigned side = 0; side < 2; side++) {
            link->config[side].driver->service(link->port[side], now_ns, &deadline_ns);
        }
    }
}

static void put(struct link *link)
{
    struct via_port *port = link->port[0];
    link->number++;
    port->ops->commit(port, 0, 64 * (link->number % 64), &link->number, sizeof(link->number));
    port->ops->flush(port, 0);
}

static void put_body(struct link *link)
{
    static unsigned char bytes[BODY_BYTES];
    struct via_port *port = link->port[0];
    port->ops->body(port, 0, 8192, bytes, sizeof(bytes));
    put(link);
}

static void put_and_fence(struct link *link)
{
    struct via_port *port = link->port[0];
    put(link);
    int rc = port->ops->fence_start(port, 0);
    while (rc == 0) {
        rc = port->ops->fence_poll(port, 0);
    }
    if (rc < 0) {
        die("fence", strerror(-rc));
    }
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* Measures both in turn, and prints the median of each. */
static void compare(const char *what, void (*op)(struct link *), struct link *links, unsigned ops,
                    FILE *json)
{
    static double ns[2][ROUNDS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < 2; i++) {
            uint64_t start_ns = via_bench_now_ns();
            for (unsigned k = 0; k < ops; k++) {
                op(&links[i]);
            }
            ns[i][round] = (double)(via_bench_now_ns() - start_ns) / ops;
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        qsort(ns[i], ROUNDS, sizeof(ns[i][0]), by_value);
    }
    double emu = ns[0][ROUNDS / 2], pex = ns[1][ROUNDS / 2];
    printf("%-32s %10.1f %10.1f %8.2f\n", what, emu, pex, pex / emu);
    if (json != NULL) {
        fprintf(json, "{\"what\": \"%s\", \"emu_ns\": %.2f, \"pex_ns\": %.2f}\n", what, emu, pex);
    }
}

int main(int argc, char **argv)
{
    static const char *const numbers[] = {"0", "1"}, *const names[] = {"virtual", "link"};
    struct link links[2] = {{.name = "emu"}, {.name = "pex"}};
    char directory[] = "/tmp/bench-pex-XXXXXX";
    FILE *json = argc == 3 && strcmp(argv[1], "--json") == 0 ? fopen(argv[2], "w") : NULL;
    if (argc != 1 && json == NULL) {
        die("usage", "bench_pex [--json FILE]");
    }
    if (mkdtemp(directory) == NULL) {
        die("directory", strerror(errno));
    }
    open_link(&links[0], directory, "/link.sock,nodirect", numbers);
    open_link(&links[1], directory, "", names);
    printf("%-32s %10s %10s %8s\n", "median, ns", "emu", "pex", "ratio");
    compare("put of 8 bytes", put, links, OPS, json);
    compare("put of 8 bytes, fenced", put_and_fence, links, OPS, json);
    compare("body of 4 KiB and put", put_body, links, OPS / 10, json);
    for (unsigned i = 0; i < 4; i++) {
        struct via_port *port = links[i / 2].port[i % 2];
        port->ops->close(port);
    }
    rmdir(directory);
    if (json != NULL) {
        fclose(json);
    }
    return 0;
}
