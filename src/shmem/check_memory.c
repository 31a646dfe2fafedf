/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shmem/api.h"
#include "shmem/check.h"
#include "shmem/symbols.h"
#include "shmem/world.h"

/* --- blocks of the symmetric heap --------------------------------------------------------------
 * The sizes are those that the program requested: the allocator rounds sizes up, so it does not
 * know where an object ends. Sorted by address.
 */
struct block {
    uintptr_t address;
    size_t bytes;
    const char *call;
};

#define FREED_MAX 64u

static struct {
    pthread_mutex_t lock;
    struct block *blocks;
    size_t count, room;
    struct block freed[FREED_MAX]; /* the blocks of the last calls of free */
    size_t freed_count;
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The number of blocks that begin at or before the address. */
static size_t rank_of(uintptr_t address)
{
    size_t low = 0, high = heap.count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (heap.blocks[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void forget_freed(uintptr_t address, size_t bytes)
{
    for (size_t i = 0; i < FREED_MAX; i++)
        if (heap.freed[i].address < address + bytes &&
            address < heap.freed[i].address + heap.freed[i].bytes)
            heap.freed[i].bytes = 0;
}

static void add_block(const char *call, void *pointer, size_t bytes)
{
    if (!pointer)
        return;
    pthread_mutex_lock(&heap.lock);
    if (heap.count == heap.room) {
        size_t room = heap.room == 0 ? 64 : heap.room * 2;
        struct block *blocks = realloc(heap.blocks, room * sizeof(*blocks));
        if (blocks) {
            heap.blocks = blocks;
            heap.room = room;
        }
    }
    if (heap.count < heap.room) {
        size_t at = rank_of((uintptr_t)pointer);
        memmove(&heap.blocks[at + 1], &heap.blocks[at], (heap.count - at) * sizeof(heap.blocks[0]));
        heap.blocks[at] = (struct block){(uintptr_t)pointer, bytes, call};
        heap.count++;
        forget_freed((uintptr_t)pointer, bytes);
    }
    pthread_mutex_unlock(&heap.lock);
}

static void remove_block(void *pointer)
{
    pthread_mutex_lock(&heap.lock);
    size_t rank = rank_of((uintptr_t)pointer);
    if (rank > 0 && heap.blocks[rank - 1].address == (uintptr_t)pointer) {
        heap.freed[heap.freed_count++ % FREED_MAX] = heap.blocks[rank - 1];
        heap.count--;
        memmove(&heap.blocks[rank - 1], &heap.blocks[rank],
                (heap.count - (rank - 1)) * sizeof(heap.blocks[0]));
    }
    pthread_mutex_unlock(&heap.lock);
}

static bool has_address(const struct block *block, uintptr_t address)
{
    return address - block->address < block->bytes;
}

static bool find_block(uintptr_t address, struct block *ret_block, bool *ret_freed)
{
    bool found = false;

    pthread_mutex_lock(&heap.lock);
    size_t rank = rank_of(address);
    *ret_freed = false;
    if (rank > 0 && has_address(&heap.blocks[rank - 1], address)) {
        *ret_block = heap.blocks[rank - 1];
        found = true;
    }
    for (size_t i = 0; i < FREED_MAX && !found; i++) {
        if (has_address(&heap.freed[i], address)) {
            *ret_block = heap.freed[i];
            *ret_freed = found = true;
        }
    }
    pthread_mutex_unlock(&heap.lock);
    return found;
}

void via_check_memory_clear(void)
{
    pthread_mutex_lock(&heap.lock);
    heap.count = 0;
    memset(heap.freed, 0, sizeof(heap.freed));
    pthread_mutex_unlock(&heap.lock);
}

/* --- the allocation calls, each recording its effect ----------------------------------------- */

static void *note_malloc(size_t size)
{
    void *pointer = pshmem_malloc(size);
    add_block("shmem_malloc", pointer, size);
    return pointer;
}

static void *note_malloc_with_hints(size_t size, long hints)
{
    void *pointer = pshmem_malloc_with_hints(size, hints);
    add_block("shmem_malloc_with_hints", pointer, size);
    return pointer;
}

static void *note_calloc(size_t count, size_t size)
{
    void *pointer = pshmem_calloc(count, size);
    add_block("shmem_calloc", pointer, count * size);
    return pointer;
}

static void *note_align(size_t alignment, size_t size)
{
    void *pointer = pshmem_align(alignment, size);
    add_block("shmem_align", pointer, size);
    return pointer;
}

static void *note_realloc(void *ptr, size_t size)
{
    void *pointer = pshmem_realloc(ptr, size);
    if (pointer || size == 0) {
        remove_block(ptr);
        add_block("shmem_realloc", pointer, size);
    }
    return pointer;
}

static void note_free(void *ptr)
{
    pshmem_free(ptr);
    remove_block(ptr);
}

void via_check_memory_init(void)
{
    via_call_of_name("shmem_malloc")->target = (void *)note_malloc;
    via_call_of_name("shmem_malloc_with_hints")->target = (void *)note_malloc_with_hints;
    via_call_of_name("shmem_calloc")->target = (void *)note_calloc;
    via_call_of_name("shmem_align")->target = (void *)note_align;
    via_call_of_name("shmem_realloc")->target = (void *)note_realloc;
    via_call_of_name("shmem_free")->target = (void *)note_free;
    via_call_of_name("shmalloc")->target = (void *)note_malloc;
    via_call_of_name("shmemalign")->target = (void *)note_align;
    via_call_of_name("shrealloc")->target = (void *)note_realloc;
    via_call_of_name("shfree")->target = (void *)note_free;
}

/* --- what an address refers to --------------------------------------------------------------- */

bool via_check_locate(uintptr_t address, enum via_region *ret_region, uint64_t *ret_off)
{
    for (int region = 0; region < VIA_REGIONS; region++) {
        uintptr_t off = address - (uintptr_t)via_world.region[region].base;
        if (off < via_world.region[region].bytes) {
            *ret_region = (enum via_region)region;
            *ret_off = off;
            return true;
        }
    }
    return false;
}

/* The name of the memory in /proc/self/maps: "[stack]", a file, or none. */
static void describe_mapping(uintptr_t address, char text[VIA_CHECK_TEXT_BYTES])
{
    char line[512], name[256];
    uintptr_t begin, end;
    FILE *maps = fopen("/proc/self/maps", "re");

    snprintf(text, VIA_CHECK_TEXT_BYTES, "memory that is not mapped");
    while (maps && fgets(line, sizeof(line), maps)) {
        name[0] = '\0';
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %255[^\n]", &begin, &end,
                   name) < 2 ||
            address < begin || address >= end)
            continue;
        const char *slash = strrchr(name, '/');
        if (strcmp(name, "[stack]") == 0)
            snprintf(text, VIA_CHECK_TEXT_BYTES, "a local variable on the stack");
        else if (slash)
            snprintf(text, VIA_CHECK_TEXT_BYTES, "in %.80s", slash + 1);
        else
            snprintf(text, VIA_CHECK_TEXT_BYTES, "private memory (of malloc, a thread's stack)");
        break;
    }
    if (maps)
        fclose(maps);
}

const char *via_check_describe(uintptr_t address, char text[VIA_CHECK_TEXT_BYTES])
{
    struct via_symbol symbol;
    enum via_region region;
    struct block block;
    uint64_t off;
    bool freed;

    if (via_symbol_find_data(address, &symbol)) {
        snprintf(text, VIA_CHECK_TEXT_BYTES,
                 address > symbol.address ? "\"%.64s\"+%zu" : "\"%.64s\"", symbol.name,
                 (size_t)(address - symbol.address));
    } else if (find_block(address, &block, &freed)) {
        snprintf(text, VIA_CHECK_TEXT_BYTES, "byte %zu of %zu of a %s%s",
                 (size_t)(address - block.address), block.bytes, block.call,
                 freed ? " that has been freed" : "");
    } else if (via_check_locate(address, &region, &off)) {
        snprintf(text, VIA_CHECK_TEXT_BYTES,
                 region == VIA_REGION_HEAP ? "in the symmetric heap, but in no object of it"
                                           : "in the program's data");
    } else {
        describe_mapping(address, text);
    }
    return text;
}

/* --- checks ---------------------------------------------------------------------------------- */

/* The object that contains the address, if it is known. */
static bool find_object(uintptr_t address, uintptr_t *ret_begin, size_t *ret_bytes, bool *ret_freed)
{
    struct via_symbol symbol;
    struct block block;

    *ret_freed = false;
    if (via_symbol_find_data(address, &symbol)) {
        *ret_begin = symbol.address;
        *ret_bytes = symbol.bytes;
        return true;
    }
    if (!find_block(address, &block, ret_freed))
        return false;
    *ret_begin = block.address;
    *ret_bytes = block.bytes;
    return true;
}

static bool check_object(const struct via_arguments *arguments, const struct via_check_span *span,
                         const char *whose)
{
    char text[VIA_CHECK_TEXT_BYTES];
    uintptr_t begin;
    size_t bytes;
    bool freed;

    if (!find_object(span->address, &begin, &bytes, &freed))
        return true;
    uint64_t room = bytes - (span->address - begin);
    if (!freed && span->bytes <= room)
        return true;
    via_check_describe(span->address, text);
    if (freed)
        via_check_report(arguments, "9.3.2", "%s = %p, %s", span->name, (void *)span->address,
                         text);
    else
        via_check_report(
            arguments, NULL,
            "%s = %p, %s: %" PRIu64 " bytes%s, %" PRIu64 " past the end of the object's %zu",
            span->name, (void *)span->address, text, span->bytes, whose, span->bytes - room, bytes);
    return false;
}

void via_check_bounds(const struct via_arguments *arguments, const struct via_check_span *span)
{
    check_object(arguments, span, "");
}

void via_check_block(const struct via_arguments *arguments, const struct via_check_span *span)
{
    char text[VIA_CHECK_TEXT_BYTES];
    struct block block;
    bool freed;

    if (find_block(span->address, &block, &freed) && !freed && block.address == span->address)
        return;
    via_check_report(arguments, NULL, "%s = %p was not returned by an allocation: it is %s",
                     span->name, (void *)span->address, via_check_describe(span->address, text));
}

bool via_check_symmetric(const struct via_arguments *arguments, const struct via_check_span *span,
                         int pe)
{
    char text[VIA_CHECK_TEXT_BYTES], whose[32] = "";
    enum via_region region;
    uint64_t off;

    if (pe >= 0)
        snprintf(whose, sizeof(whose), " of PE %d", pe);
    if (!via_check_locate(span->address, &region, &off)) {
        via_check_report(arguments, "3",
                         "%s = %p is not the address of a symmetric object: it is %s", span->name,
                         (void *)span->address, via_check_describe(span->address, text));
        return false;
    }
    if (region == VIA_REGION_DATA && pe >= 0 && !via_world.peers[pe].same_program) {
        via_check_report(
            arguments, "3", "%s = %p, %s: PE %d runs another program, and has no such variable",
            span->name, (void *)span->address, via_check_describe(span->address, text), pe);
        return false;
    }
    struct block block;
    bool freed;
    if (region == VIA_REGION_HEAP && !find_block(span->address, &block, &freed)) {
        via_check_report(arguments, "9.3", "%s = %p is %s", span->name, (void *)span->address,
                         via_check_describe(span->address, text));
        return false;
    }
    return check_object(arguments, span, whose);
}
