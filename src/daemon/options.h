/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_OPTIONS_H
#define VIA_DAEMON_OPTIONS_H

#include <sys/types.h>

#include "base/log.h"
#include "core/node.h"
#include "host/host.h"
#include "host/host_identity.h"
#include "host/rundir.h"

#define VIA_DAEMON_DESCRIPTION_BYTES 512u
#define VIA_DAEMON_PATH_BYTES 256u
/* Maximum of links without a configuration file. */
#define VIA_DAEMON_LINKS_MAX 64u
/* The run directory of a machine's daemon. */
#define VIA_DAEMON_RUNDIR "/run/viaduct"
/* ... and its state directory, if it runs as root. */
#define VIA_DAEMON_STATE "/var/lib/viaduct"

/* Options of the command line, or of the configuration file. */
struct via_daemon_options {
    struct via_host_options host; /* points into the fields below */
    struct via_host_link links[VIA_PORTS_MAX];
    char link_descriptions[VIA_PORTS_MAX][VIA_DAEMON_DESCRIPTION_BYTES];
    struct via_rundir_path rundir;
    enum via_log_level log_level;
    uint32_t log_bytes; /* largest size of the log file */
    int ready_fd;       /* -1: none */
    bool foreground;
    bool parent_death;
    const char *key_path;  /* NULL: no fabric key */
    const char *tune_path; /* NULL: no measured settings */
    const char *metrics;   /* ADDRESS:PORT of the metrics server; NULL: none */
    pid_t with;            /* process with which the daemon ends; 0: none */

    const char *config_path; /* NULL: all options are on the command line */
    bool check;              /* only check the file */
    /* Of the file. `host` and key_path point here. */
    struct via_host_identity identity;
    const char *addresses[VIA_HOST_ADDRESSES_MAX];
    char listen[128];
    char key_file[VIA_DAEMON_PATH_BYTES];
    char tune_file[VIA_DAEMON_PATH_BYTES];
    char metrics_at[64];
    char state[VIA_DAEMON_PATH_BYTES];    /* directory that survives restarts; "": none */
    bool measures;                        /* measures TCP connections automatically */
    char log_file[VIA_DAEMON_PATH_BYTES]; /* "": the default place */
    char link_names[VIA_PORTS_MAX][VIA_FABRIC_NAME_BYTES_MAX + 1];
};

enum via_daemon_next {
    VIA_DAEMON_RUN,
    VIA_DAEMON_DONE,  /* --help, --version: printed */
    VIA_DAEMON_WRONG, /* an error was printed on standard error */
};

/* Zero, except members with another default. */
void via_daemon_options_init(struct via_daemon_options *options);

enum via_daemon_next via_daemon_parse(int argc, char **argv,
                                      struct via_daemon_options *ret_options);

#endif
