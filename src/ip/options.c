/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/options.h"

#include <errno.h>
#include <getopt.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ip/hello.h"
#include "ip/packet.h"
#include "ip/ring.h"

#define EXIT_WRONG 2
/* The least MTU of IPv6. */
#define MTU_MIN 1280u
#define MTU_MAX 65535u
#define SPIN_US_MAX 10000u

static const char help[] =
    "usage: viaduct-ip [OPTION...]\n"
    "\n"
    "IP over the fabric: a network device of this host, through which every program reaches the\n"
    "other hosts that run viaduct-ip. Runs in the foreground until it is ended by SIGTERM.\n"
    "\n"
    "  --network A.B.C.D/N   addresses of hosts are this plus their id (" VIA_IP_NETWORK4_DEFAULT
    ")\n"
    "  --network6 PREFIX/N   the same for IPv6, or none (" VIA_IP_NETWORK6_DEFAULT ")\n"
    "  --name NAME           name of the device (via0)\n"
    "  --mtu N               longest packet, 1280 to 65535 (65000)\n"
    "  --queues N            queues of the device, each with a thread, 1 to 8 (1)\n"
    "  --ring-kib N          memory for packets of each other host, per queue: a power of two, "
    "256\n"
    "                        to 65536 (1024)\n"
    "  --no-offload          the kernel segments packets and computes checksums before it gives\n"
    "                        them to viaduct-ip\n"
    "  --forward             take packets for other destinations, too: this host routes them\n"
    "  --spin-us N           longest that a thread polls before it sleeps, 0 to 10000 (50)\n"
    "  --rundir DIR          directory of the fabric's sockets\n"
    "  --fabric NAME         name of the fabric, when no directory is given\n"
    "  --host ID             the host to attach to\n"
    "  --ready-fd FD         write a byte to FD, and close it, when the device is up\n"
    "  --with PID            end when this process ends\n"
    "  -h, --help            this text\n"
    "  -V, --version\n";

enum option_id {
    OPT_NETWORK = 256,
    OPT_NETWORK6,
    OPT_NAME,
    OPT_MTU,
    OPT_QUEUES,
    OPT_RING_KIB,
    OPT_NO_OFFLOAD,
    OPT_FORWARD,
    OPT_SPIN_US,
    OPT_RUNDIR,
    OPT_FABRIC,
    OPT_HOST,
    OPT_READY_FD,
    OPT_WITH,
};

