/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "shmem/api.h"
#include "shmem/symbols.h"
#include "shmem/world.h"

#define VARIABLE "VIADUCT_SHMEM_CHECK"
#define PLACES_MAX 256u
#define NOT_A_PE (-1)

static struct {
    bool on;
    bool abort;
    bool was_initialized;
    pthread_mutex_t lock;
    uint64_t places[PLACES_MAX]; /* mistakes that have been reported */
    uint32_t places_count;
    uint32_t more_count; /* repetitions that were not printed */
} check = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- messages --------------------------------------------------------------------------------- */

static bool is_new(uintptr_t place, const char *format)
{
    uint64_t digest = via_hash64(VIA_HASH64_INIT, &place, sizeof(place));
    bool known = false;

    digest = via_hash64(digest, &format, sizeof(format));
    pthread_mutex_lock(&check.lock);
    for (uint32_t i = 0; i < check.places_count && !known; i++)
        known = check.places[i] == digest;
    if (!known && check.places_count == PLACES_MAX)
        known = true;
    else if (!known)
        check.places[check.places_count++] = digest;
    check.more_count += known;
    pthread_mutex_unlock(&check.lock);
    return !known;
}

static void print(const char *text)
{
    char line[1024];
    int used;

    if (via_world.me && via_world.job->fabric)
        used = snprintf(line, sizeof(line), "viaduct-shmem: PE %d on host %u: check: %s\n",
                        via_hot.my_pe, via_world.me->host, text);
    else if (via_world.me)
        used =
            snprintf(line, sizeof(line), "viaduct-shmem: PE %d: check: %s\n", via_hot.my_pe, text);
    else
        used = snprintf(line, sizeof(line), "viaduct-shmem: check: %s\n", text);
    /* One write, so that lines of several PEs do not mix. */
    if (write(STDERR_FILENO, line, via_min((size_t)used, sizeof(line) - 1)) < 0)
        return;
}

void via_check_report(const struct via_arguments *arguments, const char *section,
                      const char *format, ...)
{
    char text[800], caller[VIA_SYMBOL_TEXT_BYTES];
    uintptr_t place = via_return_address(arguments);
    va_list args;

    if (!is_new(place, format))
        return;
    int used = snprintf(text, sizeof(text), "%s in %s: ", arguments->call->name,
                        via_symbol_describe_code(place - 1, caller));
    va_start(args, format);
    used += vsnprintf(text + used, sizeof(text) - (size_t)used, format, args);
    va_end(args);
    used = via_min(used, (int)sizeof(text) - 1);
    snprintf(text + used, sizeof(text) - (size_t)used, " (OpenSHMEM 1.6, section %s)",
             section ? section : arguments->call->section);
    print(text);
    if (check.abort) {
        fflush(stdout);
        _exit(1);
    }
}

/* --- the arguments of a call ------------------------------------------------------------------ */

static uint64_t elements_of(const struct via_arguments *arguments)
{
    if (!via_has_argument(arguments, VIA_ROLE_NELEMS))
        return 1;
    if (arguments->call->narrow)
        return (uint64_t)via_max(via_int_argument(arguments, VIA_ROLE_NELEMS), 0);
    return via_argument(arguments, VIA_ROLE_NELEMS);
}

static struct via_check_span span_of(const struct via_arguments *arguments, const char *name,
                                     enum via_role role, uint64_t bytes)
{
    return (struct via_check_span){name, (uintptr_t)via_argument(arguments, role), bytes};
}

/* The range from the first byte to the end of the last byte of a transfer of `count` elements, each
 * a stride after the previous one; strides may be negative. */
static struct via_check_span stretch(const struct via_arguments *arguments, const char *name,
                                     enum via_role role, enum via_role stride_role, uint64_t count,
                                     uint64_t block)
{
    int64_t stride = 1, distance;
    struct via_check_span span = span_of(arguments, name, role, 0);
    uint64_t element_bytes = arguments->call->element_bytes;

    if (count == 0 || block == 0)
        return span;
    if (via_has_argument(arguments, stride_role))
        stride = (int64_t)via_argument(arguments, stride_role);
    /* A negative or far too large count overflows here: the range then extends past the end of any
     * object. */
    if (__builtin_mul_overflow((int64_t)(count - 1), stride, &distance) ||
        __builtin_mul_overflow(distance, (int64_t)element_bytes, &distance) ||
        __builtin_mul_overflow(block, element_bytes, &span.bytes) || distance == INT64_MIN ||
        span.bytes > INT64_MAX - (uint64_t)llabs(distance)) {
        span.bytes = INT64_MAX;
        return span;
    }
    span.bytes += (uint64_t)llabs(distance);
    if (distance < 0)
        span.address -= (uintptr_t)-distance;
    return span;
}

