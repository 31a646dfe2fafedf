/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Shows which PE waits for which: reads the boards of a job's PEs, and prints them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shmem/launch_board.h"

#define TRIES_MAX 20
#define TRY_US 1000
#define LIST_BYTES 128u
#define WHAT_BYTES (VIA_TRACE_WHAT_BYTES + 32)

static char process_state(int pid)
{
    char path[64], text[256];
    ssize_t got = -1;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        got = read(fd, text, sizeof(text) - 1);
        close(fd);
    }
    if (got <= 0)
        return 'X';
    text[got] = '\0';
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' ? end[2] : '?';
}

static bool is_stopped(char process)
{
    return process == 'T' || process == 't';
}

/* --- copying ---------------------------------------------------------------------------------- */

void via_launch_make_printable(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (char *at = text; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
}

void via_launch_moment_clean(struct via_launch_moment *moment)
{
    moment->known = via_min(moment->known, (uint32_t)VIA_LAUNCH_SILENT);
    via_launch_make_printable(moment->call, sizeof(moment->call));
    via_launch_make_printable(moment->caller, sizeof(moment->caller));
    via_launch_make_printable(moment->what, sizeof(moment->what));
}

static bool copy_wait(const struct via_trace_wait *line, struct via_trace_wait *ret_wait)
{
    for (int i = 0; i < TRIES_MAX; i++) {
        /* Pairs with the releases of begin_write and end_write, trace.c. */
        uint32_t before = atomic_load_explicit(&line->version, memory_order_acquire);
        memcpy(ret_wait, (const void *)line, sizeof(*ret_wait));
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 &&
            atomic_load_explicit(&line->version, memory_order_relaxed) == before) {
            return true;
        }
        usleep(TRY_US);
    }
    return false;
}

void via_launch_moment_take(const struct via_job *job, uint32_t number,
                            struct via_launch_moment *ret_moment)
{
    struct via_board *board = via_job_board(job, number);
    uint64_t now_ns = via_launch_now_ns(), since_ns = VIA_NEVER_NS;
    struct via_trace_wait wait;

    memset(ret_moment, 0, sizeof(*ret_moment));
    ret_moment->state = atomic_load_explicit(&job->pes[number].state, memory_order_acquire);
    ret_moment->pid = atomic_load_explicit(&board->pid, memory_order_relaxed);
    ret_moment->process = process_state(ret_moment->pid);
    for (unsigned i = 0; i < VIA_TRACE_LOCKS; i++)
        ret_moment->locks[i] = atomic_load_explicit(&board->locks[i], memory_order_relaxed);
    for (unsigned i = 0; i < VIA_TRACE_THREADS; i++) {
        if (!copy_wait(&board->waits[i], &wait) || !wait.waiting)
            continue;
        if (wait.seen_ns + VIA_TRACE_FRESH_NS < now_ns && !is_stopped(ret_moment->process))
            continue;
        if (wait.since_ns >= since_ns)
            continue;
        since_ns = wait.since_ns;
        ret_moment->waits = true;
        /* The wait may have begun after now_ns was read. */
        ret_moment->for_ns = now_ns - via_min(now_ns, since_ns);
        ret_moment->lock = wait.lock;
        memcpy(ret_moment->call, wait.call, sizeof(wait.call));
        memcpy(ret_moment->caller, wait.caller, sizeof(wait.caller));
        memcpy(ret_moment->what, wait.what, sizeof(wait.what));
    }
    via_launch_moment_clean(ret_moment);
}

/* --- from an agent to oshrun ------------------------------------------------------------------ */

void via_launch_moment_put(struct via_launch_bytes *bytes, const struct via_launch_moment *moment)
{
    via_launch_put_u32(bytes, moment->known);
    via_launch_put_u32(bytes, moment->state);
    via_launch_put_u32(bytes, (uint32_t)moment->pid);
    via_launch_put_u32(bytes, (uint32_t)moment->process);
    for (unsigned i = 0; i < VIA_TRACE_LOCKS; i++)
        via_launch_put_u64(bytes, moment->locks[i]);
    via_launch_put_u32(bytes, moment->waits);
    via_launch_put_u64(bytes, moment->for_ns);
    via_launch_put_u64(bytes, moment->lock);
    via_launch_put_text(bytes, moment->call);
    via_launch_put_text(bytes, moment->caller);
    via_launch_put_text(bytes, moment->what);
}

