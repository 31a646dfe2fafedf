/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/types.h"
#include "shmem/launch.h"

#define FILES_OF_PROGRAM 256u

/* A child's pipe for the reason why exec failed; a successful exec closes it. */
struct failure {
    int error;
    char attempt[32];
};

/* --- in the child ----------------------------------------------------------------------------- */

static __attribute__((noreturn)) void give_up(int fd, const char *attempt)
{
    struct failure failure = {.error = errno};

    snprintf(failure.attempt, sizeof(failure.attempt), "%s", attempt);
    if (write(fd, &failure, sizeof(failure)) < 0)
        _exit(126);
    _exit(127);
}

static bool set_environment(const struct via_launch *launch, uint32_t number)
{
    const struct via_job_pe *pe = &launch->files.job->pes[number];
    char text[128];

    snprintf(text, sizeof(text), "%d %d %d %d %u", launch->files.job_fd,
             launch->files.node_fds[pe->node], launch->files.life_fds[0], launch->files.call_fds[1],
             number);
    bool good = setenv(VIA_JOB_ENV, text, 1) == 0;
    if (launch->place.fabric) {
        snprintf(text, sizeof(text), "%u", pe->host);
        good = good && setenv("VIADUCT_HOST", text, 1) == 0 &&
               setenv("VIADUCT_RUNDIR", launch->place.rundir.text, 1) == 0;
    }
    return good;
}

/* Only PE 0 reads the standard input; with --tag, output goes through pipes. */
static bool set_streams(const struct via_launch *launch, uint32_t number, const int pipes[2][2])
{
    if (number == 0 && launch->input.pe_fd >= 0 && dup2(launch->input.pe_fd, STDIN_FILENO) < 0)
        return false;
    if (number != 0) {
        int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0)
            return false;
    }
    for (int i = 0; i < 2; i++)
        if (pipes[i][1] >= 0 && dup2(pipes[i][1], STDOUT_FILENO + i) < 0)
            return false;
    return true;
}

/* The user's limit, unless the descriptors of the other PEs exceed it. */
static void give_back_files(const struct via_launch *launch)
{
    struct rlimit limit = launch->files_limit;
    int inherited = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3); /* the first that is free */

    if (inherited < 0 || limit.rlim_cur < (rlim_t)inherited + FILES_OF_PROGRAM)
        limit.rlim_cur = via_min(limit.rlim_max, limit.rlim_cur + (rlim_t)via_max(inherited, 0));
    if (inherited >= 0)
        close(inherited);
    setrlimit(RLIMIT_NOFILE, &limit);
}

static __attribute__((noreturn)) void become_pe(const struct via_launch *launch, uint32_t number,
                                                const int pipes[2][2], pid_t parent, int failure_fd)
{
    sigset_t none;

    /* A process group of its own: children of the PE end with it. If the launcher is killed, the
     * kernel ends the PE (PR_SET_PDEATHSIG); the check after that call covers a launcher that was
     * killed before it. */
    if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        give_up(failure_fd, "process group");
    if (getppid() != parent)
        _exit(127);
    if (!set_streams(launch, number, pipes))
        give_up(failure_fd, "standard streams");
    if (!set_environment(launch, number))
        give_up(failure_fd, "environment");
    if (launch->preload && setenv("LD_PRELOAD", launch->preload, 1) < 0)
        give_up(failure_fd, "environment");
    give_back_files(launch);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    execvp(launch->options.argv[0], launch->options.argv);
    give_up(failure_fd, "");
}

/* --- in the launcher -------------------------------------------------------------------------- */

static int open_pipes(const struct via_launch *launch, int pipes[2][2], struct via_error *err)
{
    for (int i = 0; i < 2; i++)
        pipes[i][0] = pipes[i][1] = -1;
    for (int i = 0; i < 2 && launch->options.tag; i++)
        if (pipe2(pipes[i], O_CLOEXEC) < 0)
            return via_error_set(err, -errno, "output of a PE: pipe: %s", strerror(errno));
    return 0;
}

static void keep_pipes(struct via_launch *launch, uint32_t number, int pipes[2][2])
{
    for (int i = 0; i < 2; i++) {
        if (pipes[i][1] < 0)
            continue;
        close(pipes[i][1]);
        struct via_launch_stream *stream = &launch->streams[launch->streams_count++];
        stream->fd = pipes[i][0];
        stream->to_fd = STDOUT_FILENO + i;
        stream->pe = number;
        stream->used = 0;
        fcntl(stream->fd, F_SETFL, O_NONBLOCK);
    }
}

