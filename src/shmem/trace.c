/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The PE's side of `viaduct shmem trace`: a wait that sleeps, and has lasted for milliseconds,
 * writes into the PE's board which call it is. It finds the call from the stack only then, so calls
 * that do not wait long have no cost.
 */
#include "shmem/trace.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shmem/api.h"
#include "shmem/check_calls.h"
#include "shmem/symbols.h"
#include "shmem/world.h"

struct via_board *via_trace_board;

#define FRAMES_MAX 24
/* Shorter waits are not recorded. */
#define LONG_WAIT_NS (5 * VIA_MSEC_NS)
#define REFRESH_NS (40 * VIA_MSEC_NS)

static _Thread_local struct {
    struct via_trace_wait *line; /* NULL: this thread has none yet */
    bool waiting;
    uint64_t first_ns; /* 0: not in a wait */
    uint64_t seen_ns;
    /* via_trace_note */
    const volatile void *word;
    int bytes;
    int cmp;
    uint64_t value;
} mine;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

/* --- which call ------------------------------------------------------------------------------- */

static int32_t displacement(const unsigned char *bytes)
{
    int32_t value;

    memcpy(&value, bytes, sizeof(value));
    return value;
}

/* The table entry through which a procedure linkage stub jumps: [endbr64] [bnd] jmp *disp(%rip). */
static uintptr_t slot_of_stub(uintptr_t stub)
{
    const unsigned char *at = (const unsigned char *)stub;

    if (memcmp(at, "\xf3\x0f\x1e\xfa", 4) == 0)
        at += 4;
    if (*at == 0xf2)
        at++;
    if (at[0] != 0xff || at[1] != 0x25)
        return 0;
    return (uintptr_t)(at + 6) + (uintptr_t)(intptr_t)displacement(at + 2);
}

/*
 * The call that returns to `address`, found from the target of the call instruction before it: a
 * stub, or in a static program the function itself (call rel32), or an entry of the table (call
 * *disp(%rip)). NULL for a call by pointer.
 */
static const struct via_call *call_before(uintptr_t address)
{
    const unsigned char *end = (const unsigned char *)address;
    uintptr_t slot = 0, function = 0;

    if (end[-5] == 0xe8) {
        function = address + (uintptr_t)(intptr_t)displacement(end - 4);
        slot = slot_of_stub(function);
    } else if (end[-6] == 0xff && end[-5] == 0x15) {
        slot = address + (uintptr_t)(intptr_t)displacement(end - 4);
    }
    if (slot != 0)
        memcpy(&function, (const void *)slot, sizeof(function));
    return function == 0 ? NULL : via_call_of_code(function);
}

/* True if `address` is in the library. A static program is a single object: there the library's
 * frames are those before the first one that makes an OpenSHMEM call. */
static bool is_library(const void *address)
{
    const void *object = via_call_object();
    Dl_info info;

    if (!object)
        return call_before((uintptr_t)address) == NULL;
    return dladdr(address, &info) && info.dli_fbase == object;
}

/* The innermost frames are the library's, and the program's follow. False if the call is the same
 * as before. */
static bool find_call(struct via_trace_wait *line)
{
    char name[VIA_TRACE_CALL_BYTES], caller[VIA_TRACE_CALLER_BYTES];
    void *frames[FRAMES_MAX];
    int count = backtrace(frames, FRAMES_MAX), i = 0;
    const struct via_call *call = NULL;
    char text[VIA_SYMBOL_TEXT_BYTES];

    while (i < count && is_library(frames[i]))
        i++;
    if (i < count)
        call = call_before((uintptr_t)frames[i]);
    snprintf(name, sizeof(name), "%s", call ? call->name : "an OpenSHMEM call");
    snprintf(caller, sizeof(caller), "%s",
             i < count ? via_symbol_describe_code((uintptr_t)frames[i] - 1, text) : "");
    if (strcmp(name, line->call) == 0 && strcmp(caller, line->caller) == 0)
        return false;
    memcpy(line->call, name, sizeof(name));
    memcpy(line->caller, caller, sizeof(caller));
    return true;
}

/* --- the reason for the wait ----------------------------------------------------------------- */

static int64_t load(const volatile void *word, int bytes)
{
    switch (bytes) {
    case 2:
        return *(const volatile uint16_t *)word;
    case -2:
        return *(const volatile int16_t *)word;
    case 4:
        return *(const volatile uint32_t *)word;
    case -4:
        return *(const volatile int32_t *)word;
    default:
        return *(const volatile int64_t *)word;
    }
}