static void take_text(struct via_launch_parts *parts, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", via_launch_take_text(parts));
}

void via_launch_moment_parse(struct via_launch_parts *parts, struct via_launch_moment *ret_moment)
{
    struct via_launch_moment *moment = ret_moment;

    memset(moment, 0, sizeof(*moment));
    moment->known = via_launch_take_u32(parts);
    moment->state = via_launch_take_u32(parts);
    moment->pid = (int)via_launch_take_u32(parts);
    moment->process = (char)via_launch_take_u32(parts);
    for (unsigned i = 0; i < VIA_TRACE_LOCKS; i++)
        moment->locks[i] = via_launch_take_u64(parts);
    moment->waits = via_launch_take_u32(parts) != 0;
    moment->for_ns = via_launch_take_u64(parts);
    moment->lock = via_launch_take_u64(parts);
    take_text(parts, moment->call, sizeof(moment->call));
    take_text(parts, moment->caller, sizeof(moment->caller));
    take_text(parts, moment->what, sizeof(moment->what));
    via_launch_moment_clean(moment);
}

/* --- printing -------------------------------------------------------------------------------- */

/* Lists the PEs for which `in` is true, such as "0-2,5". */
static void list_pes(const bool *in, uint32_t count, char text[LIST_BYTES])
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        uint32_t last = i;
        if (!in[i])
            continue;
        while (last + 1 < count && in[last + 1])
            last++;
        if (used + 16 > LIST_BYTES) {
            strcpy(text + used, "...");
            return;
        }
        used += (size_t)snprintf(text + used, LIST_BYTES - used, last > i ? "%s%u-%u" : "%s%u",
                                 used > 0 ? "," : "", i, last);
        i = last;
    }
}

/* Calls that every PE of a group must make. */
static bool is_collective(const char *call)
{
    static const char *const parts[] = {
        "barrier", "sync",  "alltoall", "broadcast", "collect",     "reduce",
        "to_all",  "scan",  "malloc",   "calloc",    "realloc",     "_free",
        "_align",  "_init", "finalize", "_split_",   "team_destroy"};

    for (size_t i = 0; i < VIA_ARRAY_COUNT(parts); i++)
        if (strstr(call, parts[i]))
            return true;
    return false;
}

static const char *idle_text(const struct via_launch_moment *moment)
{
    if (moment->known == VIA_LAUNCH_ELSEWHERE)
        return "is on another machine";
    if (moment->known == VIA_LAUNCH_SILENT)
        return "is on a machine that does not answer";
    switch (moment->state) {
    case VIA_JOB_STARTED:
        return "has not called shmem_init";
    case VIA_JOB_FINALIZED:
        return "has left shmem_finalize";
    default:
        break;
    }
    if (is_stopped(moment->process))
        return "is stopped";
    switch (moment->process) {
    case 'X':
    case 'Z':
        return "has ended";
    case 'R':
        return "computes";
    default:
        return "is in no OpenSHMEM call that waits";
    }
}

/* The PEs that are not in the collective that `moment` waits in. */
static void list_missing(const struct via_launch_view *view, const struct via_launch_moment *moment,
                         char text[LIST_BYTES])
{
    bool *missing = calloc(view->count, sizeof(*missing));

    text[0] = '\0';
    if (!missing)
        return;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct via_launch_moment *other = &view->moments[i];
        missing[i] = other->known == VIA_LAUNCH_KNOWN &&
                     (!other->waits || strcmp(other->call, moment->call) != 0);
    }
    list_pes(missing, view->count, text);
    free(missing);
}

/* "lock queue, held by PE 3" */
static void describe_what(const struct via_launch_view *view,
                          const struct via_launch_moment *moment, char text[WHAT_BYTES])
{
    unsigned place = via_trace_lock_index((uint32_t)(moment->lock >> 32));
    uint32_t pe = 0;

    snprintf(text, WHAT_BYTES, "%s", moment->what);
    if (moment->lock == 0)
        return;
    while (pe < view->count && view->moments[pe].locks[place] != moment->lock)
        pe++;
    size_t used = strlen(text);
    if (pe < view->count)
        snprintf(text + used, WHAT_BYTES - used, ", held by PE %u", pe);
    else
        snprintf(text + used, WHAT_BYTES - used, ", held by no PE that is known");
}

