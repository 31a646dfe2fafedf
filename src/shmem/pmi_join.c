/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A job whose processes were started by another launcher. It has the same memory as a job of
 * oshrun: the first PE of each machine makes the memory and publishes its own pid and the
 * descriptors; the other PEs open these in /proc/PID/fd, which the kernel permits to processes of
 * the same user. So no file with a name is needed. Data that PEs publish for PEs of other machines
 * goes through the launcher.
 *
 * Descriptors have the same numbers in all PEs, as if they were inherited: high numbers, which
 * programs do not use.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/rundir.h"
#include "shmem/job.h"
#include "shmem/pmi.h"
#include "shmem/world.h"

#define FD_FIRST 4096u
#define GRACE_US 100000u
#define FLUSHES_US 1000000u
#define FLUSHES_STEP_US 1000u

/* Identifies the place where a process runs, so that processes find out whether they can share
 * memory. */
#define MACHINE_BYTES 128u

static struct {
    struct via_pmi *pmi; /* until the session with the launcher is ended */
    bool finalized; /* the last shmem_finalize was called. The session then ends at exit, because
                       over several machines another shmem_init needs it */
    struct via_job *job;
    uint32_t number;
    pid_t pid;
    pid_t launcher; /* the parent: the launcher, its daemon, or its shell */
} member;

/* --- placement of the processes -------------------------------------------------------------- */

/* Names the kernel and the pid namespace of this process. */
static int name_machine(char text[MACHINE_BYTES], struct via_error *err)
{
    char boot[64] = "";
    struct stat pids;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, boot, sizeof(boot) - 1);

    if (fd >= 0)
        close(fd);
    if (got <= 0 || stat("/proc/self/ns/pid", &pids) < 0)
        return via_error_set(err, -EIO, "/proc: identify this machine: %s", strerror(errno));
    boot[strcspn(boot, "\n")] = '\0';
    snprintf(text, MACHINE_BYTES, "%s.%ju", boot, (uintmax_t)pids.st_ino);
    return 0;
}

/* Launchers bind processes to CPUs, so the CPUs of the job are the union. */
static void name_cores(char text[VIA_PMI_VALUE_BYTES])
{
    cpu_set_t set;
    size_t used = 0;

    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        CPU_ZERO(&set);
    for (int nibble = 0; nibble < CPU_SETSIZE / 4; nibble++) {
        unsigned bits = 0;
        for (int bit = 0; bit < 4; bit++)
            bits |= CPU_ISSET(nibble * 4 + bit, &set) ? 1u << bit : 0;
        text[nibble] = "0123456789abcdef"[bits];
        if (bits)
            used = (size_t)nibble + 1;
    }
    text[via_max(used, (size_t)1)] = '\0';
}

static void add_cores(const char *text, cpu_set_t *set)
{
    for (int nibble = 0; nibble < CPU_SETSIZE / 4 && text[nibble] != '\0'; nibble++) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, text[nibble]);
        for (int bit = 0; bit < 4 && digit; bit++)
            if ((digit - digits) >> bit & 1)
                CPU_SET(nibble * 4 + bit, set);
    }
}

/* The PEs of a machine use the memory of its lowest rank. In a job on one machine that is rank 0,
 * which the search finds first. */
static int find_leader(struct via_pmi *pmi, const char *machine, uint32_t *ret_leader,
                       struct via_error *err)
{
    char text[VIA_PMI_VALUE_BYTES];

    for (uint32_t rank = 0; rank < pmi->rank; rank++) {
        int result = pmi->ops->get(pmi, rank, "machine", text, err);
        if (result < 0)
            return result;
        if (strcmp(text, machine) == 0) {
            *ret_leader = rank;
            return 0;
        }
    }
    *ret_leader = pmi->rank;
    return 0;
}

/* Maps ranks to machines; each machine is a node of the job. */
struct map {
    uint32_t node_of[VIA_JOB_PES_MAX];
    uint32_t host_of[VIA_JOB_PES_MAX]; /* of each node */
    uint32_t nodes_count;
    uint32_t node; /* the node of this process */
    uint32_t cores;
    char last[VIA_PMI_VALUE_BYTES]; /* machine of the previous rank */
};

