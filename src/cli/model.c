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

#define NT_SOCKETS 4u
#define DMA_SOCKETS 3u
#define SOCKETS (NT_SOCKETS + DMA_SOCKETS)
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
    "  --two-nt-ports   a chip with two NT ports: four sockets, both sides of NT0, then of NT1;\n"
    "                   the virtual sides are one host's, whose DMA function has the first\n"
    "                   --dma-socket, then those of NT0's and NT1's link sides\n"
    "  --alut N         entries of the A-LUT: 0, 128 or 256 (default 256)\n"
    "  --nt-port N      number of the chip's port that is the NT port (default 0)\n"
    "  --eeprom FILE    the chip's EEPROM; one that is not there is made blank, 8 KiB\n"
    "  --commands       read commands from standard input, a line each, and end with it:\n"
    "                   cut, mend, reset virtual|link, remove virtual|link, insert\n"
    "                   virtual|link, lose virtual|link, speed GENERATION WIDTH, status,\n"
    "                   protect, unprotect (the EEPROM); nt 0|1: which NT port is meant from\n"
    "                   here on; dma-bus virtual|link BUS: what requests of that host's DMA\n"
    "                   function carry\n"
    "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"dma-socket", required_argument, NULL, 'd'},
    {"socket", required_argument, NULL, 's'},
    {"bar", required_argument, NULL, 'b'},
    {"b2b", no_argument, NULL, 'B'},
    {"two-nt-ports", no_argument, NULL, 'T'},
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
    unsigned place;
    int fd;
    pthread_t thread;
};

static _Atomic bool stop;
/* The windows are BAR 2/3 and 4/5. */
static struct via_vfio_user_bridge bridge = {.regions = 1u << 2 | 1u << 4};

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
    via_vfio_user_serve(served->fd, attach, served, &bridge, served->place, &stop);
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

static bool is_side(const char *name, enum via_pex_side *ret_side)
{
    *ret_side = name[0] == 'v' ? VIA_PEX_VIRTUAL : VIA_PEX_LINK;
    return strcmp(name, "virtual") == 0 || strcmp(name, "link") == 0;
}

/* Executes "dma-bus virtual|link BUS". */
static bool set_dma_bus(struct via_pex *pex, const char *name, const char *number)
{
    enum via_pex_side side;
    unsigned bus;
    if (!is_side(name, &side) || via_cli_number(number, 0, 255, &bus) != 0) {
        return false;
    }
    via_pex_engine_set_requester(pex, side, (uint16_t)(bus << 8));
    return true;
}