static void print_pe(FILE *out, const struct via_launch_view *view, uint32_t number)
{
    const struct via_launch_moment *moment = &view->moments[number];
    char text[VIA_LAUNCH_PE_NAME_BYTES] = "", what[WHAT_BYTES];

    view->name_place(view->ctx, number, text, sizeof(text));
    fprintf(out, "  PE %u%s", number, text);
    if (moment->pid > 0)
        fprintf(out, " (pid %d)", moment->pid);
    if (!moment->waits) {
        fprintf(out, " %s\n", idle_text(moment));
        return;
    }
    fprintf(out, " waits for %.1f s in %s", (double)moment->for_ns * 1e-9, moment->call);
    if (moment->caller[0] != '\0')
        fprintf(out, ", called in %s", moment->caller);
    describe_what(view, moment, what);
    if (what[0] != '\0')
        fprintf(out, ": %s", what);
    if (is_stopped(moment->process))
        fprintf(out, "; it is stopped");
    if (is_collective(moment->call)) {
        list_missing(view, moment, text);
        if (text[0] != '\0')
            fprintf(out, ": for PE %s", text);
    }
    fprintf(out, "\n");
}

int via_launch_trace_print(FILE *out, const struct via_launch_view *view)
{
    uint32_t waiting = 0;

    for (uint32_t i = 0; i < view->count; i++)
        waiting += view->moments[i].waits;
    fprintf(out, "job %016" PRIx64 " of pid %d: %u PE%s, %u wait%s\n", view->id, view->launcher_pid,
            view->count, view->count == 1 ? "" : "s", waiting, waiting == 1 ? "s" : "");
    for (uint32_t i = 0; i < view->count; i++)
        print_pe(out, view, i);
    return fflush(out) == 0 ? 0 : -errno;
}

/* --- for trace viewers ------------------------------------------------------------------------ */

/* Prints a text of the characters that via_launch_make_printable() leaves. */
static void print_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

/* Prints the wait as a span that ends now. The earliest of all waits begins at 0. */
static void print_span(FILE *out, const struct via_launch_view *view, uint32_t pe,
                       uint64_t longest_ns)
{
    const struct via_launch_moment *moment = &view->moments[pe];
    char what[WHAT_BYTES];

    describe_what(view, moment, what);
    fprintf(out, ",\n{\"name\":");
    print_string(out, moment->call);
    fprintf(out,
            ",\"ph\":\"X\",\"pid\":%u,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"caller\":", pe,
            (double)(longest_ns - moment->for_ns) / 1e3, (double)moment->for_ns / 1e3);
    print_string(out, moment->caller);
    fprintf(out, ",\"for\":");
    print_string(out, what);
    fprintf(out, "}}");
}

int via_launch_trace_json(FILE *out, const struct via_launch_view *view)
{
    uint64_t longest_ns = 0;

    for (uint32_t i = 0; i < view->count; i++)
        if (view->moments[i].waits)
            longest_ns = via_max(longest_ns, view->moments[i].for_ns);
    for (uint32_t i = 0; i < view->count; i++) {
        const struct via_launch_moment *moment = &view->moments[i];
        char place[VIA_LAUNCH_PE_NAME_BYTES] = "", text[VIA_LAUNCH_PE_NAME_BYTES + 128];
        view->name_place(view->ctx, i, place, sizeof(place));
        snprintf(text, sizeof(text), "PE %u%s%s%s", i, place, moment->waits ? "" : " ",
                 moment->waits ? "" : idle_text(moment));
        via_launch_make_printable(text, sizeof(text));
        fprintf(out, "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":",
                i == 0 ? "[\n" : ",\n", i);
        print_string(out, text);
        fprintf(out, "}}");
        if (moment->waits)
            print_span(out, view, i, longest_ns);
    }
    fprintf(out, "\n]\n");
    return fflush(out) == 0 ? 0 : -errno;
}

static void name_place(const void *ctx, uint32_t pe, char *text, size_t bytes)
{
    const struct via_job *job = ctx;

    if (job->fabric)
        snprintf(text, bytes, " on host %u", job->pes[pe].host);
}

int via_launch_trace(FILE *out, const struct via_job *job, bool json)
{
    struct via_launch_moment *moments = calloc(job->pes_count, sizeof(*moments));
    const struct via_launch_view view = {.id = job->id,
                                         .launcher_pid = job->launcher_pid,
                                         .count = job->pes_count,
                                         .moments = moments,
                                         .name_place = name_place,
                                         .ctx = job};

    if (!moments)
        return -ENOMEM;
    for (uint32_t i = 0; i < job->pes_count; i++) {
        via_launch_moment_take(job, i, &moments[i]);
        /* Each machine has a block of its own. */
        if (job->gates != VIA_JOB_GATES_HERE && job->pes[i].heap_fd < 0)
            moments[i] = (struct via_launch_moment){.known = VIA_LAUNCH_ELSEWHERE};
    }
    int result = json ? via_launch_trace_json(out, &view) : via_launch_trace_print(out, &view);
    free(moments);
    return result;
}

