/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <time.h>
#include <unistd.h>

int via_process_identify(pid_t pid, struct via_process *ret_process)
{
    char path[40];
    char text[512];
    if (pid <= 0) {
        return -ESRCH;
    }
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -ESRCH;
    }
    ssize_t bytes = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = '\0';
    /* Field 2 is a name in brackets that may contain any characters, also brackets: see proc(5). */
    const char *rest = strrchr(text, ')');
    char state;
    unsigned long long start_ticks;
    if (rest == NULL ||
        sscanf(rest,
               ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &state, &start_ticks) != 2 ||
        state == 'Z' || state == 'X') {
        return -ESRCH;
    }
    *ret_process = (struct via_process){.pid = pid, .start_ticks = start_ticks};
    return 0;
}

bool via_process_is_alive(const struct via_process *process)
{
    struct via_process now;
    return via_process_identify(process->pid, &now) == 0 && now.start_ticks == process->start_ticks;
}

int via_process_open(const struct via_process *process)
{
    int fd = process->pid > 0 ? pidfd_open(process->pid, 0) : -1;
    if (fd < 0) {
        return -ESRCH;
    }
    /* Checked after the open: if the id still belongs to this process now, so does the
     * descriptor. */
    if (!via_process_is_alive(process)) {
        close(fd);
        return -ESRCH;
    }
    return fd;
}

uint64_t via_process_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}
