/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_OPTIONS_H
#define VIA_DAEMON_OPTIONS_H

#include <sys/types.h>

#include "base/log.h"
#include "core/node.h"
#include "host/host.h"
#include "host/rundir.h"

#define VIA_DAEMON_DESCRIPTION_BYTES 512u

/* What the command line says. */
struct via_daemon_options {
    struct via_host_options host; /* points into what follows */
    struct via_host_link links[VIA_PORTS_MAX];
    char link_descriptions[VIA_PORTS_MAX][VIA_DAEMON_DESCRIPTION_BYTES];
    struct via_rundir_path rundir;
    enum via_log_level log_level;
    uint32_t log_bytes; /* most that the log file grows to */
    int ready_fd;       /* -1 = none */
    bool foreground;
    bool parent_death;
    const char *key_path; /* NULL = no fabric key */
    pid_t with;           /* end when it ends; 0 = nobody */
};

enum via_daemon_next {
    VIA_DAEMON_RUN,
    VIA_DAEMON_DONE,  /* --help, --version: printed */
    VIA_DAEMON_WRONG, /* said on standard error */
};

enum via_daemon_next via_daemon_parse(int argc, char **argv,
                                      struct via_daemon_options *ret_options);

#endif