/* Executes "VERB virtual|link". */
static bool execute_on_side(struct via_pex *pex, const char *verb, const char *name)
{
    enum via_pex_side side;
    if (!is_side(name, &side)) {
        return false;
    }
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

/* Selects the NT port of this number for later commands. */
static bool choose_port(struct via_pex **pex, const char *number)
{
    bool is_chosen =
        via_pex_twin(*pex) != NULL && (strcmp(number, "0") == 0 || strcmp(number, "1") == 0);
    if (is_chosen && via_pex_number(*pex) != (unsigned)(number[0] - '0')) {
        *pex = via_pex_twin(*pex);
    }
    return is_chosen;
}

static bool execute(struct via_pex **meant, char *line)
{
    struct via_pex *pex = *meant;
    char *rest = NULL;
    const char *verb = strtok_r(line, " \n", &rest);
    const char *first = strtok_r(NULL, " \n", &rest);
    const char *second = strtok_r(NULL, " \n", &rest);
    unsigned generation, width;
    if (verb == NULL) {
        return true;
    }
    if (strcmp(verb, "dma-bus") == 0 && first != NULL && second != NULL) {
        return set_dma_bus(pex, first, second);
    }
    if (strcmp(verb, "speed") == 0 && first != NULL && second != NULL) {
        bool valid = via_cli_number(first, 1, 4, &generation) == 0 &&
                     via_cli_number(second, 1, 16, &width) == 0;
        if (valid) {
            via_pex_set_speed(pex, generation, width);
        }
        return valid;
    }
    if (first != NULL && second == NULL && strcmp(verb, "nt") == 0) {
        return choose_port(meant, first);
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
        printf("%s\n", execute(&pex, line) ? "ok" : "no such command");
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

enum shape { ONE_PORT, TWO_CHIPS, TWO_PORTS };

static int make(const struct via_pex_options *options, enum shape shape, struct via_pex **ret_pex,
                struct via_error *err)
{
    return shape == TWO_PORTS   ? via_pex_new_twins(options, ret_pex, err)
           : shape == TWO_CHIPS ? via_pex_new_pair(options, ret_pex, err)
                                : via_pex_new(options, ret_pex, err);
}

/* Assigns a function to each socket. Each of two chips has a virtual side and a host. Of a chip
 * with two NT ports, the first host has both virtual sides. */
static void assign(struct served served[SOCKETS], struct via_pex *pex, enum shape shape)
{
    struct via_pex *second = shape == TWO_CHIPS ? via_pex_joined(pex) : via_pex_twin(pex);
    for (unsigned i = 0; i < NT_SOCKETS; i++) {
        bool of_second = shape == TWO_CHIPS ? i % 2 == 1 : i >= 2;
        served[i].pex = of_second ? second : pex;
        served[i].side = i % 2 == 1 && shape != TWO_CHIPS ? VIA_PEX_LINK : VIA_PEX_VIRTUAL;
    }
    for (unsigned i = 0; i < DMA_SOCKETS; i++) {
        struct served *engine = &served[NT_SOCKETS + i];
        engine->is_engine = true;
        engine->pex = (shape == TWO_CHIPS && i == 1) || i == 2 ? second : pex;
        engine->side = i != 0 && shape != TWO_CHIPS ? VIA_PEX_LINK : VIA_PEX_VIRTUAL;
    }
}

static int start_all(struct served served[SOCKETS], char *const paths[SOCKETS],
                     struct via_error *err)
{
    int rc = 0;
    for (unsigned i = 0; i < SOCKETS && rc == 0; i++) {
        served[i].path = paths[i];
        served[i].place = i;
        rc = paths[i] != NULL ? start(&served[i], err) : 0;
        served[i].path = rc == 0 ? paths[i] : NULL;
    }
    return rc;
}

/* paths: sockets of the NT ports' functions, then of the DMA functions; NULL: not served. */
static int run(const struct via_pex_options *options, char *const paths[SOCKETS], enum shape shape,
               bool commands, struct via_error *err)
{
    struct served served[SOCKETS] = {0};
    struct sigaction action = {.sa_handler = on_signal};
    struct via_pex *pex;
    int rc = make(options, shape, &pex, err);
    if (rc != 0) {
        return rc;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    assign(served, pex, shape);
    rc = start_all(served, paths, err);
    if (rc == 0) {
        printf("virtual side on %s, %s side on %s\n", paths[0],
               shape == TWO_CHIPS ? "virtual" : "link", paths[1]);
        fflush(stdout);
    }
    if (rc == 0 && commands) {
        setvbuf(stdin, NULL, _IONBF, 0); /* unbuffered, so that poll() reports all unread input */
        read_commands(pex);
    }
    while (rc == 0 && !atomic_load_explicit(&stop, memory_order_relaxed)) {
        poll(NULL, 0, 100);
    }
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (unsigned i = 0; i < SOCKETS; i++) {
        if (served[i].path != NULL) {
            pthread_join(served[i].thread, NULL);
            close(served[i].fd);
            unlink(served[i].path);
        }
    }
    via_pex_free(pex);
    return rc;
}

/* Maps the file until the process ends. */
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
    enum shape shape = ONE_PORT;
    bool commands = false;
    struct via_error err = {0};
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        switch (c) {
        case 's':
            if (paths_count == NT_SOCKETS) {
                return via_cli_usage(argv[0], "--socket: more than four");
            }
            paths[paths_count++] = optarg;
            break;
        case 'd':
            if (engines_count == DMA_SOCKETS) {
                return via_cli_usage(argv[0], "--dma-socket: more than three");
            }
            paths[NT_SOCKETS + engines_count++] = optarg;
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
        case 'T':
            if (shape != ONE_PORT) {
                return via_cli_usage(argv[0], "--b2b and --two-nt-ports: one of them");
            }
            shape = c == 'B' ? TWO_CHIPS : TWO_PORTS;
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
    unsigned needed = shape == TWO_PORTS ? 4 : 2;
    if (paths_count != needed) {
        return via_cli_usage(argv[0], "--socket: %u given, %u are needed", paths_count, needed);
    }
    if (engines_count > 2 && shape != TWO_PORTS) {
        return via_cli_usage(argv[0], "--dma-socket: more than two hosts");
    }
    if (shape == TWO_CHIPS && options.eeprom != NULL) {
        return via_cli_usage(argv[0], "--b2b: an EEPROM is of one chip");
    }
    return run(&options, paths, shape, commands, &err) == 0 ? VIA_CLI_OK
                                                            : via_cli_fail(argv[0], &err);
}
