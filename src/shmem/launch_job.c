/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Builds and parses the message that describes the job to an agent. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shmem/launch_remote.h"

#define WORDS_MAX 65536u

/* Variables of a machine or of a login rather than of the program. The agent has its own. */
bool via_launch_job_is_passed(const char *variable)
{
    static const char *const kept[] = {"HOME=",
                                       "USER=",
                                       "LOGNAME=",
                                       "SHELL=",
                                       "HOSTNAME=",
                                       "HOST=",
                                       "MAIL=",
                                       "PWD=",
                                       "OLDPWD=",
                                       "SHLVL=",
                                       "_=",
                                       "TMPDIR=",
                                       "DISPLAY=",
                                       "VIADUCT_HOST=",
                                       "VIADUCT_RUNDIR=",
                                       "VIADUCT_FABRIC=",
                                       "DBUS_",
                                       "SSH_",
                                       "XDG_",
                                       "SLURM",
                                       "PMI_",
                                       "PMIX_",
                                       "VIADUCT_SHMEM_JOB=",
                                       "OSHRUN_",
                                       "BASH_FUNC_"};

    if (!strchr(variable, '='))
        return false;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(kept); i++)
        if (strncmp(variable, kept[i], strlen(kept[i])) == 0)
            return false;
    return true;
}

static void put_words(struct via_launch_bytes *bytes, char *const *words,
                      bool (*passes)(const char *))
{
    uint32_t count = 0;

    for (char *const *word = words; *word; word++)
        count += !passes || passes(*word);
    via_launch_put_u32(bytes, count);
    for (char *const *word = words; *word; word++)
        if (!passes || passes(*word))
            via_launch_put_text(bytes, *word);
}

void via_launch_job_put(struct via_launch_bytes *bytes, const struct via_launch_job *job)
{
    via_launch_put_u32(bytes, job->node);
    via_launch_put_u32(bytes, job->nodes_count);
    via_launch_put_u32(bytes, job->pes_count);
    via_launch_put_u32(bytes, job->lost_after_s);
    via_launch_put_u64(bytes, job->heap_bytes);
    via_launch_put_text(bytes, job->rundir);
    via_launch_put_text(bytes, job->fabric);
    via_launch_put_text(bytes, job->folder);
    put_words(bytes, job->argv, NULL);
    put_words(bytes, job->environ, via_launch_job_is_passed);
    for (uint32_t pe = 0; pe < job->pes_count; pe++)
        via_launch_put_u32(bytes, job->node_of[pe]);
}

/* --- the agent's side ------------------------------------------------------------------------- */

/* NULL if they are missing. */
static char **take_words(struct via_launch_parts *parts)
{
    uint32_t count = via_launch_take_u32(parts);
    char **words = parts->failed || count > WORDS_MAX ? NULL : calloc(count + 1, sizeof(*words));

    for (uint32_t i = 0; words && i < count; i++)
        words[i] = (char *)via_launch_take_text(parts);
    return words;
}

/* PEs of a machine are consecutive, and each machine has some. */
static bool nodes_are_good(const struct via_launch_job *job)
{
    uint32_t node = 0;

    for (uint32_t pe = 0; pe < job->pes_count; pe++) {
        if (job->node_of[pe] != node && (pe == 0 || job->node_of[pe] != ++node))
            return false;
    }
    return node + 1 == job->nodes_count;
}

static bool is_good(const struct via_launch_job *job, const struct via_launch_parts *parts)
{
    return job->argv && job->argv[0] && job->environ && job->node_of &&
           via_launch_parts_is_end(parts) && job->node < job->nodes_count && nodes_are_good(job) &&
           job->lost_after_s > 0 && job->lost_after_s <= VIA_LAUNCH_LOST_AFTER_S_MAX &&
           job->heap_bytes >= VIA_JOB_HEAP_BYTES_MIN &&
           job->heap_bytes <= 2 * VIA_JOB_HEAP_BYTES_MAX;
}

int via_launch_job_parse(struct via_launch_parts *parts, struct via_launch_job *ret_job,
                         struct via_error *err)
{
    struct via_launch_job job = {.node = via_launch_take_u32(parts)};

    job.nodes_count = via_launch_take_u32(parts);
    job.pes_count = via_launch_take_u32(parts);
    job.lost_after_s = via_launch_take_u32(parts);
    job.heap_bytes = via_launch_take_u64(parts);
    job.rundir = via_launch_take_text(parts);
    job.fabric = via_launch_take_text(parts);
    job.folder = via_launch_take_text(parts);
    job.argv = take_words(parts);
    job.environ = take_words(parts);
    if (job.pes_count > 0 && job.pes_count <= VIA_JOB_PES_MAX)
        job.node_of = calloc(job.pes_count, sizeof(*job.node_of));
    for (uint32_t pe = 0; job.node_of && pe < job.pes_count; pe++)
        job.node_of[pe] = via_launch_take_u32(parts);
    if (!is_good(&job, parts)) {
        via_launch_job_fini(&job);
        return via_error_set(err, -EPROTO, "the message that describes the job is malformed");
    }
    *ret_job = job;
    return 0;
}

void via_launch_job_fini(struct via_launch_job *job)
{
    free(job->argv);
    free(job->environ);
    free(job->node_of);
    job->argv = job->environ = NULL;
    job->node_of = NULL;
}