static void describe_word(char *text, size_t size)
{
    static const char *const comparisons[] = {"?", "==", "!=", ">", "<=", "<", ">="};
    uintptr_t address = (uintptr_t)mine.word;
    struct via_symbol symbol;
    char name[96];

    if (!via_symbol_find_data(address, &symbol))
        snprintf(name, sizeof(name), "heap+0x%zx",
                 (size_t)(address - (uintptr_t)via_world.region[VIA_REGION_HEAP].base));
    else if (address == symbol.address)
        snprintf(name, sizeof(name), "%.64s", symbol.name);
    else
        snprintf(name, sizeof(name), "%.64s+%zu", symbol.name, (size_t)(address - symbol.address));
    if (mine.cmp == VIA_TRACE_SOME)
        snprintf(text, size, "%s, of %" PRIu64 " words", name, mine.value);
    else if (mine.cmp == VIA_TRACE_LOCK)
        snprintf(text, size, "lock %s", name); /* the reader of the board finds the holder */
    else
        snprintf(text, size, "%s is %" PRId64 ", wanted %s %" PRId64, name,
                 load(mine.word, mine.bytes),
                 comparisons[mine.cmp >= 0 && mine.cmp < 7 ? mine.cmp : 0], (int64_t)mine.value);
}

void via_trace_note(const volatile void *word, int bytes, int cmp, uint64_t value)
{
    mine.word = word;
    mine.bytes = bytes;
    mine.cmp = cmp;
    mine.value = value;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Threads that wait at the same time need a line each; if there are too many, they share lines. */
static struct via_trace_wait *take_line(void)
{
    static _Atomic uint32_t taken;
    uint32_t number = atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);

    return &via_job_board(via_world.job, (uint32_t)via_hot.my_pe)
                ->waits[number % VIA_TRACE_THREADS];
}

/* Odd while the line changes. Pairs with the acquires of the reader, launch_trace.c. */
static void begin_write(struct via_trace_wait *line)
{
    atomic_fetch_add_explicit(&line->version, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void end_write(struct via_trace_wait *line)
{
    atomic_fetch_add_explicit(&line->version, 1, memory_order_release);
}

/* Everything is collected before the line is written: collecting takes time, and a reader must not
 * wait for a process that may be stopped meanwhile. */
static void collect_wait(void)
{
    static _Thread_local struct via_trace_wait shown;
    uint64_t now = now_ns();

    if (mine.first_ns == 0)
        mine.first_ns = now;
    if (now - mine.first_ns < LONG_WAIT_NS || (mine.waiting && now - mine.seen_ns < REFRESH_NS))
        return;
    if (!mine.line)
        mine.line = take_line();
    /* A new wait may follow directly, before the line of the old one is cleared. */
    if (find_call(&shown) || !mine.waiting)
        shown.since_ns = mine.waiting ? now : mine.first_ns;
    shown.what[0] = '\0';
    shown.lock = mine.word && mine.cmp == VIA_TRACE_LOCK ? mine.value : 0;
    if (mine.word)
        describe_word(shown.what, sizeof(shown.what));
    begin_write(mine.line);
    mine.line->waiting = 1;
    mine.line->since_ns = shown.since_ns;
    mine.line->seen_ns = now;
    mine.line->lock = shown.lock;
    memcpy(mine.line->call, shown.call, sizeof(shown.call));
    memcpy(mine.line->caller, shown.caller, sizeof(shown.caller));
    memcpy(mine.line->what, shown.what, sizeof(shown.what));
    end_write(mine.line);
    mine.waiting = true;
    mine.seen_ns = now;
}

static void end_wait(void)
{
    mine.word = NULL;
    mine.first_ns = 0;
    if (!mine.waiting)
        return;
    mine.waiting = false;
    begin_write(mine.line);
    mine.line->waiting = 0;
    end_write(mine.line);
}

void via_trace_init(void)
{
    struct via_board *board = via_job_board(via_world.job, (uint32_t)via_hot.my_pe);

    via_trace_board = board;
    atomic_store_explicit(&board->pid, getpid(), memory_order_relaxed);
    via_wait_trace = collect_wait;
    via_wait_trace_over = end_wait;
}