/* --- the jobs of this machine ---------------------------------------------------------------- */

#define JOBS_MAX 256u

struct jobs {
    uint64_t ids[JOBS_MAX];
    uint32_t count;
    const char *wanted; /* an id or its beginning, or NULL */
    bool json;
    int result;
};

static bool is_wanted(const struct jobs *jobs, uint64_t job, int launcher_pid)
{
    char id[32];

    for (uint32_t i = 0; i < jobs->count; i++)
        if (jobs->ids[i] == job)
            return false;
    snprintf(id, sizeof(id), "%016" PRIx64, job);
    return jobs->count < JOBS_MAX &&
           (!jobs->wanted || strncmp(id, jobs->wanted, strlen(jobs->wanted)) == 0 ||
            (int)strtol(jobs->wanted, NULL, 10) == launcher_pid);
}

static void trace_job(struct jobs *jobs, int fd)
{
    struct via_error err = {0};
    struct via_job *job;

    if (via_job_map(fd, &job, &err) < 0)
        return;
    if (is_wanted(jobs, job->id, job->launcher_pid)) {
        jobs->ids[jobs->count++] = job->id;
        jobs->result = via_launch_trace(stdout, job, jobs->json);
    }
    munmap(job, job->bytes);
}

/* Shows a job over several machines from its board. If the owner of the board does not answer, the
 * job's memory on this machine is shown later instead. */
static void trace_board(struct jobs *jobs, int fd)
{
    struct via_launch_board *board;

    if (via_launch_board_map(fd, &board) < 0)
        return;
    if (is_wanted(jobs, board->id, board->owner_pid)) {
        int result = via_launch_board_print(stdout, board, jobs->json);
        if (result == -ETIMEDOUT)
            via_launch_print("the launcher of pid %d does not answer", board->owner_pid);
        else
            jobs->ids[jobs->count++] = board->id;
        jobs->result = result;
    }
    munmap(board, board->bytes);
}

static void trace_memory(struct jobs *jobs, const char *path, bool board)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return;
    if (board)
        trace_board(jobs, fd);
    else
        trace_job(jobs, fd);
    close(fd);
}

/* A job's memory has no name, but /proc shows it among the open files of its processes. */
static void trace_process(struct jobs *jobs, const char *pid, bool board)
{
    const char *wanted = board ? "/memfd:" VIA_LAUNCH_BOARD_NAME : "/memfd:viaduct-job";
    char folder[64], path[400], target[64];
    struct dirent *entry;

    snprintf(folder, sizeof(folder), "/proc/%.20s/fd", pid);
    DIR *dir = opendir(folder);
    if (!dir)
        return; /* another user's process, or it has ended */
    while ((entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        ssize_t bytes = readlink(path, target, sizeof(target) - 1);
        if (bytes <= 0)
            continue;
        target[bytes] = '\0';
        if (strncmp(target, wanted, strlen(wanted)) == 0)
            trace_memory(jobs, path, board);
    }
    closedir(dir);
}

static int trace_processes(struct jobs *jobs, bool board, struct via_error *err)
{
    struct dirent *entry;
    DIR *dir = opendir("/proc");

    if (!dir)
        return via_error_set(err, -errno, "/proc: %s", strerror(errno));
    while ((entry = readdir(dir)) != NULL)
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
            trace_process(jobs, entry->d_name, board);
    closedir(dir);
    return 0;
}

int via_launch_trace_jobs(const char *wanted, bool json, struct via_error *err)
{
    struct jobs jobs = {.wanted = wanted, .json = json};
    int result = trace_processes(&jobs, true, err);

    if (result == 0)
        result = trace_processes(&jobs, false, err);
    if (result < 0)
        return result;
    if (jobs.count == 0 && wanted)
        return via_error_set(err, -ENOENT, "\"%s\": no such job of this user on this machine",
                             wanted);
    if (jobs.count == 0)
        return via_error_set(err, -ENOENT, "no job of this user runs on this machine");
    return jobs.result;
}
