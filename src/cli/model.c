/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct model: register models of hardware, served to other processes. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "model/pex/pex.h"
#include "vfio/user.h"

#define SOCKETS 4u
#define EEPROM_BYTES 8192u
#define EEPROM_BYTES_MAX 65536u

static const char help[] =
    "usage: viaduct model pex --socket PATH --socket PATH [OPTION...]\n"
    "\n"
    "Serves a register model of an NT port of a PEX 87xx by vfio-user: its virtual side on the\n"
    "first socket, its link side on the second. Each takes one client at a time. The model is\n"
    "made from public sources; no chip was ever compared with it.\n"
    "\n"
    "  --socket PATH    a UNIX socket; twice\n"
    "  --dma-socket PATH\n"
    "                   the DMA function of the virtual side's host; twice: of both hosts\n"
    "  --bar MIB        size of BAR 2/3 of both sides, a power of two (default 4)\n"
    "  --b2b            two chips back to back: the virtual sides of both on the sockets\n"
    "  --alut N         entries of the A-LUT: 0, 128 or 256 (default 256)\n"
    "  --nt-port N      number of the chip's port that is the NT port (default 0)\n"
    "  --eeprom FILE    the chip's EEPROM; one that is not there is made blank, 8 KiB\n"
    "  --commands       read commands from standard input, a line each, and end with it:\n"
    "                   cut, mend, reset virtual|link, remove virtual|link, insert\n"
    "                   virtual|link, lose virtual|link, speed GENERATION WIDTH, status,\n"
    "                   protect, unprotect (the EEPROM)\n"
    "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"dma-socket", required_argument, NULL, 'd'},
    {"socket", required_argument, NULL, 's'},
    {"bar", required_argument, NULL, 'b'},
    {"b2b", no_argument, NULL, 'B'},
    {"alut", required_argument, NULL, 'a'},
    {"nt-port", required_argument, NULL, 'p'},
    {"eeprom", required_argument, NULL, 'e'},
    {"commands", no_argument, NULL, 'c'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct served {
    struct via_pex *pex;
    enum via_pex_side side;
    bool is_engine;
    const char *path;
    int fd;
    pthread_t thread;
};

static _Atomic bool stop;

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&stop, true, memory_order_relaxed);
}

static int attach(void *ctx, struct via_pci **ret_pci)
{
    struct served *served = ctx;
    return served->is_engine ? via_pex_attach_engine_apart(served->pex, served->side, ret_pci)
                             : via_pex_attach(served->pex, served->side, ret_pci);
}

static void *serve(void *arg)
{
    struct served *served = arg;
    via_vfio_user_serve(served->fd, attach, served, &stop);
    return NULL;
}

/* --- commands --- */

static void print_status(struct via_pex *pex)
{
    struct via_pex_stats stats;
    via_pex_stats(pex, &stats);
    printf("unclaimed %llu, requesters refused %llu, IOMMU faults %llu, interrupts %llu and %llu\n",
           (unsigned long long)stats.unclaimed, (unsigned long long)stats.requester_refused,
           (unsigned long long)stats.iommu_faults,
           (unsigned long long)stats.interrupts[VIA_PEX_VIRTUAL],
           (unsigned long long)stats.interrupts[VIA_PEX_LINK]);
}

/* "VERB virtual|link" */
static bool execute_on_side(struct via_pex *pex, const char *verb, const char *name)
{
    if (strcmp(name, "virtual") != 0 && strcmp(name, "link") != 0) {
        return false;
    }
    enum via_pex_side side = name[0] == 'v' ? VIA_PEX_VIRTUAL : VIA_PEX_LINK;
    if (strcmp(verb, "reset") == 0) {
        via_pex_reset_host(pex, side);
    } else if (strcmp(verb, "remove") == 0 || strcmp(verb, "insert") == 0) {
        via_pex_remove(pex, side, verb[0] == 'r');
    } else if (strcmp(verb, "lose") == 0) {
        via_pex_lose_interrupts(pex, side, 1);
    } else {
        return false;
    }
    return true;
}