static int add_rank(struct via_pmi *pmi, const char *machine, uint32_t rank, struct map *map,
                    cpu_set_t *set, struct via_error *err)
{
    char name[VIA_PMI_VALUE_BYTES], text[VIA_PMI_VALUE_BYTES];

    int result = pmi->ops->get(pmi, rank, "machine", name, err);
    if (result == 0)
        result = pmi->ops->get(pmi, rank, "cores", text, err);
    if (result < 0)
        return result;
    bool here = strcmp(name, machine) == 0;
    if (rank > 0 && strcmp(name, map->last) == 0) {
        map->node_of[rank] = map->nodes_count - 1;
    } else {
        if (here && rank != pmi->rank)
            return via_error_set(err, -ENOTSUP,
                                 "the ranks of a machine have to follow each other, and rank %u is "
                                 "on that of rank %u again: place them in blocks (mpirun --map-by "
                                 "slot, srun --distribution=block)",
                                 rank, pmi->rank);
        map->node_of[rank] = map->nodes_count++;
    }
    if (here) {
        map->node = map->node_of[rank];
        add_cores(text, set);
    }
    memcpy(map->last, name, sizeof(map->last));
    return 0;
}

/* The fabric host of the first rank on each machine. */
static int find_hosts(struct via_pmi *pmi, struct map *map, struct via_error *err)
{
    char text[VIA_PMI_VALUE_BYTES], *end;

    for (uint32_t rank = 0; rank < pmi->size; rank++) {
        uint32_t node = map->node_of[rank];
        if (rank > 0 && node == map->node_of[rank - 1])
            continue;
        int result = pmi->ops->get(pmi, rank, "host", text, err);
        if (result < 0)
            return result;
        map->host_of[node] = (uint32_t)strtoul(text, &end, 10);
        if (end == text || *end != '\0')
            return via_error_set(err, -ENOENT,
                                 "the job is on %u machines, and that of rank %u is not a host of "
                                 "a fabric: viaductd does not run there, or VIADUCT_HOST and "
                                 "VIADUCT_RUNDIR have to say which it is",
                                 map->nodes_count, rank);
        for (uint32_t other = 0; other < node; other++)
            if (map->host_of[other] == map->host_of[node])
                return via_error_set(err, -EINVAL, "two machines of the job are host %u",
                                     map->host_of[node]);
    }
    return 0;
}

static int gather_processes(struct via_pmi *pmi, const char *machine, struct map *ret_map,
                            struct via_error *err)
{
    struct map *map = ret_map;
    cpu_set_t set;
    int result = 0;

    CPU_ZERO(&set);
    for (uint32_t rank = 0; rank < pmi->size && result == 0; rank++)
        result = add_rank(pmi, machine, rank, map, &set, err);
    if (result == 0 && map->nodes_count > 1)
        result = find_hosts(pmi, map, err);
    map->cores = via_min((unsigned)via_max(CPU_COUNT(&set), 1), via_wait_quota_cores());
    return result;
}

/* --- descriptors ------------------------------------------------------------------------------ */

/* A soft limit applies to new descriptor numbers, not to existing descriptors. */
static struct rlimit raise_limit(void)
{
    struct rlimit limit, before;

    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return before;
}

static int first_fd(void)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur >= 2 * FD_FIRST ? (int)FD_FIRST : (int)limit.rlim_cur / 2;
}

static int move_up(int *fd, struct via_error *err)
{
    int up = fcntl(*fd, F_DUPFD_CLOEXEC, first_fd());

    if (up < 0)
        return via_error_set(err, -errno, "a descriptor above %d: %s", first_fd(), strerror(errno));
    close(*fd);
    *fd = up;
    return 0;
}

/* Opens descriptor `number` of PE 0, under the same number here. */
static int fetch_fd(int pid, int number, int flags, struct via_error *err)
{
    char path[64];

    if (number < 3 || fcntl(number, F_GETFD) >= 0)
        return via_error_set(err, -EBUSY, "descriptor %d of PE 0: its number is in use here",
                             number);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, number);
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        return via_error_set(err, -errno, "memory of the job: %s: %s", path, strerror(errno));
    if (fd == number)
        return 0;
    int result = dup3(fd, number, O_CLOEXEC) < 0
                     ? via_error_set(err, -errno, "descriptor %d: %s", number, strerror(errno))
                     : 0;
    close(fd);
    return result;
}

/* --- PE 0 ------------------------------------------------------------------------------------- */

