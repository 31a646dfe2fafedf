/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/profile/profile.h"

#include "shmem/profile/machines.h"
#include "shmem/profile/timeline_file.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROFILE "VIADUCT_SHMEM_PROFILE"
#define TIMELINE "VIADUCT_SHMEM_TIMELINE"
#define EVENT_NS_MIN 1000u
#define EVENTS_MAX (1u << 20) /* of a thread: 32 MiB */
#define EVENTS_FIRST 1024u
#define WRITER_S_MAX 4 /* the launcher waits longer: FILES_NS of launch_control.c */

struct event {
    uint64_t begin_ns;
    uint64_t took_ns;
    uint64_t bytes;
    int32_t pe;
    uint32_t number;
};

/* The sums of one call, over all times that it was made. */
struct sum {
    uint64_t count;
    uint64_t took_ns;
    uint64_t longest_ns;
    uint64_t bytes;
};

/* The records of a thread, which stay when the thread ends. */
struct notes {
    struct notes *next;
    unsigned thread;
    uint32_t events_count;
    uint32_t events_room;
    uint64_t events_lost;
    struct event *events;
    struct sum sums[]; /* via_profile_calls_count */
};

static struct {
    pthread_mutex_t lock;    /* notes, threads */
    pthread_mutex_t writing; /* a thread writes the timeline */
    struct notes *notes;
    unsigned threads;
    const char *profile, *timeline;
    _Atomic bool on;
    unsigned init_count;
    bool at_exit, awaits_writer;
    pthread_t starter; /* thread that has called start_pes */
    int me, pes;
} tool = {.lock = PTHREAD_MUTEX_INITIALIZER, .writing = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP};

static __thread struct notes *mine;
/* A call that another call makes counts as part of that call. */
static __thread unsigned depth;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- recording -------------------------------------------------------------------------------- */

static struct notes *my_notes(void)
{
    if (!mine) {
        struct notes *notes =
            calloc(1, sizeof(*notes) + via_profile_calls_count * sizeof(notes->sums[0]));
        if (!notes)
            return NULL;
        pthread_mutex_lock(&tool.lock);
        notes->thread = tool.threads++;
        notes->next = tool.notes;
        tool.notes = notes;
        pthread_mutex_unlock(&tool.lock);
        mine = notes;
    }
    return mine;
}

static void note_event(struct notes *notes, const struct event *event)
{
    if (notes->events_count == notes->events_room) {
        uint32_t room = notes->events_room == 0 ? EVENTS_FIRST : notes->events_room * 2;
        struct event *events =
            room <= EVENTS_MAX ? realloc(notes->events, room * sizeof(*events)) : NULL;
        if (!events) {
            notes->events_lost++;
            return;
        }
        notes->events = events;
        notes->events_room = room;
    }
    notes->events[notes->events_count++] = *event;
}

uint64_t via_profile_enter(void)
{
    if (!atomic_load_explicit(&tool.on, memory_order_relaxed) || depth++ > 0)
        return 0;
    return clock_ns(CLOCK_MONOTONIC);
}

void via_profile_leave(unsigned number, uint64_t begin_ns, int pe, uint64_t bytes)
{
    if (depth > 0)
        depth--;
    if (begin_ns == 0)
        return;
    uint64_t took_ns = clock_ns(CLOCK_MONOTONIC) - begin_ns;
    struct notes *notes = my_notes();
    if (!notes)
        return;
    struct sum *sum = &notes->sums[number];
    sum->count++;
    sum->took_ns += took_ns;
    sum->longest_ns = took_ns > sum->longest_ns ? took_ns : sum->longest_ns;
    sum->bytes += bytes;
    struct event event = {begin_ns, took_ns, bytes, pe, number};
    if (tool.timeline && took_ns >= EVENT_NS_MIN)
        note_event(notes, &event);
}

/* --- the timeline ----------------------------------------------------------------------------- */

static void print_event(FILE *out, const struct event *event, unsigned thread)
{
    const struct via_profile_call *call = &via_profile_calls[event->number];

    fprintf(out,
            ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,"
            "\"tid\":%u,\"args\":{",
            call->name, call->kind, via_profile_machines_us(event->begin_ns),
            (double)event->took_ns / 1e3, tool.me, thread);
    if (event->pe >= 0)
        fprintf(out, "\"pe\":%d%s", event->pe, event->bytes > 0 ? "," : "");
    if (event->bytes > 0)
        fprintf(out, "\"bytes\":%" PRIu64, event->bytes);
    fprintf(out, "}}");
}

