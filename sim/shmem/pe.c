/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* PEs: fibers that share the library's variables, which are swapped at each switch. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shmem/copy.h"
#include "shmem/peer.h"
#include "sim/memory.h"
#include "sim/shmem/job.h"
#include "sim/stub.h"

struct via_hot via_hot;
struct via_world via_world;
struct sim_job *sim_job;

/* Fibers have the memory of all PEs of their host from the beginning. */
SIM_STUB(char *, NULL, via_peer_map, enum via_region region, int pe)

void sim_pe_trace(struct sim_pe *pe, const char *format, ...)
{
    char text[512];
    va_list args;
    if (pe->job->world->trace == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    sim_trace(pe->job->world, "PE %u (host %u) step %u: %s", pe->index, pe->host->index, pe->step,
              text);
}

/* --- the library's variables ----------------------------------------------------------------- */

static void unload(struct sim_pe *pe)
{
    pe->hot = via_hot;
    pe->world = via_world;
    pe->teams = via_teams;
}

void sim_pe_load(struct sim_pe *pe)
{
    struct sim_job *job = pe->job;
    if (job->loaded == pe) {
        return;
    }
    if (job->loaded != NULL) {
        unload(job->loaded);
    }
    via_hot = pe->hot;
    via_world = pe->world;
    via_teams = pe->teams;
    job->loaded = pe;
}

/* --- scheduling ------------------------------------------------------------------------------ */

static void go_on_after(struct sim_pe *pe, uint64_t ns)
{
    sim_clock_after(&pe->job->world->clock, ns, SIM_EVENT_GUEST, pe->index, SIM_PE_RESUME,
                    ++pe->ticket);
}

void sim_pe_start(struct sim_pe *pe)
{
    pe->state = SIM_PE_GOING;
    go_on_after(pe, sim_job_between(pe->job, 0, 3000000));
}

void sim_pe_resume(struct sim_pe *pe, uint32_t ticket)
{
    struct sim_job *job = pe->job;
    if (pe->state == SIM_PE_ENDED || ticket != pe->ticket) {
        return;
    }
    if (pe->host->thaw_ns > job->world->clock.now_ns) {
        sim_clock_at(&job->world->clock, pe->host->thaw_ns, SIM_EVENT_GUEST, pe->index,
                     SIM_PE_RESUME, ticket);
        return;
    }
    pe->state = SIM_PE_GOING;
    pe->futex = NULL;
    pe->in_epoll = false;
    job->world->counts.pe_turns++;
    sim_pe_load(pe);
    job->running = pe;
    struct sim_call call = sim_fiber_call(&pe->fiber);
    call.run(call.object, 0);
    job->running = NULL;
    if (pe->state == SIM_PE_ENDED) {
        sim_final_progress(job->world);
    }
}

bool sim_pe_block(struct sim_pe *pe, uint64_t longest_ns)
{
    pe->woken = false;
    pe->state = SIM_PE_BLOCKED;
    go_on_after(pe, longest_ns);
    sim_fiber_wait(&pe->fiber);
    return pe->woken;
}

void sim_pe_pause(struct sim_pe *pe, uint64_t ns)
{
    pe->state = SIM_PE_GOING;
    go_on_after(pe, ns);
    sim_fiber_wait(&pe->fiber);
}

void sim_pe_wake(struct sim_pe *pe)
{
    if (pe->state != SIM_PE_BLOCKED || pe->woken) {
        return;
    }
    pe->woken = true;
    go_on_after(pe, sim_job_between(pe->job, 500, pe->job->config->wake_ns_max));
}

/* --- ends ------------------------------------------------------------------------------------ */

/* The launcher notices that a PE has ended with an error, and ends the others. */
#define KILL_US_MAX 1000000u

void sim_pe_end(struct sim_pe *pe)
{
    struct sim_job *job = pe->job;
    pe->state = SIM_PE_ENDED;
    if (!pe->fatal) {
        return;
    }
    sim_pe_trace(pe, "ends the job: %s", pe->last_words);
    if (!job->ending) {
        job->ending = true;
        job->world->counts.pe_ends++;
        sim_clock_after(&job->world->clock, sim_job_between(job, 0, KILL_US_MAX) * VIA_USEC_NS,
                        SIM_EVENT_GUEST, 0, SIM_PE_KILL, 0);
    }
    if (job->running == pe) {
        sim_fiber_wait(&pe->fiber);
        abort(); /* nothing resumes it */
    }
}

static void VIA_PRINTF(1, 0) __attribute__((noreturn)) fatal(const char *format, va_list args)
{
    struct sim_pe *pe = sim_job->running;
    pe->fatal = true;
    vsnprintf(pe->last_words, sizeof(pe->last_words), format, args);
    sim_program_fatal(pe);
    sim_pe_end(pe);
    abort();
}

void via_fatal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fatal(format, args);
    va_end(args);
}

void via_fatal_cut_off(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fatal(format, args);
    va_end(args);
}

void via_fatal_uninitialized(const char *call)
{
    via_fatal("%s: the library is not initialized", call);
}

SIM_STUB_VOID(via_debug, const char *format, ...)

/* --- set-up ---------------------------------------------------------------------------------- */

static void pe_main(void *arg)
{
    struct sim_pe *pe = arg;
    sim_accesses_draw(pe->job);
    sim_attach_offer(pe);
    sim_program_run(pe);
    sim_pe_end(pe);
}

void sim_pe_init(struct sim_job *job, uint32_t index)
{
    struct sim_pe *pe = &job->pes[index];
    pe->job = job;
    pe->index = index;
    pe->doing = "begins";
    via_list_init(&pe->allocated);
    for (int region = 0; region < VIA_REGIONS; region++) {
        pe->base[region] = sim_map_shared(sim_pe_bytes[region], &pe->fds[region]);
    }
    sim_fiber_init(&pe->fiber, pe_main, pe);
}

void sim_pe_fini(struct sim_pe *pe)
{
    sim_fiber_fini(&pe->fiber);
    for (int region = 0; region < VIA_REGIONS; region++) {
        munmap(pe->base[region], sim_pe_bytes[region]);
        close(pe->fds[region]);
    }
}

/* A write to an eventfd: the PE notices a little later. */
void sim_pe_ring(uint32_t index)
{
    struct sim_job *job = sim_job;
    sim_clock_after(&job->world->clock, sim_job_between(job, 0, 2000), SIM_EVENT_GUEST, index,
                    SIM_PE_BELL, 0);
}
