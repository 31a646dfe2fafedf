/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"up", "bring an emulated fabric up on this machine", via_cli_up},
    {"down", "end a fabric and remove what it left", via_cli_down},
    {"status", "show hosts, links, routes and attached processes", via_cli_status},
    {"top", "show hosts, links, connections and jobs, live", via_cli_top},
    {"metrics", "print state and counters for Prometheus, or serve them by HTTP", via_cli_metrics},
    {"run", "run a program on a host of the fabric", via_cli_run},
    {"sockets", "list TCP connections and what carries them; run a program with the library",
     via_cli_sockets},
    {"ip", "show IP over the fabric: devices, packets and drops by host", via_cli_ip},
    {"ivshmem-server", "serve shared memory and interrupts to virtual machines of this computer",
     via_cli_ivshmem_server},
    {"cut", "cut the link between two hosts", via_cli_cut},
    {"mend", "mend a link that was cut", via_cli_mend},
    {"reload", "make the daemon of this machine read its configuration file again", via_cli_reload},
    {"perf", "measure pingpong, put, get and barrier", via_cli_perf},
    {"report", "make one HTML page of the benchmarks of this machine", via_cli_report},
    {"tune", "measure which settings help on a link, and keep them", via_cli_tune},
    {"sim", "simulate whole fabrics under virtual time, with faults", via_cli_sim},
    {"model", "serve a register model of hardware by vfio-user", via_cli_model},
    {"port", "list, show, bind and unbind PCI functions that links can use", via_cli_port},
    {"card", "adapter cards: show roles, make EEPROM images, check a system", via_cli_card},
    {"plan", "estimate cost and performance of a fabric before buying it", via_cli_plan},
    {"shmem", "show which PE waits for which in running OpenSHMEM jobs", via_cli_shmem},
    {"doctor", "check this machine's set-up, and print how to repair problems", via_cli_doctor},
};

int via_cli_fail(const char *name, const struct via_error *err)
{
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", name, via_error_describe(err));
    return VIA_CLI_FAILED;
}

int via_cli_usage(const char *name, const char *format, ...)
{
    if (format != NULL) {
        va_list args;
        va_start(args, format);
        fprintf(stderr, "%s: ", name);
        vfprintf(stderr, format, args);
        va_end(args);
        fputc('\n', stderr);
    }
    fprintf(stderr, "Try '%s --help'.\n", name);
    return VIA_CLI_USAGE;
}

int via_cli_number(const char *text, unsigned min, unsigned max, unsigned *ret_number)
{
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number < min ||
        number > max) {
        return -EINVAL;
    }
    *ret_number = (unsigned)number;
    return 0;
}

bool via_cli_is_host(const char *text)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t bytes = strlen(text);
    return bytes != 0 && bytes <= 64 && strspn(text, allowed) == bytes && text[0] != '.' &&
           text[0] != '-';
}

void via_cli_set_rundir(const char *rundir)
{
    if (setenv("VIADUCT_RUNDIR", rundir, 1) != 0 || unsetenv("VIADUCT_FABRIC") != 0) {
        abort(); /* out of memory */
    }
}

int via_cli_take_help(const char *name, int opt, const char *help)
{
    if (opt != 'h') {
        return via_cli_usage(name, NULL);
    }
    fputs(help, stdout);
    return VIA_CLI_OK;
}

int via_cli_take_fabric(const char *name, int opt, const char *help, const char **ret_fabric)
{
    switch (opt) {
    case 'f':
        *ret_fabric = optarg;
        return -1;
    case VIA_CLI_RUNDIR:
        via_cli_set_rundir(optarg);
        return -1;
    default:
        return via_cli_take_help(name, opt, help);
    }
}

int via_cli_take_end(int argc, char **argv)
{
    return optind == argc ? -1
                          : via_cli_usage(argv[0], "'%s': one argument too many", argv[optind]);
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static void print_help(void)
{
    printf("usage: viaduct COMMAND [OPTION...]\n"
           "       viaduct help [COMMAND]\n"
           "       viaduct --version\n"
           "\n"
           "PCIe NTB cluster network, and the same network emulated on one machine.\n"
           "\n");
    for (size_t i = 0; i < VIA_ARRAY_COUNT(commands); i++) {
        printf("  %-15s %s\n", commands[i].name, commands[i].summary);
    }
    printf("\n"
           "'viaduct COMMAND --help' lists the options of a command, viaduct(1) explains all.\n");
}

static int run_command(const struct command *command, int argc, char **argv)
{
    char name[32];
    snprintf(name, sizeof(name), "viaduct %s", command->name);
    argv[0] = name;
    int code = command->run(argc, argv);
    /* A failed write to standard output, such as on a full disk, is a failure of the command. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == VIA_CLI_OK) {
        /* The reader (head, a pager) has closed the pipe: not an error for the user. */
        if (errno != EPIPE) {
            fprintf(stderr, "%s: standard output: write: %s\n", name, strerror(errno));
        }
        code = VIA_CLI_FAILED;
    }
    return code;
}

static int help(int argc, char **argv)
{
    if (argc < 2 || argv[1][0] == '-') {
        print_help();
        return VIA_CLI_OK;
    }
    const struct command *command = find_command(argv[1]);
    if (command == NULL) {
        return via_cli_usage("viaduct", "'%s': unknown command", argv[1]);
    }
    char *words[] = {argv[1], (char *)"--help", NULL};
    return run_command(command, 2, words);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    if (word == NULL) {
        return via_cli_usage("viaduct", "no command");
    }
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        return help(argc - 1, argv + 1);
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("viaduct %s\n", VIADUCT_VERSION);
        return VIA_CLI_OK;
    }
    const struct command *command = find_command(word);
    if (command == NULL) {
        return via_cli_usage("viaduct", "'%s': unknown %s", word,
                             word[0] == '-' ? "option" : "command");
    }
    return run_command(command, argc - 1, argv + 1);
}
