/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* cut and mend: both ends get the request, so that one end suffices if the other host has died. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/request.h"

#define ANSWER_MS 5000u
/* A mended link and its routes are up within this time. */
#define MEND_NS (3 * VIA_SEC_NS)

static const char help[] =
    "usage: viaduct %s A B [--cable N] [--fabric NAME | --rundir DIR]\n"
    "\n"
    "%s the link between hosts A and B, which are ids, or names where hosts have names.\n"
    "\n"
    "  --cable N        of several cables between them only this one, counted from 0\n"
    "  --fabric NAME    name of the fabric (default $VIADUCT_FABRIC or "
    "'default')\n" VIA_CLI_RUNDIR_HELP "  -h, --help       this text\n";

static const struct option long_options[] = {{"cable", required_argument, NULL, 'c'},
                                             VIA_CLI_FABRIC_OPTIONS};

struct options {
    const char *fabric;
    int cable; /* -1: all */
    const char *words[2];
    unsigned hosts[2]; /* the ids of the words */
};

static int take_hosts(int argc, char **argv, struct options *options)
{
    if (argc - optind != 2) {
        return via_cli_usage(argv[0], "which link? the ids or names of its two hosts");
    }
    for (int i = 0; i < 2; i++) {
        options->words[i] = argv[optind + i];
        if (!via_cli_is_host(options->words[i])) {
            return via_cli_usage(argv[0], "'%s': neither a host id nor a name", options->words[i]);
        }
    }
    return -1;
}

/* -1: continue; otherwise the exit code. */
static int take_options(int argc, char **argv, const char *cmd, const char *verb,
                        struct options *options)
{
    unsigned cable;
    int opt, code;
    while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (opt) {
        case 'c':
            if (via_cli_number(optarg, 0, VIA_TOPOLOGY_PORTS_MAX - 1, &cable) != 0) {
                return via_cli_usage(argv[0], "--cable: '%s': not a number of a cable", optarg);
            }
            options->cable = (int)cable;
            break;
        case 'h':
            /* Both commands use this one format. */
            printf(help, cmd, verb);
            return VIA_CLI_OK;
        default:
            code = via_cli_take_fabric(argv[0], opt, help, &options->fabric);
            if (code >= 0) {
                return code;
            }
        }
    }
    return take_hosts(argc, argv, options);
}

static int find_hosts(const struct via_fabric *fabric, struct options *options,
                      struct via_error *err)
{
    int rc = 0;
    for (unsigned i = 0; i < 2 && rc == 0; i++) {
        rc = via_fabric_resolve(fabric, options->words[i], &options->hosts[i], err);
    }
    return rc;
}

/* -ENOENT, and the text says why: there is no such link. */
static int find_link(const struct via_fabric *fabric, const struct options *options,
                     struct via_error *err)
{
    const unsigned *hosts = options->hosts;
    int count = 0;
    for (unsigned i = 0; i < fabric->topology.links_count; i++) {
        const struct via_topology_link *link = &fabric->topology.links[i];
        count += link->a == via_min(hosts[0], hosts[1]) && link->b == via_max(hosts[0], hosts[1]);
    }
    if (count == 0) {
        return via_error_set(err, -ENOENT, "link %u-%u: find: fabric '%s' has no such link",
                             hosts[0], hosts[1], fabric->name);
    }
    if (options->cable >= count) {
        return via_error_set(err, -ENOENT, "link %u-%u: find cable %d: there %s %d", hosts[0],
                             hosts[1], options->cable, count == 1 ? "is only" : "are only", count);
    }
    return 0;
}

/* Finds the port of a cable at a host, which identifies the cable to the daemon. */
static int port_of(const struct via_fabric *fabric, unsigned host, unsigned peer, unsigned cable,
                   int *ret_port, struct via_error *err)
{
    json_t *status = NULL;
    int rc = via_fabric_request(fabric, host, "status", ANSWER_MS, &status, err);
    json_t *link = via_answer_link(status, peer, cable);
    if (rc == 0 && link == NULL) {
        rc = via_error_set(err, -ENOENT,
                           "host %u: cable %u to host %u: the daemon has no such cable", host,
                           cable, peer);
    }
    *ret_port = (int)via_answer_u64(link, "port");
    json_decref(status);
    return rc;
}