/* The range that a transfer between two PEs accesses in one of its arguments. */
static struct via_check_span transfer(const struct via_arguments *arguments, const char *name,
                                      enum via_role role, enum via_role stride_role)
{
    if (via_has_argument(arguments, VIA_ROLE_NBLOCKS))
        return stretch(arguments, name, role, stride_role,
                       via_argument(arguments, VIA_ROLE_NBLOCKS),
                       via_argument(arguments, VIA_ROLE_BSIZE));
    return stretch(arguments, name, role, stride_role, elements_of(arguments), 1);
}

static int world_pe(const struct via_arguments *arguments)
{
    int pe = via_int_argument(arguments, VIA_ROLE_PE), count = via_hot.n_pes;
    shmem_ctx_t ctx = SHMEM_CTX_DEFAULT;

    if (via_has_argument(arguments, VIA_ROLE_CTX))
        ctx = (shmem_ctx_t)(uintptr_t)via_argument(arguments, VIA_ROLE_CTX);
    if (ctx == SHMEM_CTX_INVALID) {
        /* Only calls that order accesses, and ctx_destroy, accept it. */
        via_check_report(arguments, "9.5", "ctx is SHMEM_CTX_INVALID");
        return NOT_A_PE;
    }
    bool of_team = ctx != SHMEM_CTX_DEFAULT && ctx != SHMEM_CTX_INVALID && ctx->team;
    if (of_team)
        count = ctx->team->size;
    if (pe < 0 || pe >= count) {
        via_check_report(arguments, NULL, "pe = %d: %s has PEs 0 to %d", pe,
                         of_team ? "the context's team" : "the job", count - 1);
        return NOT_A_PE;
    }
    return via_ctx_pe(ctx, pe);
}

/* --- one PE with another ---------------------------------------------------------------------- */

static void check_put(const struct via_arguments *arguments)
{
    int pe = world_pe(arguments);
    struct via_check_span dest = transfer(arguments, "dest", VIA_ROLE_DEST, VIA_ROLE_DST);

    if (dest.bytes == 0)
        return;
    if (via_has_argument(arguments, VIA_ROLE_SOURCE)) {
        struct via_check_span source = transfer(arguments, "source", VIA_ROLE_SOURCE, VIA_ROLE_SST);
        via_check_bounds(arguments, &source);
    }
    if (via_check_symmetric(arguments, &dest, pe) && pe != NOT_A_PE)
        via_check_order_put(arguments, dest.address, dest.bytes, pe,
                            dest.bytes <= sizeof(uint64_t));
}

static void check_get(const struct via_arguments *arguments)
{
    int pe = world_pe(arguments);
    struct via_check_span source = transfer(arguments, "source", VIA_ROLE_SOURCE, VIA_ROLE_SST);

    if (source.bytes == 0)
        return;
    via_check_symmetric(arguments, &source, pe);
    if (via_has_argument(arguments, VIA_ROLE_DEST)) {
        struct via_check_span dest = transfer(arguments, "dest", VIA_ROLE_DEST, VIA_ROLE_DST);
        via_check_bounds(arguments, &dest);
    }
}

static void check_atomic(const struct via_arguments *arguments)
{
    int pe = world_pe(arguments);
    struct via_check_span dest =
        span_of(arguments, "dest", VIA_ROLE_DEST, arguments->call->element_bytes);

    if (via_check_symmetric(arguments, &dest, pe) && pe != NOT_A_PE)
        via_check_order_put(arguments, dest.address, dest.bytes, pe, true);
}