static int move_files(struct via_job_files *files, uint32_t node, struct via_error *err)
{
    struct via_job *job = files->job;
    int result = move_up(&files->job_fd, err);

    if (result == 0)
        result = move_up(&files->node_fds[node], err);
    for (int end = 0; end < 2 && result == 0; end++)
        result = move_up(&files->life_fds[end], err);
    for (uint32_t i = 0; i < job->pes_count && result == 0; i++) {
        if (job->pes[i].node != node)
            continue;
        result = move_up(&job->pes[i].heap_fd, err);
        if (result == 0)
            result = move_up(&job->pes[i].data_fd, err);
    }
    return result;
}

static int make_job(struct via_pmi *pmi, const char *machine, struct via_job_files *ret_files,
                    int *ret_node_fd, struct via_error *err)
{
    static struct map map;
    struct via_job_spec spec = {.pes_count = pmi->size, .node_of = map.node_of};
    char text[VIA_PMI_VALUE_BYTES];

    int result = gather_processes(pmi, machine, &map, err);
    if (result == 0)
        result = pmi->ops->get(pmi, 0, "id", text, err);
    if (result == 0)
        result = via_job_heap_bytes(&spec.heap_bytes, err);
    if (result < 0)
        return result;
    spec.id = strtoull(text, NULL, 16);
    spec.heap_bytes += VIA_INTERNAL_BYTES;
    spec.cores = map.cores;
    spec.nodes_count = map.nodes_count;
    spec.node = map.node;
    spec.host_of = map.nodes_count > 1 ? map.host_of : NULL;
    spec.gates = map.nodes_count > 1 ? VIA_JOB_GATES_PMI : VIA_JOB_GATES_HERE;
    result = via_job_create(&spec, ret_files, err);
    if (result == 0)
        result = move_files(ret_files, map.node, err);
    if (result < 0)
        return result;
    *ret_node_fd = ret_files->node_fds[map.node];
    snprintf(text, sizeof(text), "%d.%d.%d.%d.%d.%016" PRIx64, (int)getpid(), ret_files->job_fd,
             *ret_node_fd, ret_files->life_fds[0], ret_files->life_fds[1], ret_files->job->id);
    return pmi->ops->put(pmi, "job", text, err);
}

/* --- the other PEs --------------------------------------------------------------------------- */

static int take_job(struct via_pmi *pmi, uint32_t leader, struct via_job_files *ret_files,
                    int *ret_node_fd, struct via_error *err)
{
    struct via_job_files files = {0};
    int node_fd;
    char text[VIA_PMI_VALUE_BYTES];
    uint64_t id;
    int pid;

    int result = pmi->ops->get(pmi, leader, "job", text, err);
    if (result < 0)
        return result;
    if (sscanf(text, "%d.%d.%d.%d.%d.%" SCNx64, &pid, &files.job_fd, &node_fd, &files.life_fds[0],
               &files.life_fds[1], &id) != 6)
        return via_error_set(err, -EPROTO, "invalid job data of PE %u: \"%.100s\"", leader, text);
    *ret_node_fd = node_fd;
    result = fetch_fd(pid, files.job_fd, O_RDWR, err);
    if (result == 0)
        result = fetch_fd(pid, node_fd, O_RDWR, err);
    if (result == 0)
        result = fetch_fd(pid, files.life_fds[0], O_RDONLY, err);
    if (result == 0)
        result = fetch_fd(pid, files.life_fds[1], O_WRONLY, err);
    if (result == 0)
        result = via_job_map(files.job_fd, &files.job, err);
    if (result == 0 && (files.job->id != id || files.job->pes_count != pmi->size))
        result = via_error_set(err, -EPROTO, "/proc/%d is not PE %u of this job", pid, leader);
    for (uint32_t i = 0; i < pmi->size && result == 0; i++) {
        if (files.job->pes[i].node != files.job->pes[pmi->rank].node)
            continue;
        result = fetch_fd(pid, files.job->pes[i].heap_fd, O_RDWR, err);
        if (result == 0)
            result = fetch_fd(pid, files.job->pes[i].data_fd, O_RDWR, err);
    }
    *ret_files = files;
    return result;
}

/* --- the launcher's death -------------------------------------------------------------------- */

#define WATCH_MS 500

