/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define VARIABLES_MAX 512u

/* --- the environment of the child ------------------------------------------------------------- */

struct variables {
    char rundir[PATH_MAX], host[32], parent[48];
    char *of[VARIABLES_MAX + 4];
};

static void fill_variables(struct variables *vars, const char *rundir, unsigned id)
{
    unsigned count = 0;
    snprintf(vars->rundir, sizeof(vars->rundir), "VIADUCT_RUNDIR=%s", rundir);
    snprintf(vars->host, sizeof(vars->host), "VIADUCT_HOST=%u", id);
    /* The child ends when this process has ended: tools/measure-sockets. */
    snprintf(vars->parent, sizeof(vars->parent), "VIADUCT_TUNE_PARENT=%d", (int)getpid());
    for (char **at = environ; *at != NULL && count < VARIABLES_MAX; at++) {
        if (strncmp(*at, "VIADUCT_", 8) != 0 && strncmp(*at, "NOTIFY_SOCKET=", 14) != 0 &&
            strncmp(*at, "WATCHDOG_", 9) != 0) {
            vars->of[count++] = *at;
        }
    }
    vars->of[count++] = vars->rundir;
    vars->of[count++] = vars->host;
    vars->of[count++] = vars->parent;
    vars->of[count] = NULL;
}

static int find_program(char ret_path[PATH_MAX])
{
    ssize_t bytes = readlink("/proc/self/exe", ret_path, PATH_MAX - sizeof("viaduct"));
    if (bytes <= 0) {
        return bytes < 0 ? -errno : -ENOENT;
    }
    ret_path[bytes] = '\0';
    char *slash = strrchr(ret_path, '/');
    strcpy(slash != NULL ? slash + 1 : ret_path, "viaduct");
    return 0;
}

static int spawn(pid_t *ret_pid, int output_fd, const char *path, const char *const *words,
                 char **variables)
{
    char *argv[VIA_CHILD_WORDS_MAX + 2] = {(char *)(uintptr_t) "viaduct"};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    for (unsigned i = 0; i < VIA_CHILD_WORDS_MAX && words[i] != NULL; i++) {
        argv[i + 1] = (char *)(uintptr_t)words[i];
    }
    sigemptyset(&none);
    sigfillset(&all);
    int code = posix_spawn_file_actions_init(&actions);
    if (code != 0) {
        return -code;
    }
    code = posix_spawnattr_init(&attributes);
    if (code != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return -code;
    }
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETPGROUP);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    code = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    for (int fd = 1; fd <= 2 && code == 0; fd++) {
        code = posix_spawn_file_actions_adddup2(&actions, output_fd, fd);
    }
    if (code == 0) {
        code = posix_spawn(ret_pid, path, &actions, &attributes, argv, variables);
    }
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -code;
}

/* --- the output of the child ------------------------------------------------------------------ */

/* Appends received output. False: the pipe is empty now. */
static bool read_some(struct via_child *child)
{
    char more[256];
    ssize_t count = read(child->output.fd, more, sizeof(more));
    if (count <= 0) {
        return count < 0 && errno == EINTR;
    }
    size_t room = sizeof(child->printed) - 1;
    size_t gone = child->bytes + (size_t)count > room ? child->bytes + (size_t)count - room : 0;
    memmove(child->printed, child->printed + gone, child->bytes - gone);
    child->bytes -= gone;
    memcpy(child->printed + child->bytes, more, (size_t)count);
    child->bytes += (size_t)count;
    child->printed[child->bytes] = '\0';
    return true;
}

static void close_source(struct via_host *host, struct via_host_source *source)
{
    int fd = source->fd;
    if (fd >= 0) {
        via_host_source_remove(host, source);
        close(fd);
    }
}

static void output_ready(struct via_host_source *source, uint32_t events)
{
    struct via_child *child = via_container_of(source, struct via_child, output);
    if (!read_some(child) && (events & (EPOLLHUP | EPOLLERR)) != 0) {
        close_source(child->host, source);
    }
}

static void end_ready(struct via_host_source *source, uint32_t events)
{
    struct via_child *child = via_container_of(source, struct via_child, end);
    int status = 0;
    (void)events;
    if (waitpid(child->pid, &status, WNOHANG) != child->pid) {
        return;
    }
    /* The other processes of its group have no task any more, and may hold the pipe open. */
    (void)kill(-child->pid, SIGKILL);
    for (unsigned i = 0; i < 64 && child->output.fd >= 0 && read_some(child); i++) {
    }
    close_source(child->host, &child->output);
    close_source(child->host, source);
    child->pid = 0;
    child->ended(child, status);
}

const char *via_child_last_line(struct via_child *child)
{
    while (child->bytes > 0 && child->printed[child->bytes - 1] == '\n') {
        child->printed[--child->bytes] = '\0';
    }
    const char *newline = strrchr(child->printed, '\n');
    for (char *at = child->printed; *at != '\0'; at++) {
        *at = (*at < ' ' && *at != '\n') || *at > '~' ? '?' : *at;
    }
    return newline != NULL ? newline + 1 : child->printed;
}

/* --- starting and ending ---------------------------------------------------------------------- */

static int watch(struct via_child *child)
{
    child->end.ready = end_ready;
    child->end.fd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    if (child->end.fd < 0) {
        return -errno;
    }
    int rc = via_host_source_add(child->host, &child->end, EPOLLIN);
    return rc == 0 ? via_host_source_add(child->host, &child->output, EPOLLIN) : rc;
}

int via_child_start(struct via_child *child, struct via_host *host, const char *rundir, unsigned id,
                    const char *const *words, struct via_error *err)
{
    static struct variables vars;
    char path[PATH_MAX] = "";
    int fds[2];
    child->host = host;
    child->bytes = 0;
    child->printed[0] = '\0';
    fill_variables(&vars, rundir, id);
    int rc = find_program(path);
    if (rc == 0 && pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        rc = -errno;
    }
    if (rc != 0) {
        return via_error_set(err, rc, "run %.200s: %s", path, strerror(-rc));
    }
    /* Programs expect a blocking output. */
    (void)fcntl(fds[1], F_SETFL, 0);
    child->output.ready = output_ready;
    child->output.fd = fds[0];
    rc = spawn(&child->pid, fds[1], path, words, vars.of);
    close(fds[1]);
    if (rc == 0) {
        rc = watch(child);
        if (rc != 0) {
            via_child_close(child);
        }
    } else {
        child->pid = 0;
        close(fds[0]);
        child->output.fd = -1;
    }
    return rc == 0 ? 0 : via_error_set(err, rc, "run %.200s: %s", path, strerror(-rc));
}

void via_child_kill(struct via_child *child)
{
    if (child->pid > 0) {
        (void)kill(-child->pid, SIGKILL);
    }
}

void via_child_close(struct via_child *child)
{
    if (child->pid > 0) {
        via_child_kill(child);
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) {
        }
        child->pid = 0;
    }
    close_source(child->host, &child->output);
    close_source(child->host, &child->end);
}
