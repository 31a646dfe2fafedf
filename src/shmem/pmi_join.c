/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A job whose processes were started by somebody else's launcher. It has the same memory as one of
 * oshrun: PE 0 makes it, tells the others its pid and descriptors, and they open those in
 * /proc/PID/fd, which the kernel allows to processes of the same user. Nothing gets a name.
 *
 * Descriptors have the same numbers in all PEs, as if they were inherited: far up, where programs
 * have none.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shmem/job.h"
#include "shmem/pmi.h"
#include "shmem/world.h"

#define FD_FIRST 4096u
#define GRACE_US 100000u

/* Where a process runs, so that they find out whether they can share memory. */
#define MACHINE_BYTES 128u

static struct {
    struct via_pmi *pmi; /* until we have said goodbye */
    struct via_job *job;
    uint32_t number;
    pid_t pid;
    pid_t launcher; /* who has started this process: the launcher, its daemon, or a shell of it */
} member;

/* --- who runs where --------------------------------------------------------------------------- */

/* The kernel that runs, and the pids it shows us. */
static int name_machine(char text[MACHINE_BYTES], struct via_error *err)
{
    char boot[64] = "";
    struct stat pids;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, boot, sizeof(boot) - 1);

    if (fd >= 0)
        close(fd);
    if (got <= 0 || stat("/proc/self/ns/pid", &pids) < 0)
        return via_error_set(err, -EIO, "/proc: which machine this is: %s", strerror(errno));
    boot[strcspn(boot, "\n")] = '\0';
    snprintf(text, MACHINE_BYTES, "%s.%ju", boot, (uintmax_t)pids.st_ino);
    return 0;
}

/* Launchers bind processes to cores, so what they may use together is the union. */
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

static int look_around(struct via_pmi *pmi, const char *machine, uint32_t *ret_cores,
                       struct via_error *err)
{
    char text[VIA_PMI_VALUE_BYTES];
    cpu_set_t set;
    int result = 0;

    CPU_ZERO(&set);
    for (uint32_t rank = 0; rank < pmi->size && result == 0; rank++) {
        result = pmi->ops->get(pmi, rank, "machine", text, err);
        if (result == 0 && strcmp(text, machine) != 0)
            result = via_error_set(err, -ENOTSUP,
                                   "PE %u is on another machine than PE 0 (or in another "
                                   "container): under %s all PEs have to be on one",
                                   rank, pmi->ops->name);
        if (result == 0)
            result = pmi->ops->get(pmi, rank, "cores", text, err);
        if (result == 0)
            add_cores(text, &set);
    }
    *ret_cores = via_min((unsigned)via_max(CPU_COUNT(&set), 1), via_wait_quota_cores());
    return result;
}

/* --- descriptors ------------------------------------------------------------------------------ */

/* A soft limit binds numbers that are made, not those that are there. */
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