static const struct option long_options[] = {
    {"network", required_argument, NULL, OPT_NETWORK},
    {"network6", required_argument, NULL, OPT_NETWORK6},
    {"name", required_argument, NULL, OPT_NAME},
    {"mtu", required_argument, NULL, OPT_MTU},
    {"queues", required_argument, NULL, OPT_QUEUES},
    {"ring-kib", required_argument, NULL, OPT_RING_KIB},
    {"no-offload", no_argument, NULL, OPT_NO_OFFLOAD},
    {"forward", no_argument, NULL, OPT_FORWARD},
    {"spin-us", required_argument, NULL, OPT_SPIN_US},
    {"rundir", required_argument, NULL, OPT_RUNDIR},
    {"fabric", required_argument, NULL, OPT_FABRIC},
    {"host", required_argument, NULL, OPT_HOST},
    {"ready-fd", required_argument, NULL, OPT_READY_FD},
    {"with", required_argument, NULL, OPT_WITH},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

static int complain(const char *format, ...) VIA_PRINTF(1, 2);

static int complain(const char *format, ...)
{
    va_list args;
    fputs("viaduct-ip: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\nTry 'viaduct-ip --help'.\n", stderr);
    return EXIT_WRONG;
}

static int take_number(const char *option, unsigned min, unsigned max, unsigned *ret_number)
{
    char *end;
    errno = 0;
    unsigned long number = strtoul(optarg, &end, 10);
    if (optarg[0] < '0' || optarg[0] > '9' || *end != '\0' || errno != 0 || number < min ||
        number > max) {
        return complain("--%s: '%s': a number from %u to %u", option, optarg, min, max);
    }
    *ret_number = (unsigned)number;
    return 0;
}

static int take_network(const char *option,
                        int (*parse)(const char *, struct via_ip_network *, struct via_error *),
                        struct via_ip_options *options)
{
    struct via_error err = {0};
    return parse(optarg, &options->network, &err) == 0 ? 0 : complain("--%s: %s", option, err.text);
}

static int take_name(struct via_ip_options *options)
{
    if (optarg[0] == '\0' || strlen(optarg) >= IFNAMSIZ || strpbrk(optarg, "/: \t\n%") != NULL) {
        return complain("--name: '%s': it is not the name of a device", optarg);
    }
    options->name = optarg;
    return 0;
}

static int take_ring(struct via_ip_options *options)
{
    int code = take_number("ring-kib", VIA_IP_RING_BYTES_MIN >> 10, VIA_IP_RING_BYTES_MAX >> 10,
                           &options->ring_kib);
    if (code == 0 && !via_ip_ring_is_size((uint64_t)options->ring_kib << 10)) {
        code = complain("--ring-kib: '%s': it is not a power of two", optarg);
    }
    return code;
}

static int take_one(int opt, struct via_ip_options *options)
{
    unsigned number = 0;
    int code = 0;
    switch (opt) {
    case OPT_NETWORK:
        return take_network("network", via_ip_network_parse4, options);
    case OPT_NETWORK6:
        return take_network("network6", via_ip_network_parse6, options);
    case OPT_NAME:
        return take_name(options);
    case OPT_MTU:
        return take_number("mtu", MTU_MIN, MTU_MAX, &options->mtu);
    case OPT_QUEUES:
        return take_number("queues", 1, VIA_IP_QUEUES_MAX, &options->queues);
    case OPT_RING_KIB:
        return take_ring(options);
    case OPT_NO_OFFLOAD:
        options->offload = false;
        return 0;
    case OPT_FORWARD:
        options->forward = true;
        return 0;
    case OPT_SPIN_US:
        return take_number("spin-us", 0, SPIN_US_MAX, &options->spin_us);
    case OPT_RUNDIR:
        options->rundir = optarg;
        return 0;
    case OPT_FABRIC:
        options->fabric = optarg;
        return 0;
    case OPT_HOST:
        code = take_number("host", 0, UINT16_MAX, &number);
        options->host = (int)number;
        return code;
    case OPT_READY_FD:
        code = take_number("ready-fd", 3, 65535, &number);
        options->ready_fd = (int)number;
        return code;
    case OPT_WITH:
        code = take_number("with", 1, INT32_MAX, &number);
        options->with = (pid_t)number;
        return code;
    default:
        fputs("Try 'viaduct-ip --help'.\n", stderr);
        return EXIT_WRONG;
    }
}

static void set_defaults(struct via_ip_options *options)
{
    *options = (struct via_ip_options){
        .host = -1,
        .name = "via0",
        .mtu = 65000,
        .queues = 1,
        .ring_kib = 1024,
        .spin_us = 50,
        .offload = true,
        .ready_fd = -1,
    };
    /* Valid constants. */
    (void)!via_ip_network_parse4(VIA_IP_NETWORK4_DEFAULT, &options->network, NULL);
    (void)!via_ip_network_parse6(VIA_IP_NETWORK6_DEFAULT, &options->network, NULL);
}

int via_ip_options_take(int argc, char **argv, struct via_ip_options *options)
{
    int opt;
    int code = 0;
    set_defaults(options);
    while (code == 0 && (opt = getopt_long(argc, argv, "hV", long_options, NULL)) != -1) {
        if (opt == 'h' || opt == 'V') {
            printf("%s", opt == 'h' ? help : "viaduct-ip " VIADUCT_VERSION "\n");
            return 0;
        }
        code = take_one(opt, options);
    }
    if (code == 0 && optind < argc) {
        code = complain("'%s': one argument too many", argv[optind]);
    }
    return code == 0 ? -1 : code;
}