static int request_end(const struct via_fabric *fabric, const char *cmd,
                       const struct options *options, unsigned end, struct via_error *err)
{
    unsigned host = options->hosts[end];
    unsigned peer = options->hosts[1 - end];
    int port = -1;
    int rc =
        options->cable >= 0 ? port_of(fabric, host, peer, (unsigned)options->cable, &port, err) : 0;
    return rc != 0 ? rc : via_fabric_request_link(fabric, host, cmd, peer, port, ANSWER_MS, err);
}

static bool is_dead(int rc)
{
    return rc == -ENOENT || rc == -ECONNREFUSED;
}

/* The end at a dead host needs no cut, and a mended link waits for that host. */
static int request_both(const struct via_fabric *fabric, const char *cmd,
                        const struct options *options, struct via_error *err)
{
    struct via_error errs[2] = {{{0}, 0}, {{0}, 0}};
    int rcs[2];
    for (unsigned i = 0; i < 2; i++) {
        rcs[i] = request_end(fabric, cmd, options, i, &errs[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        if (rcs[i] != 0 && (!is_dead(rcs[i]) || rcs[1 - i] != 0)) {
            *err = errs[i];
            via_error_prefix(err, "link %u-%u: %s: ", options->hosts[0], options->hosts[1], cmd);
            return rcs[i];
        }
    }
    return 0;
}

/* --- between machines ------------------------------------------------------------------------ */

/* The distance of a host according to the directory; UINT_MAX: unreachable. */
static unsigned hops_to(const struct via_fabric *fabric, unsigned host)
{
    json_t *hops = json_object_get(via_fabric_entry(fabric, host), "hops");
    return json_is_integer(hops) ? (unsigned)json_integer_value(hops) : UINT_MAX;
}

/*
 * Cuts a link at one end, which suffices. It chooses the nearer end: the route to that end does not
 * lead over the link, so the end can later receive the request to mend it.
 */
static int cut_between(const struct via_fabric *fabric, const struct options *options,
                       struct via_error *err)
{
    unsigned near = hops_to(fabric, options->hosts[1]) < hops_to(fabric, options->hosts[0]);
    return request_end(fabric, "cut", options, near, err);
}

/* Mends both ends, because either may have been cut. An end that is reachable only over the link
 * gets its request after the other end. */
static int mend_between(const struct via_fabric *fabric, const struct options *options,
                        struct via_error *err)
{
    unsigned near = hops_to(fabric, options->hosts[1]) < hops_to(fabric, options->hosts[0]);
    int rc = request_end(fabric, "mend", options, near, err);
    if (rc != 0) {
        return rc;
    }
    uint64_t end_ns = via_process_now_ns() + MEND_NS;
    for (;;) {
        rc = request_end(fabric, "mend", options, 1 - near, err);
        if (rc != -EHOSTUNREACH || via_process_now_ns() >= end_ns) {
            break;
        }
        usleep(50000);
    }
    if (rc == -EHOSTUNREACH) {
        via_error_prefix(
            err, "host %u has mended its end, but not the other end: ", options->hosts[near]);
    }
    return rc;
}

static int request_between(const struct via_fabric *fabric, const char *cmd,
                           const struct options *options, struct via_error *err)
{
    int rc = strcmp(cmd, "cut") == 0 ? cut_between(fabric, options, err)
                                     : mend_between(fabric, options, err);
    if (rc != 0) {
        via_error_prefix(err, "link %u-%u: %s: ", options->hosts[0], options->hosts[1], cmd);
    }
    return rc;
}

static int cut_or_mend(int argc, char **argv, const char *cmd, const char *verb)
{
    static struct via_fabric fabric;
    struct options options = {.cable = -1};
    struct via_error err = {0};
    int code = take_options(argc, argv, cmd, verb, &options);
    if (code >= 0) {
        return code;
    }
    int rc = via_fabric_open(&fabric, options.fabric, &err);
    if (rc == 0) {
        rc = find_hosts(&fabric, &options, &err);
    }
    if (rc == 0) {
        rc = find_link(&fabric, &options, &err);
    }
    if (rc == 0) {
        rc = fabric.local >= 0 ? request_between(&fabric, cmd, &options, &err)
                               : request_both(&fabric, cmd, &options, &err);
    }
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}

int via_cli_cut(int argc, char **argv)
{
    return cut_or_mend(argc, argv, "cut", "Cuts");
}

int via_cli_mend(int argc, char **argv)
{
    return cut_or_mend(argc, argv, "mend", "Mends");
}