int via_pmi_watch_ms(void)
{
    return member.launcher > 0 ? WATCH_MS : -1;
}

/* PR_SET_PDEATHSIG is not used: it reports the end of the thread that forked, which may end before
 * the launcher. */
bool via_pmi_launcher_is_gone(void)
{
    return member.launcher > 0 && getppid() != member.launcher;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void leave_launcher(void)
{
    struct via_pmi *pmi = member.pmi;

    member.pmi = NULL;
    if (pmi && member.pid == getpid())
        pmi->ops->finalize(pmi);
}

void via_pmi_leave(void)
{
    member.finalized = true;
    if (member.pmi && member.job->nodes_count == 1)
        leave_launcher();
}

static void abort_job(int code, const char *why)
{
    /* A launcher that aborts a job does not forward output that it has not read yet. */
    usleep(GRACE_US);
    member.pmi->ops->abort(member.pmi, code, why);
}

static bool is_any_pe_flushing(const struct via_job *job)
{
    uint32_t node = job->pes[member.number].node;

    for (uint32_t i = 0; i < job->pes_count; i++)
        /* Pairs with the release in at_exit. */
        if (job->pes[i].node == node &&
            atomic_load_explicit(&job->pes[i].state, memory_order_acquire) == VIA_JOB_INITIALIZED)
            return true;
    return false;
}

/* Launchers kill the other processes as soon as one has ended with a code other than 0, so every PE
 * waits until all have flushed their output. A PE that was killed never does, hence the bound. */
static void wait_for_flushes(const struct via_job *job)
{
    for (unsigned us = 0; us < FLUSHES_US && is_any_pe_flushing(job); us += FLUSHES_STEP_US)
        usleep(FLUSHES_STEP_US);
}

/* Ends the job if this PE exits without shmem_finalize, because other PEs may wait for it; see
 * oshrun(1). After shmem_global_exit the launcher need not abort the job: every PE exits by
 * itself. */
static void at_exit(int status, void *argument)
{
    (void)argument;
    if (!member.pmi || member.pid != getpid())
        return;
    fflush(NULL);
    /* Pairs with the acquire in is_any_pe_flushing. */
    atomic_store_explicit(&member.job->pes[member.number].state, VIA_JOB_LEFT,
                          memory_order_release);
    /* Pairs with the release in shmem_global_exit. */
    if (atomic_load_explicit(&member.job->exit_ready, memory_order_acquire)) {
        wait_for_flushes(member.job);
        /* PEs of other machines do not see exit_ready, so the launcher ends them. */
        if (member.job->nodes_count > 1)
            abort_job(status, "shmem_global_exit");
        leave_launcher();
        return;
    }
    if (member.finalized) {
        leave_launcher();
        return;
    }
    if (status == 0)
        fprintf(stderr,
                "viaduct-shmem: PE %u exits with code 0 but without shmem_finalize; the job is "
                "ended\n",
                member.number);
    abort_job(status == 0 ? 1 : status, "a PE exits without shmem_finalize");
}

/* --- gates over several machines ------------------------------------------------------------- */

static int take_words(struct via_pmi *pmi, const char *key, uint32_t pe, struct via_error *err)
{
    char text[VIA_PMI_VALUE_BYTES], *end, *at = text;
    uint64_t words[VIA_JOB_WORDS];

    int result = pmi->ops->get(pmi, pe, key, text, err);
    if (result < 0)
        return result;
    for (unsigned i = 0; i < VIA_JOB_WORDS; i++, at = end + 1) {
        words[i] = strtoull(at, &end, 16);
        if (end == at || *end != (i + 1 < VIA_JOB_WORDS ? '.' : '\0'))
            return via_error_set(err, -EPROTO, "invalid data of PE %u: \"%.100s\"", pe, text);
    }
    via_job_words_set(member.job, pe, words);
    return 0;
}

int via_pmi_exchange(uint32_t number, struct via_error *err)
{
    struct via_pmi *pmi = member.pmi;
    struct via_job *job = member.job;
    const struct via_job_pe *me = &job->pes[member.number];
    uint64_t words[VIA_JOB_WORDS];
    char key[32], text[VIA_PMI_VALUE_BYTES];
    size_t used = 0;

    member.finalized = false;
    via_job_words_get(job, member.number, words);
    snprintf(key, sizeof(key), "words%u", number);
    for (unsigned i = 0; i < VIA_JOB_WORDS; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRIx64, i > 0 ? "." : "",
                                 words[i]);
    int result = pmi->ops->put(pmi, key, text, err);
    if (result == 0)
        result = pmi->ops->fence(pmi, err);
    for (uint32_t pe = 0; pe < job->pes_count && result == 0 && me->local == 0; pe++)
        if (job->pes[pe].node != me->node)
            result = take_words(pmi, key, pe, err);
    return result;
}

/* --- joining ---------------------------------------------------------------------------------- */

/* The id of this machine's host, if the job is on several machines; a job on one machine has
 * none. */
static void name_host(char text[VIA_PMI_VALUE_BYTES])
{
    const char *named = getenv("VIADUCT_HOST");
    struct via_rundir_path rundir;
    unsigned host;

    if (named && named[0] != '\0')
        snprintf(text, VIA_PMI_VALUE_BYTES, "%.16s", named);
    else if (via_rundir_default(NULL, &rundir, NULL) == 0 &&
             via_rundir_local(rundir.text, &host) == 0)
        snprintf(text, VIA_PMI_VALUE_BYTES, "%u", host);
    else
        strcpy(text, "none");
}

/* Publishes the id of the job, which is the same in all its blocks. */
static int publish_id(struct via_pmi *pmi, struct via_error *err)
{
    char text[VIA_PMI_VALUE_BYTES];
    uint64_t id;

    if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
        return via_error_set(err, -errno, "getrandom: %s", strerror(errno));
    snprintf(text, sizeof(text), "%016" PRIx64, id | 1);
    return pmi->ops->put(pmi, "id", text, err);
}

static int publish_machine(struct via_pmi *pmi, char machine[MACHINE_BYTES], struct via_error *err)
{
    char text[VIA_PMI_VALUE_BYTES];

    int result = name_machine(machine, err);
    if (result == 0)
        result = pmi->ops->put(pmi, "machine", machine, err);
    name_cores(text);
    if (result == 0)
        result = pmi->ops->put(pmi, "cores", text, err);
    name_host(text);
    if (result == 0)
        result = pmi->ops->put(pmi, "host", text, err);
    if (result == 0 && pmi->rank == 0)
        result = publish_id(pmi, err);
    return result == 0 ? pmi->ops->fence(pmi, err) : result;
}

static int join(struct via_pmi *pmi, struct via_pmi_job *ret_job, struct via_error *err)
{
    struct via_job_files files = {0};
    char machine[MACHINE_BYTES];
    struct rlimit before = raise_limit();
    uint32_t leader = 0;
    int node_fd = -1;

    int result = publish_machine(pmi, machine, err);
    if (result == 0)
        result = find_leader(pmi, machine, &leader, err);
    if (result == 0 && pmi->rank == leader)
        result = make_job(pmi, machine, &files, &node_fd, err);
    if (result == 0)
        result = pmi->ops->fence(pmi, err);
    if (result == 0 && pmi->rank != leader)
        result = take_job(pmi, leader, &files, &node_fd, err);
    setrlimit(RLIMIT_NOFILE, &before);
    if (result == 0)
        result = via_node_map(node_fd, &ret_job->node, err);
    if (result < 0)
        return result;
    ret_job->job = files.job;
    ret_job->life_fd = files.life_fds[0];
    ret_job->call_fd = files.life_fds[1];
    ret_job->number = pmi->rank;
    return 0;
}

int via_pmi_join(struct via_pmi *pmi, struct via_pmi_job *ret_job, struct via_error *err)
{
    int result = pmi->ops->open(pmi, err);

    if (result == 0 && (pmi->size == 0 || pmi->size > VIA_JOB_PES_MAX || pmi->rank >= pmi->size))
        result = via_error_set(err, -EINVAL, "PE %u of %u: there may be %u", pmi->rank, pmi->size,
                               VIA_JOB_PES_MAX);
    if (result == 0)
        result = join(pmi, ret_job, err);
    if (result < 0)
        return via_error_prefix(err, "joining the job of a %s launcher: ", pmi->ops->name);
    member.pmi = pmi;
    member.job = ret_job->job;
    member.number = pmi->rank;
    member.pid = getpid();
    member.launcher = getppid();
    on_exit(at_exit, NULL);
    return 0;
}
