/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_CLI_H
#define VIA_CLI_CLI_H

#include "base/error.h"

/*
 * The parts that all sub-commands share. Each sub-command gets argv[0] = "viaduct NAME", so that
 * messages of getopt_long name it, and returns the exit code.
 */
#define VIA_CLI_OK 0
#define VIA_CLI_FAILED 1
#define VIA_CLI_USAGE 2

int via_cli_up(int argc, char **argv);
int via_cli_down(int argc, char **argv);
int via_cli_status(int argc, char **argv);
int via_cli_top(int argc, char **argv);
int via_cli_report(int argc, char **argv);
int via_cli_metrics(int argc, char **argv);
int via_cli_run(int argc, char **argv);
int via_cli_cut(int argc, char **argv);
int via_cli_reload(int argc, char **argv);
int via_cli_mend(int argc, char **argv);
int via_cli_shmem(int argc, char **argv);
int via_cli_doctor(int argc, char **argv);
int via_cli_perf(int argc, char **argv);
int via_cli_sim(int argc, char **argv);
int via_cli_model(int argc, char **argv);
int via_cli_port(int argc, char **argv);
int via_cli_card(int argc, char **argv);
int via_cli_plan(int argc, char **argv);
int via_cli_tune(int argc, char **argv);
int via_cli_sockets(int argc, char **argv);
int via_cli_ip(int argc, char **argv);
int via_cli_ivshmem_server(int argc, char **argv);

/* Replaces this process by a script of share/viaduct, with these arguments. Returns the exit code
 * only on failure. name: for messages. */
VIA_MUST_CHECK int via_cli_script(const char *name, const char *file, int argc, char **argv);

/* Prints "NAME: object: attempt: cause" on standard error. Returns VIA_CLI_FAILED. name:
 * argv[0]. */
int via_cli_fail(const char *name, const struct via_error *err);

/* Prints the error in the command line (NULL: getopt has printed it) and a hint to --help. Returns
 * VIA_CLI_USAGE. */
int via_cli_usage(const char *name, const char *format, ...) VIA_PRINTF(2, 3);

/* Parses a decimal number, min to max. 0 or -EINVAL. */
int via_cli_number(const char *text, unsigned min, unsigned max,
                   unsigned *ret_number) VIA_MUST_CHECK;

/* True if the text may be a host's id or name. */
bool via_cli_is_host(const char *text) VIA_MUST_CHECK;

/* --rundir DIR of commands that read a fabric: equivalent to VIADUCT_RUNDIR without the name of a
 * fabric. */
#define VIA_CLI_RUNDIR 256
#define VIA_CLI_RUNDIR_HELP \
    "  --rundir DIR     run directory of the daemon to query (/run/viaduct)\n"
void via_cli_set_rundir(const char *rundir);

/* Handles 'h' by printing the text, and an unknown option, which getopt has reported. Returns the
 * exit code. name: argv[0]. */
VIA_MUST_CHECK int via_cli_take_help(const char *name, int opt, const char *help);

/* Options of commands on a fabric, for the end of long_options; "h" is the short option. */
#define VIA_CLI_FABRIC_OPTIONS                                                                     \
    {"fabric", required_argument, NULL, 'f'}, {"rundir", required_argument, NULL, VIA_CLI_RUNDIR}, \
        {"help", no_argument, NULL, 'h'},                                                          \
    {                                                                                              \
        NULL, 0, NULL, 0                                                                           \
    }
/* Takes one of these options. -1: taken. Otherwise the exit code, after the help or the report of
 * an unknown option. name: argv[0]. */
VIA_MUST_CHECK int via_cli_take_fabric(const char *name, int opt, const char *help,
                                       const char **ret_fabric);
/* -1: no words are left. Otherwise VIA_CLI_USAGE, after a message. */
VIA_MUST_CHECK int via_cli_take_end(int argc, char **argv);

#endif
