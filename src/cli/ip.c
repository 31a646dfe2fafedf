/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/ip_hosts.h"
#include "cli/request.h"

#define READY_NS (30 * VIA_SEC_NS)

static const char help[] =
    "usage: viaduct ip [status] [--json] [--fabric NAME]\n"
    "       viaduct ip up | down [--fabric NAME]\n"
    "\n"
    "IP over the fabric, of the hosts on this machine: viaduct-ip(8).\n"
    "\n"
    "  status           each host's device and address, and what went to and came from each other\n"
    "                   host: packets, bytes, and packets dropped with the reason (the default)\n"
    "  up               start viaduct-ip on each host of an emulated fabric with namespaces\n"
    "  down             end it on all hosts\n"
    "  --json           the status for programs\n"
    "  --fabric NAME    name of the fabric (default $VIADUCT_FABRIC or 'default')\n"
    "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"json", no_argument, NULL, 'j'},
    {"fabric", required_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* --- status ---------------------------------------------------------------------------------- */

static void print_drops(const json_t *object, const char *key, const char *what)
{
    const char *reason;
    json_t *count;
    json_object_foreach(json_object_get(object, key), reason, count)
    {
        printf("%14s dropped %s: %s %lld\n", "", what, reason, json_integer_value(count));
    }
}

static void print_peer(const json_t *peer)
{
    char host[16];
    const char *state = !json_is_true(json_object_get(peer, "up"))      ? "down"
                        : json_is_true(json_object_get(peer, "direct")) ? "direct"
                                                                        : "up";
    snprintf(host, sizeof(host), "%u", (unsigned)via_answer_u64(peer, "host"));
    printf("  %-4s %-15s %-6s %12" PRIu64 " %15" PRIu64 " %12" PRIu64 " %15" PRIu64 "\n", host,
           via_answer_text(peer, "address"), state, via_answer_u64(peer, "packets_sent"),
           via_answer_u64(peer, "bytes_sent"), via_answer_u64(peer, "packets_received"),
           via_answer_u64(peer, "bytes_received"));
    print_drops(peer, "drops_sent", "before sending");
    print_drops(peer, "drops_received", "on receipt");
}

static void print_host(const json_t *host)
{
    json_t *peers = json_object_get(host, "peers");
    json_t *peer;
    size_t i;
    printf("host %u: %s %s, %s, MTU %u%s\n", (unsigned)via_answer_u64(host, "host"),
           via_answer_text(host, "device"), via_answer_text(host, "address"),
           via_answer_text(host, "address6"), (unsigned)via_answer_u64(host, "mtu"),
           json_is_true(json_object_get(host, "attached")) ? "" : ", the host's daemon is away");
    print_drops(host, "drops_sent", "before sending");
    if (json_array_size(peers) != 0) {
        printf("  %-4s %-15s %-6s %12s %15s %12s %15s\n", "host", "address", "state",
               "packets sent", "bytes", "received", "bytes");
    }
    json_array_foreach(peers, i, peer)
    {
        print_peer(peer);
    }
}

static int show(const struct via_fabric *fabric, bool json, struct via_error *err)
{
    json_t *hosts = via_ip_hosts_request(fabric);
    json_t *host;
    size_t i;
    int rc = 0;
    if (hosts == NULL) {
        return via_error_set(err, -ENOMEM, "status: out of memory");
    }
    if (json) {
        rc = json_dumpf(hosts, stdout, JSON_INDENT(1)) == 0
                 ? 0
                 : via_error_set(err, -EIO, "status: write as JSON: failed");
        putchar('\n');
    } else if (json_array_size(hosts) == 0) {
        rc = via_error_set(err, -ENOENT,
                           "fabric '%s': no viaduct-ip runs on this machine (no %s/host-*.ip)",
                           fabric->name, fabric->rundir.text);
    } else {
        json_array_foreach(hosts, i, host)
        {
            print_host(host);
        }
    }
    json_decref(hosts);
    return rc;
}

/* --- up and down ----------------------------------------------------------------------------- */

static int start(struct via_fabric *fabric, struct via_error *err)
{
    unsigned host = 0;
    int rc = via_fabric_load(fabric, err);
    if (rc == 0 && !fabric->netns) {
        rc = via_error_set(err, -EINVAL,
                           "fabric '%s': IP: its hosts have no network namespaces of their own "
                           "(viaduct up --netns)",
                           fabric->name);
    }
    if (rc == 0) {
        rc = via_ip_hosts_start(fabric, via_process_now_ns() + READY_NS, &host, err);
    }
    if (rc != 0 && host != 0) {
        via_ip_hosts_print_log(fabric, host, stderr);
    }
    return rc;
}

static int end(const struct via_fabric *fabric, struct via_error *err)
{
    int count = via_ip_hosts_end(fabric, err);
    if (count >= 0) {
        printf("IP over fabric '%s' is down: %d host%s\n", fabric->name, count,
               count == 1 ? "" : "s");
    }
    return via_min(count, 0);
}

int via_cli_ip(int argc, char **argv)
{
    static struct via_fabric fabric;
    struct via_error err = {0};
    const char *name = NULL;
    bool json = false;
    int opt;
    while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (opt) {
        case 'j':
            json = true;
            break;
        case 'f':
            name = optarg;
            break;
        default:
            return via_cli_take_help(argv[0], opt, help);
        }
    }
    const char *word = optind < argc ? argv[optind++] : "status";
    if (optind < argc) {
        return via_cli_usage(argv[0], "'%s': one argument too many", argv[optind]);
    }
    bool up = strcmp(word, "up") == 0;
    bool down = strcmp(word, "down") == 0;
    if (!up && !down && strcmp(word, "status") != 0) {
        return via_cli_usage(argv[0], "'%s': not one of status, up, down", word);
    }
    /* `up` and `down` are for emulated fabrics. */
    int rc =
        up || down ? via_fabric_init(&fabric, name, &err) : via_fabric_locate(&fabric, name, &err);
    if (rc == 0) {
        rc = up ? start(&fabric, &err) : down ? end(&fabric, &err) : show(&fabric, json, &err);
    }
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}