static void check_signal(const struct via_arguments *arguments)
{
    int pe = world_pe(arguments);
    struct via_check_span signal =
        span_of(arguments, "sig_addr", VIA_ROLE_SIGNAL_ADDRESS, sizeof(uint64_t));

    if (via_check_symmetric(arguments, &signal, pe) && pe != NOT_A_PE)
        via_check_order_put(arguments, signal.address, signal.bytes, pe, true);
    if (!via_has_argument(arguments, VIA_ROLE_DEST) || elements_of(arguments) == 0)
        return;
    struct via_check_span dest = transfer(arguments, "dest", VIA_ROLE_DEST, VIA_ROLE_DST);
    struct via_check_span source = transfer(arguments, "source", VIA_ROLE_SOURCE, VIA_ROLE_SST);
    via_check_symmetric(arguments, &dest, pe);
    via_check_bounds(arguments, &source);
}

static void check_wait(const struct via_arguments *arguments)
{
    bool signal = via_has_argument(arguments, VIA_ROLE_SIGNAL_ADDRESS);
    uint64_t count = elements_of(arguments);
    uint64_t element_bytes = signal ? sizeof(uint64_t) : arguments->call->element_bytes;
    struct via_check_span ivar =
        span_of(arguments, signal ? "sig_addr" : "ivar",
                signal ? VIA_ROLE_SIGNAL_ADDRESS : VIA_ROLE_IVAR, count * element_bytes);

    if (count == 0 || !via_check_symmetric(arguments, &ivar, via_hot.my_pe))
        return;
    for (uint64_t i = 0; i < via_min(count, (uint64_t)8); i++)
        via_check_order_wait(ivar.address + (uintptr_t)(i * element_bytes));
}

static void check_lock(const struct via_arguments *arguments)
{
    struct via_check_span lock = span_of(arguments, "lock", VIA_ROLE_LOCK, sizeof(long));

    via_check_symmetric(arguments, &lock, NOT_A_PE);
}

/* --- collectives ------------------------------------------------------------------------------ */

/* Sizes of a PE's dest and source as multiples of nelems, in a group with as many members as
 * `group`. */
static void count_parts(const struct via_arguments *arguments, const struct via_check_group *group,
                        uint64_t *ret_dest, uint64_t *ret_source)
{
    const char *name = arguments->call->name;

    *ret_dest = *ret_source = 1;
    if (strstr(name, "fcollect"))
        *ret_dest = (uint64_t)group->size;
    else if (strstr(name, "alltoall"))
        *ret_dest = *ret_source = (uint64_t)group->size;
}

static void check_side(const struct via_arguments *arguments, const char *name, enum via_role role,
                       enum via_role stride_role, uint64_t parts)
{
    uint64_t elements;

    if (!via_has_argument(arguments, role) ||
        __builtin_mul_overflow(elements_of(arguments), parts, &elements))
        return;
    struct via_check_span span = stretch(arguments, name, role, stride_role, elements, 1);
    if (span.bytes > 0)
        via_check_symmetric(arguments, &span, NOT_A_PE);
}

static void check_work_arrays(const struct via_arguments *arguments)
{
    if (via_has_argument(arguments, VIA_ROLE_SYNC)) {
        struct via_check_span sync =
            span_of(arguments, "pSync", VIA_ROLE_SYNC, SHMEM_SYNC_SIZE * sizeof(long));
        via_check_symmetric(arguments, &sync, NOT_A_PE);
    }
    if (via_has_argument(arguments, VIA_ROLE_WORK)) {
        uint64_t elements =
            via_max(elements_of(arguments) / 2 + 1, (uint64_t)SHMEM_REDUCE_MIN_WRKDATA_SIZE);
        struct via_check_span work =
            span_of(arguments, "pWrk", VIA_ROLE_WORK, elements * arguments->call->element_bytes);
        via_check_symmetric(arguments, &work, NOT_A_PE);
    }
}

static void check_block(const struct via_arguments *arguments)
{
    if (!via_has_argument(arguments, VIA_ROLE_POINTER))
        return;
    via_check_order_forget();
    struct via_check_span block = span_of(arguments, "ptr", VIA_ROLE_POINTER, 1);
    if (block.address != 0)
        via_check_block(arguments, &block);
}

/* malloc(0), free(NULL) and similar calls do nothing, and are not collective. */
static bool is_without_effect(const struct via_arguments *arguments)
{
    if (via_has_argument(arguments, VIA_ROLE_POINTER))
        return via_argument(arguments, VIA_ROLE_POINTER) == 0 &&
               (!via_has_argument(arguments, VIA_ROLE_BYTES) ||
                via_argument(arguments, VIA_ROLE_BYTES) == 0);
    return arguments->call->family == VIA_FAMILY_MEMORY &&
           (via_argument(arguments, VIA_ROLE_BYTES) == 0 ||
            (via_has_argument(arguments, VIA_ROLE_COUNT) &&
             via_argument(arguments, VIA_ROLE_COUNT) == 0));
}

