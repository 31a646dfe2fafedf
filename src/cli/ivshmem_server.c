/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* ivshmem-server: memory and interrupts that the virtual machines of one computer share. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "port/ivshmem/server.h"

static const char help[] =
    "usage: viaduct ivshmem-server --socket PATH [OPTION...]\n"
    "\n"
    "Shares memory and interrupts among the virtual machines (QEMU's device ivshmem-doorbell) and\n"
    "the viaductd of this computer that connect to PATH. Ends at SIGINT or SIGTERM.\n"
    "\n"
    "  --socket PATH    where clients connect\n"
    "  --memory BYTES   of the shared memory, a power of two, with KiB, MiB or GiB (64MiB)\n"
    "  --vectors N      interrupts of each client, 1 to 64 (16)\n"
    "  --clients N      at once, 1 to 256 (16)\n"
    "  --mode OCTAL     of the socket: who may connect, and then use all of the memory (0600)\n"
    "  -h, --help       this text\n";

enum { OPT_SOCKET = 256, OPT_MEMORY, OPT_VECTORS, OPT_CLIENTS, OPT_MODE };

static const struct option long_options[] = {
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"vectors", required_argument, NULL, OPT_VECTORS},
    {"clients", required_argument, NULL, OPT_CLIENTS},
    {"mode", required_argument, NULL, OPT_MODE},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int take_bytes(const char *text, uint64_t *ret_bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB"};
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(units); i++) {
        if (text[0] >= '0' && text[0] <= '9' && errno == 0 && strcmp(end, units[i]) == 0 &&
            number <= UINT64_MAX >> (10 * i)) {
            *ret_bytes = (uint64_t)number << (10 * i);
            return 0;
        }
    }
    return -EINVAL;
}

static int take_mode(const char *text, mode_t *ret_mode)
{
    char *end;
    unsigned long mode = strtoul(text, &end, 8);
    if (text[0] < '0' || text[0] > '7' || *end != '\0' || mode == 0 || mode > 0777) {
        return -EINVAL;
    }
    *ret_mode = (mode_t)mode;
    return 0;
}

/* -1: continue; otherwise the exit code. */
static int take_options(int argc, char **argv, struct via_ivshmem_server_options *options)
{
    int opt;
    while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (opt) {
        case OPT_SOCKET:
            options->path = optarg;
            break;
        case OPT_MEMORY:
            if (take_bytes(optarg, &options->memory_bytes) != 0) {
                return via_cli_usage(argv[0], "--memory: '%s': not a number of bytes", optarg);
            }
            break;
        case OPT_VECTORS:
            if (via_cli_number(optarg, 1, 64, &options->vectors) != 0) {
                return via_cli_usage(argv[0], "--vectors: '%s': not 1 to 64", optarg);
            }
            break;
        case OPT_CLIENTS:
            if (via_cli_number(optarg, 1, VIA_IVSHMEM_CLIENTS_MAX, &options->clients_max) != 0) {
                return via_cli_usage(argv[0], "--clients: '%s': not 1 to %u", optarg,
                                     VIA_IVSHMEM_CLIENTS_MAX);
            }
            break;
        case OPT_MODE:
            if (take_mode(optarg, &options->mode) != 0) {
                return via_cli_usage(argv[0], "--mode: '%s': not an octal mode", optarg);
            }
            break;
        default:
            return via_cli_take_help(argv[0], opt, help);
        }
    }
    if (optind != argc) {
        return via_cli_usage(argv[0], "'%s': not an option", argv[optind]);
    }
    return options->path != NULL ? -1 : via_cli_usage(argv[0], "--socket is missing");
}

/* A signalfd for SIGINT and SIGTERM, or negative errno. */
static int catch_signals(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    int fd = signalfd(-1, &ends, SFD_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

/* Each client needs a descriptor for each vector, so the soft limit becomes the hard limit. */
static void raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void log_line(void *ctx, const struct via_log_message *message)
{
    (void)ctx;
    fprintf(stderr, "viaduct ivshmem-server: %s\n", message->text);
}

int via_cli_ivshmem_server(int argc, char **argv)
{
    struct via_error err;
    struct via_ivshmem_server *server;
    struct via_ivshmem_server_options options = {
        .memory_bytes = UINT64_C(64) << 20, .vectors = 16, .clients_max = 16};
    int code = take_options(argc, argv, &options);
    if (code >= 0) {
        return code;
    }
    via_log_set_sink(log_line, NULL);
    raise_limits();
    int signal_fd = catch_signals();
    if (signal_fd < 0) {
        via_error_set(&err, signal_fd, "signalfd: %s", strerror(-signal_fd));
        return via_cli_fail(argv[0], &err);
    }
    if (via_ivshmem_server_open(&options, &server, &err) != 0) {
        close(signal_fd);
        return via_cli_fail(argv[0], &err);
    }
    printf("serves %llu bytes on %s\n", (unsigned long long)options.memory_bytes, options.path);
    fflush(stdout);
    struct pollfd polls[] = {{.fd = signal_fd, .events = POLLIN},
                             {.fd = via_ivshmem_server_fd(server), .events = POLLIN}};
    while ((poll(polls, VIA_ARRAY_COUNT(polls), -1) >= 0 || errno == EINTR) &&
           (polls[0].revents & POLLIN) == 0) {
        via_ivshmem_server_service(server);
    }
    via_ivshmem_server_close(server);
    close(signal_fd);
    return VIA_CLI_OK;
}