/* Descriptor `number` of PE 0, at the same number here. */
static int fetch_fd(int pid, int number, int flags, struct via_error *err)
{
    char path[64];

    if (number < 3 || fcntl(number, F_GETFD) >= 0)
        return via_error_set(err, -EBUSY, "descriptor %d of PE 0 is another one here", number);
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

static int move_files(struct via_job_files *files, struct via_error *err)
{
    struct via_job *job = files->job;
    int result = move_up(&files->job_fd, err);

    if (result == 0)
        result = move_up(&files->node_fds[0], err);
    for (int end = 0; end < 2 && result == 0; end++)
        result = move_up(&files->life_fds[end], err);
    for (uint32_t i = 0; i < job->pes_count && result == 0; i++) {
        result = move_up(&job->pes[i].heap_fd, err);
        if (result == 0)
            result = move_up(&job->pes[i].data_fd, err);
    }
    return result;
}

static int make_job(struct via_pmi *pmi, const char *machine, struct via_job_files *ret_files,
                    struct via_error *err)
{
    struct via_job_spec spec = {.pes_count = pmi->size, .nodes_count = 1};
    char text[VIA_PMI_VALUE_BYTES];

    int result = look_around(pmi, machine, &spec.cores, err);
    if (result == 0)
        result = via_job_heap_bytes(&spec.heap_bytes, err);
    spec.heap_bytes += VIA_INTERNAL_BYTES;
    if (result == 0)
        result = via_job_create(&spec, ret_files, err);
    if (result == 0)
        result = move_files(ret_files, err);
    if (result < 0)
        return result;
    snprintf(text, sizeof(text), "%d.%d.%d.%d.%d.%016" PRIx64, (int)getpid(), ret_files->job_fd,
             ret_files->node_fds[0], ret_files->life_fds[0], ret_files->life_fds[1],
             ret_files->job->id);
    return pmi->ops->put(pmi, "job", text, err);
}

/* --- the others ------------------------------------------------------------------------------- */

static int take_job(struct via_pmi *pmi, struct via_job_files *ret_files, struct via_error *err)
{
    struct via_job_files files = {0};
    static int node_fd;
    char text[VIA_PMI_VALUE_BYTES];
    uint64_t id;
    int pid;

    int result = pmi->ops->get(pmi, 0, "job", text, err);
    if (result < 0)
        return result;
    if (sscanf(text, "%d.%d.%d.%d.%d.%" SCNx64, &pid, &files.job_fd, &node_fd, &files.life_fds[0],
               &files.life_fds[1], &id) != 6)
        return via_error_set(err, -EPROTO, "the word of PE 0 about the job: \"%.100s\"", text);
    files.node_fds = &node_fd;
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
        result = via_error_set(err, -EPROTO, "/proc/%d is not PE 0 of this job", pid);
    for (uint32_t i = 0; i < pmi->size && result == 0; i++) {
        result = fetch_fd(pid, files.job->pes[i].heap_fd, O_RDWR, err);
        if (result == 0)
            result = fetch_fd(pid, files.job->pes[i].data_fd, O_RDWR, err);
    }
    *ret_files = files;
    return result;
}

/* --- the launcher's death ----------------------------------------------------------------------
 */

#define WATCH_MS 500

int via_pmi_watch_ms(void)
{
    return member.launcher > 0 ? WATCH_MS : -1;
}

/* Not by PR_SET_PDEATHSIG: that is of the thread that forked, and such a thread may end. */
bool via_pmi_launcher_is_gone(void)
{
    return member.launcher > 0 && getppid() != member.launcher;
}

/* --- the end ---------------------------------------------------------------------------------- */

void via_pmi_leave(void)
{
    struct via_pmi *pmi = member.pmi;

    member.pmi = NULL;
    if (pmi && member.pid == getpid())
        pmi->ops->finalize(pmi);
}

/* A PE that leaves without shmem_finalize: the others may wait for it, so the job ends, as
 * oshrun(1) says; but not by shmem_global_exit, where all leave by themselves. */
static void at_exit(int status, void *argument)
{
    (void)argument;
    if (!member.pmi || member.pid != getpid())
        return;
    fflush(NULL);
    /* Pairs with the release in shmem_global_exit. */
    if (atomic_load_explicit(&member.job->exit_ready, memory_order_acquire)) {
        via_pmi_leave();
        return;
    }
    if (status == 0)
        fprintf(stderr,
                "viaduct-shmem: PE %u exits with code 0 but without shmem_finalize; the job is "
                "ended\n",
                member.number);
    /* A launcher that is asked to abort does not pass on what it has not read yet. */
    usleep(GRACE_US);
    member.pmi->ops->abort(member.pmi, status == 0 ? 1 : status,
                           "a PE exits without shmem_finalize");
}

/* --- gates over several machines --------------------------------------------------------------
 */

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
            return via_error_set(err, -EPROTO, "the words of PE %u: \"%.100s\"", pe, text);
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

    if (!pmi)
        return via_error_set(err, -ENOTSUP,
                             "a job of several machines, of a launcher that is not oshrun, can not "
                             "be initialized again after the last shmem_finalize");
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

static int tell(struct via_pmi *pmi, char machine[MACHINE_BYTES], struct via_error *err)
{
    char cores[VIA_PMI_VALUE_BYTES];

    int result = name_machine(machine, err);
    if (result == 0)
        result = pmi->ops->put(pmi, "machine", machine, err);
    name_cores(cores);
    if (result == 0)
        result = pmi->ops->put(pmi, "cores", cores, err);
    return result == 0 ? pmi->ops->fence(pmi, err) : result;
}

static int join(struct via_pmi *pmi, struct via_pmi_job *ret_job, struct via_error *err)
{
    struct via_job_files files = {0};
    char machine[MACHINE_BYTES];
    struct rlimit before = raise_limit();

    int result = tell(pmi, machine, err);
    if (result == 0 && pmi->rank == 0)
        result = make_job(pmi, machine, &files, err);
    if (result == 0)
        result = pmi->ops->fence(pmi, err);
    if (result == 0 && pmi->rank > 0)
        result = take_job(pmi, &files, err);
    setrlimit(RLIMIT_NOFILE, &before);
    if (result == 0)
        result = via_node_map(files.node_fds[0], &ret_job->node, err);
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