static int spawn(struct via_launch *launch, uint32_t number, int failure_fd, struct via_error *err)
{
    int pipes[2][2];
    pid_t parent = getpid();

    int result = open_pipes(launch, pipes, err);
    if (result < 0)
        return result;
    pid_t pid = fork();
    if (pid == 0)
        become_pe(launch, number, (const int(*)[2])pipes, parent, failure_fd);
    if (pid < 0)
        return via_error_set(err, -errno, "PE %u: fork: %s", number, strerror(errno));
    /* The parent sets the group, too, so that a signal to the group reaches the child from the
     * start. */
    setpgid(pid, pid);
    launch->pes[number].pid = pid;
    launch->running_count++;
    keep_pipes(launch, number, pipes);
    return 0;
}

/* --- the memory of a node, for its PEs and no others ----------------------------------------- */

static bool set_inherited(int fd, bool inherited)
{
    return fcntl(fd, F_SETFD, inherited ? 0 : FD_CLOEXEC) == 0;
}

/* For all nodes; each PE inherits these. */
static bool share_job(const struct via_job_files *files, bool inherited)
{
    return set_inherited(files->job_fd, inherited) &&
           set_inherited(files->life_fds[0], inherited) &&
           set_inherited(files->call_fds[1], inherited);
}

/* The launcher changes close-on-exec once for each node. If each PE did so for itself, that would
 * take two system calls for each pair of PEs. */
static bool share_node(const struct via_job_files *files, uint32_t node, bool inherited)
{
    const struct via_job *job = files->job;
    bool good = set_inherited(files->node_fds[node], inherited);

    for (uint32_t i = 0; i < job->pes_count && good; i++)
        if (job->pes[i].node == node)
            good = set_inherited(job->pes[i].heap_fd, inherited) &&
                   set_inherited(job->pes[i].data_fd, inherited);
    return good;
}

/* PEs of a node are consecutive. */
static int spawn_all(struct via_launch *launch, int failure_fd, struct via_error *err)
{
    const struct via_job_files *files = &launch->files;
    uint32_t count = launch->options.pes_count, shared = UINT32_MAX;
    bool good = share_job(files, true);
    int result = 0;

    for (uint32_t i = 0; i < count && good && result == 0; i++) {
        uint32_t node = files->job->pes[i].node;
        if (launch->agent && node != launch->node)
            continue;
        if (node != shared) {
            good = (shared == UINT32_MAX || share_node(files, shared, false)) &&
                   share_node(files, node, true);
            shared = node;
        }
        if (good)
            result = spawn(launch, i, failure_fd, err);
    }
    /* Other children of this process must not inherit the memory. */
    good = good && share_job(files, false) &&
           (shared == UINT32_MAX || share_node(files, shared, false));
    return result < 0 || good
               ? result
               : via_error_set(err, -errno, "shared memory: descriptors: %s", strerror(errno));
}

/* A child that failed to exec writes the reason before its end of the pipe closes. */
static int check_exec(const struct via_launch *launch, int fd, struct via_error *err)
{
    struct failure failure;

    if (read(fd, &failure, sizeof(failure)) != (ssize_t)sizeof(failure))
        return 0;
    failure.attempt[sizeof(failure.attempt) - 1] = '\0';
    return via_error_set(err, -failure.error, "\"%s\" can not be started: %s%s%s",
                         launch->options.argv[0], failure.attempt,
                         failure.attempt[0] != '\0' ? ": " : "", strerror(failure.error));
}

static void take_back(struct via_launch *launch)
{
    via_launch_signal_all(launch, SIGKILL);
    for (uint32_t i = 0; i < launch->options.pes_count; i++)
        if (launch->pes[i].pid > 0)
            waitpid(launch->pes[i].pid, NULL, 0);
}

int via_launch_spawn(struct via_launch *launch, struct via_error *err)
{
    uint32_t count = launch->options.pes_count;
    int failure_fds[2], result = 0;

    launch->pes = calloc(count, sizeof(*launch->pes));
    launch->streams =
        launch->options.tag ? calloc(2 * (size_t)count, sizeof(*launch->streams)) : NULL;
    if (!launch->pes || (launch->options.tag && !launch->streams))
        return via_error_set(err, -ENOMEM, "%u PEs: out of memory", count);
    result = via_launch_find_tool(&launch->preload, err);
    if (result < 0)
        return result;
    if (pipe2(failure_fds, O_CLOEXEC) < 0)
        return via_error_set(err, -errno, "pipe: %s", strerror(errno));
    result = spawn_all(launch, failure_fds[1], err);
    close(failure_fds[1]);
    if (launch->input.pe_fd >= 0)
        close(launch->input.pe_fd);
    if (result == 0)
        result = check_exec(launch, failure_fds[0], err);
    close(failure_fds[0]);
    if (result < 0)
        take_back(launch);
    return result;
}