static void print_events(FILE *out)
{
    fprintf(out,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"PE %d\"}}",
            tool.me, tool.me);
    for (struct notes *notes = tool.notes; notes; notes = notes->next) {
        for (uint32_t i = 0; i < notes->events_count; i++)
            print_event(out, &notes->events[i], notes->thread);
        if (notes->events_lost > 0)
            fprintf(out,
                    ",\n{\"name\":\"%" PRIu64 " later calls were not kept\",\"ph\":\"i\",\"ts\":"
                    "%.3f,\"pid\":%d,\"tid\":%u,\"s\":\"p\"}",
                    notes->events_lost,
                    via_profile_machines_us(notes->events[notes->events_count - 1].begin_ns),
                    tool.me, notes->thread);
        notes->events_count = 0;
        notes->events_lost = 0;
    }
}

static void complain(const char *variable, const char *path)
{
    fprintf(stderr, "viaduct-shmem-profile: PE %d: %s: %s: %s\n", tool.me, variable, path,
            strerror(errno));
}

/* `pe` is this one, or one on another machine that sends its events. When the job ends, PEs share
 * the file until all have added their events. */
static void write_timeline(int pe, bool shared)
{
    pthread_mutex_lock(&tool.writing);
    FILE *out = via_profile_timeline_open(tool.timeline, shared);
    bool good = out != NULL;

    if (!out) {
        complain(TIMELINE, tool.timeline);
        out = pe != tool.me ? fopen("/dev/null", "we") : NULL;
    }
    if (out && pe == tool.me)
        print_events(out);
    else if (out)
        via_profile_machines_receive(pe, out); /* the PE waits until its events are received */
    if (!good && out)
        fclose(out);
    else if (good && !via_profile_timeline_close(out, tool.timeline, shared))
        complain(TIMELINE, tool.timeline);
    pthread_mutex_unlock(&tool.writing);
}

/* At exit. The job may have ended by another PE's shmem_global_exit while a thread of this one
 * writes. */
static void wait_for_writer(void)
{
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += WRITER_S_MAX;
    (void)pthread_mutex_clocklock(&tool.writing, CLOCK_MONOTONIC,
                                  &end); /* never unlocked: no thread may write from now on */
}

static void send_timeline(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (out)
        print_events(out);
    if (!out || fclose(out) != 0) {
        complain(TIMELINE, tool.timeline);
        bytes = 0;
    }
    via_profile_machines_send(text, bytes);
    free(text);
}

/* Collective. Writes one file, on PE 0's machine. */
static void end_timeline(void)
{
    via_profile_machines_measure();
    if (via_profile_machines_has(tool.me))
        write_timeline(tool.me, true);
    else
        send_timeline();
    for (int pe = 1; pe < tool.pes && tool.me == 0; pe++)
        if (!via_profile_machines_has(pe))
            write_timeline(pe, true);
    pshmem_barrier_all();
    if (via_profile_machines_has(tool.me) && !via_profile_timeline_finish(tool.timeline))
        complain(TIMELINE, tool.timeline);
    via_profile_machines_end();
}

/* --- the profile: PE 0 prints what all have recorded ------------------------------------------ */

#define SUM_WORDS (sizeof(struct sum) / sizeof(uint64_t))

static void add_up(struct sum *sums)
{
    for (const struct notes *notes = tool.notes; notes; notes = notes->next) {
        for (unsigned i = 0; i < via_profile_calls_count; i++) {
            sums[i].count += notes->sums[i].count;
            sums[i].took_ns += notes->sums[i].took_ns;
            sums[i].bytes += notes->sums[i].bytes;
            if (notes->sums[i].longest_ns > sums[i].longest_ns)
                sums[i].longest_ns = notes->sums[i].longest_ns;
        }
    }
}

static const struct sum *sorted;

static int compare(const void *a, const void *b)
{
    const struct sum *left = &sorted[*(const unsigned *)a], *right = &sorted[*(const unsigned *)b];

    return left->took_ns < right->took_ns ? 1 : left->took_ns > right->took_ns ? -1 : 0;
}

static void print_profile(FILE *out, const struct sum *sums)
{
    unsigned *order = malloc(via_profile_calls_count * sizeof(*order));

    if (!order)
        return;
    for (unsigned i = 0; i < via_profile_calls_count; i++)
        order[i] = i;
    sorted = sums;
    qsort(order, via_profile_calls_count, sizeof(*order), compare);
    fprintf(out, "%-36s %-10s %12s %12s %10s %10s %12s\n", "call of OpenSHMEM, by all PEs", "kind",
            "calls", "total ms", "mean us", "longest us", "MB");
    for (unsigned i = 0; i < via_profile_calls_count && sums[order[i]].count > 0; i++) {
        const struct sum *sum = &sums[order[i]];
        fprintf(out, "%-36s %-10s %12" PRIu64 " %12.3f %10.2f %10.1f %12.3f\n",
                via_profile_calls[order[i]].name, via_profile_calls[order[i]].kind, sum->count,
                (double)sum->took_ns / 1e6, (double)sum->took_ns / 1e3 / (double)sum->count,
                (double)sum->longest_ns / 1e3, (double)sum->bytes / 1e6);
    }
    free(order);
}