static void check_collective(const struct via_arguments *arguments)
{
    struct via_check_group group;
    uint64_t dest_parts, source_parts;

    if (is_without_effect(arguments))
        return;
    check_block(arguments);
    if (!strstr(arguments->call->name, "sync"))
        via_check_order_done();
    if (!via_check_find_group(arguments, &group))
        return;
    count_parts(arguments, &group, &dest_parts, &source_parts);
    check_side(arguments, "dest", VIA_ROLE_DEST, VIA_ROLE_DST, dest_parts);
    check_side(arguments, "source", VIA_ROLE_SOURCE, VIA_ROLE_SST, source_parts);
    check_work_arrays(arguments);
    if (via_has_argument(arguments, VIA_ROLE_ROOT)) {
        int root = via_int_argument(arguments, VIA_ROLE_ROOT);
        if (root < 0 || root >= group.size)
            via_check_report(arguments, NULL, "PE_root = %d: %s has PEs 0 to %d", root, group.name,
                             group.size - 1);
    }
    via_check_collective(arguments, &group);
}

/* --- every call ------------------------------------------------------------------------------- */

static void check_arguments(const struct via_arguments *arguments)
{
    switch (arguments->call->family) {
    case VIA_FAMILY_PUT:
        check_put(arguments);
        break;
    case VIA_FAMILY_GET:
        check_get(arguments);
        break;
    case VIA_FAMILY_ATOMIC:
        check_atomic(arguments);
        break;
    case VIA_FAMILY_SIGNAL:
        check_signal(arguments);
        break;
    case VIA_FAMILY_WAIT:
        check_wait(arguments);
        break;
    case VIA_FAMILY_ORDER:
        via_check_order_done();
        break;
    case VIA_FAMILY_COLLECTIVE:
    case VIA_FAMILY_MEMORY:
        check_collective(arguments);
        break;
    case VIA_FAMILY_LOCK:
        check_lock(arguments);
        break;
    case VIA_FAMILY_OTHER:
        break;
    }
}

void *via_check_enter(uint64_t index, const uint64_t *registers, const uint64_t *stack)
{
    struct via_arguments arguments = {via_call_of_index(index), registers, stack};
    int saved_errno = errno;

    if (via_world.init_count > 0)
        check_arguments(&arguments);
    else if (!arguments.call->anytime)
        via_check_report(&arguments, check.was_initialized ? "9.1.4" : "9.1.1", "called %s",
                         check.was_initialized ? "after the last shmem_finalize"
                                               : "before shmem_init");
    errno = saved_errno;
    return arguments.call->target;
}

/* --- switching on ----------------------------------------------------------------------------- */

static void install_hooks(void)
{
    struct via_error err = {0};

    if (via_check_hook(&err) < 0) {
        print(via_error_describe(&err));
        check.on = false;
    }
}

/* Runs before the program's main, so that calls before shmem_init are checked too. */
static __attribute__((constructor)) void switch_on(void)
{
    const char *text = getenv(VARIABLE);

    if (!text || *text == '\0' || strcmp(text, "0") == 0)
        return;
    check.on = true;
    check.abort = strcmp(text, "abort") == 0;
    if (!check.abort && strcmp(text, "1") != 0 && strcmp(text, "warn") != 0) {
        char line[200];
        snprintf(line, sizeof(line), "%s=\"%.80s\": expected 1, warn, abort or 0; taken as warn",
                 VARIABLE, text);
        print(line);
    }
    via_calls_init();
    via_check_memory_init();
    install_hooks();
}

void via_check_start(void)
{
    if (!check.on)
        return;
    check.was_initialized = true;
    via_check_order_forget();
    /* Hooks the objects that were loaded after the constructor ran. */
    install_hooks();
}

void via_check_stop(void)
{
    if (!check.on)
        return;
    via_check_memory_clear();
    if (check.more_count > 0) {
        char line[100];
        snprintf(line, sizeof(line), "%u more of the same were not printed", check.more_count);
        print(line);
        check.more_count = 0;
    }
}