static bool execute(struct via_pex *pex, char *line)
{
    char *rest = NULL;
    const char *verb = strtok_r(line, " \n", &rest);
    const char *first = strtok_r(NULL, " \n", &rest);
    const char *second = strtok_r(NULL, " \n", &rest);
    unsigned generation, width;
    if (verb == NULL) {
        return true;
    }
    if (strcmp(verb, "speed") == 0 && first != NULL && second != NULL) {
        bool valid = via_cli_number(first, 1, 4, &generation) == 0 &&
                     via_cli_number(second, 1, 16, &width) == 0;
        if (valid) {
            via_pex_set_speed(pex, generation, width);
        }
        return valid;
    }
    if (first != NULL) {
        return second == NULL && execute_on_side(pex, verb, first);
    }
    if (strcmp(verb, "protect") == 0 || strcmp(verb, "unprotect") == 0) {
        via_pex_eeprom_set_faults(pex,
                                  &(struct via_pex_eeprom_faults){.is_protected = verb[0] == 'p'});
    } else if (strcmp(verb, "cut") == 0 || strcmp(verb, "mend") == 0) {
        via_pex_set_link(pex, verb[0] == 'm');
    } else if (strcmp(verb, "status") == 0) {
        print_status(pex);
    } else {
        return false;
    }
    return true;
}

static void read_commands(struct via_pex *pex)
{
    char line[256];
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        struct pollfd ready = {.fd = STDIN_FILENO, .events = POLLIN};
        if (poll(&ready, 1, 100) <= 0) {
            continue;
        }
        if (fgets(line, sizeof(line), stdin) == NULL) {
            break;
        }
        printf("%s\n", execute(pex, line) ? "ok" : "no such command");
        fflush(stdout);
    }
    atomic_store_explicit(&stop, true, memory_order_relaxed);
}

/* --- the server --- */

static int start(struct served *served, struct via_error *err)
{
    int rc = via_vfio_user_listen(served->path, &served->fd, err);
    if (rc != 0) {
        return rc;
    }
    rc = pthread_create(&served->thread, NULL, serve, served);
    if (rc != 0) {
        close(served->fd);
        unlink(served->path);
        return via_error_set(err, -rc, "thread: %s", strerror(rc));
    }
    return 0;
}

/* paths: of the NT port's functions, then of the DMA functions; NULL: not served. */
static int run(const struct via_pex_options *options, char *const paths[SOCKETS], bool is_pair,
               bool commands, struct via_error *err)
{
    struct served served[SOCKETS] = {{.side = VIA_PEX_VIRTUAL},
                                     {.side = VIA_PEX_LINK},
                                     {.side = VIA_PEX_VIRTUAL, .is_engine = true},
                                     {.side = VIA_PEX_LINK, .is_engine = true}};
    struct sigaction action = {.sa_handler = on_signal};
    struct via_pex *pex, *second = NULL;
    int rc = via_pex_new(options, &pex, err);
    if (rc == 0 && is_pair) {
        rc = via_pex_new(options, &second, err);
        if (rc == 0) {
            via_pex_join(pex, second);
            served[1].side = served[3].side = VIA_PEX_VIRTUAL;
        } else {
            via_pex_free(pex);
        }
    }
    if (rc != 0) {
        return rc;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    unsigned started = 0;
    for (; started < SOCKETS && paths[started] != NULL && rc == 0; started += rc == 0) {
        served[started].pex = is_pair && started % 2 == 1 ? second : pex;
        served[started].path = paths[started];
        rc = start(&served[started], err);
    }
    if (rc == 0) {
        printf("virtual side on %s, %s side on %s\n", paths[0], is_pair ? "virtual" : "link",
               paths[1]);
        fflush(stdout);
    }
    if (rc == 0 && commands) {
        setvbuf(stdin, NULL, _IONBF, 0); /* poll() sees what is not yet read */
        read_commands(pex);
    }
    while (rc == 0 && !atomic_load_explicit(&stop, memory_order_relaxed)) {
        poll(NULL, 0, 100);
    }
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(served[i].thread, NULL);
        close(served[i].fd);
        unlink(served[i].path);
    }
    via_pex_free(pex);
    return rc;
}