static void write_profile(const struct sum *sums)
{
    bool to_error = strcmp(tool.profile, "-") == 0;
    FILE *out = to_error ? stderr : fopen(tool.profile, "we");

    if (!out) {
        complain(PROFILE, tool.profile);
        return;
    }
    print_profile(out, sums);
    if (!to_error && fclose(out) != 0)
        complain(PROFILE, tool.profile);
}

/* Collective. Adds up all words but the longest time, of which it takes the maximum. */
static void make_profile(void)
{
    size_t words = via_profile_calls_count * SUM_WORDS;
    uint64_t *own = pshmem_calloc(words, sizeof(*own)), *all = pshmem_calloc(words, sizeof(*all));
    uint64_t *most = pshmem_calloc(words, sizeof(*most));

    if (own && all && most) {
        add_up((struct sum *)(void *)own);
        pshmem_uint64_sum_reduce(SHMEM_TEAM_WORLD, all, own, words);
        pshmem_uint64_max_reduce(SHMEM_TEAM_WORLD, most, own, words);
        for (unsigned i = 0; i < via_profile_calls_count && tool.me == 0; i++)
            ((struct sum *)(void *)all)[i].longest_ns = ((struct sum *)(void *)most)[i].longest_ns;
        if (tool.me == 0)
            write_profile((struct sum *)(void *)all);
    } else if (tool.me == 0) {
        fprintf(stderr, "viaduct-shmem-profile: %s: the symmetric heap has no room\n", PROFILE);
    }
    pshmem_free(most);
    pshmem_free(all);
    pshmem_free(own);
}

/* --- the calls that begin and end ------------------------------------------------------------- */

/* Collective, called after the first init. Agrees on the time when the job began, so that the times
 * of all PEs are comparable. */
static void begin(void)
{
    if (tool.init_count++ > 0)
        return;
    tool.profile = getenv(PROFILE);
    tool.timeline = getenv(TIMELINE);
    tool.profile = tool.profile && *tool.profile ? tool.profile : NULL;
    tool.timeline = tool.timeline && *tool.timeline ? tool.timeline : NULL;
    if (!tool.profile && !tool.timeline)
        return;
    tool.me = pshmem_my_pe();
    tool.pes = pshmem_n_pes();
    if (tool.timeline) {
        via_profile_timeline_reset(tool.timeline); /* on each machine */
        if (!tool.awaits_writer)
            tool.awaits_writer = atexit(wait_for_writer) == 0;
        if (!via_profile_machines_begin(tool.me, tool.pes) && tool.me == 0)
            fprintf(stderr,
                    "viaduct-shmem-profile: %s: the symmetric heap has no room: machines do not "
                    "compare their clocks\n",
                    TIMELINE);
    }
    atomic_store_explicit(&tool.on, true, memory_order_relaxed);
}

static void finish(void)
{
    if (tool.init_count == 0 || --tool.init_count > 0 || (!tool.profile && !tool.timeline))
        return;
    atomic_store_explicit(&tool.on, false, memory_order_relaxed);
    if (tool.timeline)
        end_timeline();
    if (tool.profile)
        make_profile();
}

void shmem_init(void)
{
    pshmem_init();
    begin();
}

int shmem_init_thread(int requested, int *provided)
{
    int result = pshmem_init_thread(requested, provided);

    begin();
    return result;
}

/* Collective, so not after an error, nor when another PE has ended the job: then the library's own
 * thread calls exit. */
static void finish_at_exit(int status, void *argument)
{
    (void)argument;
    if (status == 0 && pthread_equal(tool.starter, pthread_self()))
        finish();
}

/* The tool registers its handler after pstart_pes() has registered the library's, so at exit the
 * tool's runs first. */
void start_pes(int npes)
{
    pstart_pes(npes);
    begin();
    if (!tool.at_exit) {
        tool.starter = pthread_self();
        tool.at_exit = on_exit(finish_at_exit, NULL) == 0;
    }
}

void shmem_finalize(void)
{
    finish();
    pshmem_finalize();
}

void shmem_global_exit(int status)
{
    if (tool.timeline && tool.init_count > 0)
        write_timeline(tool.me, false);
    tool.init_count = 0; /* nothing collective at exit */
    pshmem_global_exit(status);
}

void shmem_pcontrol(int level, ...)
{
    if (tool.init_count > 0 && (tool.profile || tool.timeline) && (level == 0 || level == 1))
        atomic_store_explicit(&tool.on, level == 1, memory_order_relaxed);
    if (tool.init_count > 0 && tool.timeline && level == 2)
        write_timeline(tool.me, false);
    pshmem_pcontrol(level);
}
