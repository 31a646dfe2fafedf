/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The library's own descriptors, whose numbers stay away from those of the program. */
#include <sys/resource.h>

#include "host/client.h"
#include "host/client_sys.h"

__attribute__((weak)) void via_client_fd_note_owner(int fd, bool ours)
{
    (void)fd;
    (void)ours;
}

int via_client_fd_keep(int fd)
{
    struct rlimit limit;
    long floor = 4096;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 2 < (rlim_t)floor) {
        floor = (long)(limit.rlim_cur / 2);
    }
    int high = via_sys_fcntl(fd, F_DUPFD_CLOEXEC, floor);
    if (high >= 0) {
        via_sys_close(fd);
        fd = high;
    }
    via_client_fd_note_owner(fd, true);
    return fd;
}

void via_client_fd_close(int fd)
{
    via_client_fd_note_owner(fd, false);
    via_sys_close(fd);
}