/* The file's bytes, mapped until the process ends. */
static int map_eeprom(const char *path, struct via_pex_options *options, struct via_error *err)
{
    struct stat info;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || fstat(fd, &info) != 0) {
        int cause = errno;
        if (fd >= 0) {
            close(fd);
        }
        return via_error_set(err, -cause, "%s: open: %s", path, strerror(cause));
    }
    bool is_new = info.st_size == 0;
    size_t bytes = is_new ? EEPROM_BYTES : (size_t)info.st_size;
    void *at = MAP_FAILED;
    if (bytes <= EEPROM_BYTES_MAX && (!is_new || ftruncate(fd, EEPROM_BYTES) == 0)) {
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    int cause = bytes <= EEPROM_BYTES_MAX ? errno : EFBIG;
    close(fd);
    if (at == MAP_FAILED) {
        return via_error_set(err, -cause, "%s: map: %s", path, strerror(cause));
    }
    if (is_new) {
        memset(at, 0xff, bytes);
    }
    options->eeprom = at;
    options->eeprom_bytes = (uint32_t)bytes;
    return 0;
}

int via_cli_model(int argc, char **argv)
{
    struct via_pex_options options = via_pex_options_default;
    char *paths[SOCKETS] = {NULL};
    unsigned paths_count = 0, engines_count = 0, number;
    bool commands = false, is_pair = false;
    struct via_error err = {0};
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        switch (c) {
        case 's':
            if (paths_count == 2) {
                return via_cli_usage(argv[0], "--socket: more than two");
            }
            paths[paths_count++] = optarg;
            break;
        case 'd':
            if (engines_count == 2) {
                return via_cli_usage(argv[0], "--dma-socket: more than two");
            }
            paths[2 + engines_count++] = optarg;
            break;
        case 'b':
            if (via_cli_number(optarg, 1, 65536, &number) != 0) {
                return via_cli_usage(argv[0], "--bar %s: not 1 to 65536", optarg);
            }
            options.bar_bytes[0][0] = options.bar_bytes[1][0] = (uint64_t)number << 20;
            break;
        case 'a':
            if (via_cli_number(optarg, 0, 256, &options.alut_entries) != 0) {
                return via_cli_usage(argv[0], "--alut %s: not 0, 128 or 256", optarg);
            }
            break;
        case 'p':
            if (via_cli_number(optarg, 0, 23, &options.port) != 0) {
                return via_cli_usage(argv[0], "--nt-port %s: not 0 to 23", optarg);
            }
            break;
        case 'e':
            if (map_eeprom(optarg, &options, &err) != 0) {
                return via_cli_fail(argv[0], &err);
            }
            break;
        case 'B':
            is_pair = true;
            break;
        case 'c':
            commands = true;
            break;
        default:
            return via_cli_take_help(argv[0], c, help);
        }
    }
    if (optind + 1 != argc || strcmp(argv[optind], "pex") != 0) {
        return via_cli_usage(argv[0], "the model: not pex");
    }
    if (paths_count != 2) {
        return via_cli_usage(argv[0], "--socket: %u given, two are needed", paths_count);
    }
    if (is_pair && options.eeprom != NULL) {
        return via_cli_usage(argv[0], "--b2b: an EEPROM is of one chip");
    }
    return run(&options, paths, is_pair, commands, &err) == 0 ? VIA_CLI_OK
                                                              : via_cli_fail(argv[0], &err);
}
