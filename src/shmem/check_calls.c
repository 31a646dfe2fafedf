/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/check_calls.h"

#include <stdlib.h>
#include <string.h>

#include "shmem/api.h"
#include "shmem/world.h"

/* --- the table -------------------------------------------------------------------------------- */

/* Expands its arguments once more, so that the text contains the types and not their macros. */
#define VIA_CALL_LINE(R, NAME, P) VIA_CALL_LINE_(NAME, P)
#define VIA_CALL_LINE_(NAME, P) {.name = #NAME, .parameters = #P, .target = (void *)p##NAME},

/* clang-format off */
static struct via_call calls[] = {
    VIADUCT_SHMEM_SETUP_ENTRIES(VIA_CALL_LINE)
    VIADUCT_SHMEM_MEMORY_ENTRIES(VIA_CALL_LINE)
    VIADUCT_SHMEM_OLD_ENTRIES(VIA_CALL_LINE)
    VIADUCT_SHMEM_TEAM_ENTRIES(VIA_CALL_LINE)
    VIADUCT_SHMEM_ORDER_ENTRIES(VIA_CALL_LINE)
    VIADUCT_SHMEM_SYNC_ENTRIES(VIA_CALL_LINE)
    VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_RMA_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_RMA_SIZES(VIADUCT_SHMEM_SIZE_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_BLOCK_ENTRIES(mem, VIA_CALL_LINE)
    VIADUCT_SHMEM_AMO_REAL(VIADUCT_SHMEM_AMO_EXTENDED_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_AMO_TYPES(VIADUCT_SHMEM_AMO_STANDARD_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_BITWISE_TYPES(VIADUCT_SHMEM_AMO_BITWISE_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_WAIT_TYPES(VIADUCT_SHMEM_WAIT_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_COLLECTIVE_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_REDUCE_BITS_TYPES(VIADUCT_SHMEM_REDUCE_BITS_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_REDUCE_ORDER_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_REDUCE_RING_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_COMPLEX_TYPES(VIADUCT_SHMEM_REDUCE_RING_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_TO_ALL_INTEGERS(VIADUCT_SHMEM_TO_ALL_BITS_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_TO_ALL_INTEGERS(VIADUCT_SHMEM_TO_ALL_ORDER_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_TO_ALL_REALS(VIADUCT_SHMEM_TO_ALL_ORDER_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_TO_ALL_INTEGERS(VIADUCT_SHMEM_TO_ALL_RING_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_TO_ALL_REALS(VIADUCT_SHMEM_TO_ALL_RING_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_COMPLEX_TYPES(VIADUCT_SHMEM_TO_ALL_RING_ENTRIES, VIA_CALL_LINE)
    VIADUCT_SHMEM_ACTIVE_SET_ENTRIES(32, VIA_CALL_LINE)
    VIADUCT_SHMEM_ACTIVE_SET_ENTRIES(64, VIA_CALL_LINE)
    VIA_CALL_LINE(void, shmem_global_exit, (int status))
    VIA_CALL_LINE(void, start_pes, (int npes))
};
/* clang-format on */

_Static_assert(VIA_ARRAY_COUNT(calls) <= VIA_CHECK_STUBS, "a stub for each call");

void *via_call_stub(const struct via_call *call)
{
    return via_check_stubs + (size_t)(call - calls) * VIA_CHECK_STUB_BYTES;
}

struct via_call *via_call_of_index(uint64_t index)
{
    return &calls[index];
}

struct via_call *via_call_of_code(uintptr_t function)
{
    uintptr_t off = function - (uintptr_t)via_check_stubs;

    if (off < VIA_ARRAY_COUNT(calls) * VIA_CHECK_STUB_BYTES)
        return &calls[off / VIA_CHECK_STUB_BYTES];
    for (size_t i = 0; i < VIA_ARRAY_COUNT(calls); i++)
        if ((uintptr_t)calls[i].target == function)
            return &calls[i];
    return NULL;
}

/* --- names ------------------------------------------------------------------------------------ */

static struct via_call *by_name[VIA_ARRAY_COUNT(calls)];

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(struct via_call *const *)a)->name, (*(struct via_call *const *)b)->name);
}

struct via_call *via_call_of_name(const char *name)
{
    struct via_call key = {.name = name}, *wanted = &key;
    struct via_call **found =
        bsearch(&wanted, by_name, VIA_ARRAY_COUNT(by_name), sizeof(by_name[0]), compare_names);

    return found ? *found : NULL;
}

/* --- prototypes ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum via_role role;
} role_names[] = {
    {"ctx", VIA_ROLE_CTX},
    {"team", VIA_ROLE_TEAM},
    {"parent_team", VIA_ROLE_TEAM},
    {"dest", VIA_ROLE_DEST},
    {"source", VIA_ROLE_SOURCE},
    {"pe", VIA_ROLE_PE},
    {"nelems", VIA_ROLE_NELEMS},
    {"nreduce", VIA_ROLE_NELEMS},
    {"dst", VIA_ROLE_DST},
    {"sst", VIA_ROLE_SST},
    {"bsize", VIA_ROLE_BSIZE},
    {"nblocks", VIA_ROLE_NBLOCKS},
    {"sig_addr", VIA_ROLE_SIGNAL_ADDRESS},
    {"ivar", VIA_ROLE_IVAR},
    {"ivars", VIA_ROLE_IVAR},
    {"PE_root", VIA_ROLE_ROOT},
    {"PE_start", VIA_ROLE_START},
    {"logPE_stride", VIA_ROLE_LOG_STRIDE},
    {"PE_size", VIA_ROLE_SIZE},
    {"pWrk", VIA_ROLE_WORK},
    {"pSync", VIA_ROLE_SYNC},
    {"lock", VIA_ROLE_LOCK},
    {"ptr", VIA_ROLE_POINTER},
    {"size", VIA_ROLE_BYTES},
    {"count", VIA_ROLE_COUNT},
    {"alignment", VIA_ROLE_ALIGNMENT},
    {"start", VIA_ROLE_TEAM_START},
    {"stride", VIA_ROLE_TEAM_STRIDE},
    {"xrange", VIA_ROLE_XRANGE},
};

static const struct {
    const char *name;
    uint8_t bytes;
} types[] = {
    {"float", sizeof(float)},
    {"double", sizeof(double)},
    {"long double", sizeof(long double)},
    {"char", 1},
    {"signed char", 1},
    {"unsigned char", 1},
    {"short", sizeof(short)},
    {"unsigned short", sizeof(short)},
    {"int", sizeof(int)},
    {"unsigned int", sizeof(int)},
    {"long", sizeof(long)},
    {"unsigned long", sizeof(long)},
    {"long long", sizeof(long long)},
    {"unsigned long long", sizeof(long long)},
    {"int8_t", 1},
    {"uint8_t", 1},
    {"int16_t", 2},
    {"uint16_t", 2},
    {"int32_t", 4},
    {"uint32_t", 4},
    {"int64_t", 8},
    {"uint64_t", 8},
    {"size_t", sizeof(size_t)},
    {"ptrdiff_t", sizeof(ptrdiff_t)},
    {"viaduct_shmem_complexd", sizeof(viaduct_shmem_complexd)},
    {"viaduct_shmem_complexf", sizeof(viaduct_shmem_complexf)},
};

/* A parameter, "const unsigned int *source", split into its parts. */
struct parameter {
    char type[64]; /* without const and * */
    char name[32];
    bool pointer;
};

static void take_apart(const char *text, size_t length, struct parameter *ret_parameter)
{
    size_t begin = length;

    memset(ret_parameter, 0, sizeof(*ret_parameter));
    while (begin > 0 &&
           (text[begin - 1] == '_' || (text[begin - 1] >= 'a' && text[begin - 1] <= 'z') ||
            (text[begin - 1] >= 'A' && text[begin - 1] <= 'Z') ||
            (text[begin - 1] >= '0' && text[begin - 1] <= '9')))
        begin--;
    memcpy(ret_parameter->name, text + begin,
           via_min(length - begin, sizeof(ret_parameter->name) - 1));
    if (begin > 6 && strncmp(text, "const ", 6) == 0) {
        text += 6;
        begin -= 6;
    }
    while (begin > 0 && (text[begin - 1] == ' ' || text[begin - 1] == '*')) {
        ret_parameter->pointer |= text[begin - 1] == '*';
        begin--;
    }
    memcpy(ret_parameter->type, text, via_min(begin, sizeof(ret_parameter->type) - 1));
}

static uint8_t bytes_of_type(const char *type)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(types); i++)
        if (strcmp(types[i].name, type) == 0)
            return types[i].bytes;
    return 0;
}

struct places {
    uint8_t registers;
    uint8_t words; /* on the stack */
};

/* The place of the next argument of this type. */
static uint8_t next_place(struct places *places, const struct parameter *parameter)
{
    if (!parameter->pointer &&
        (strcmp(parameter->type, "float") == 0 || strcmp(parameter->type, "double") == 0))
        return VIA_PLACE_NONE; /* a vector register */
    if (!parameter->pointer && strcmp(parameter->type, "long double") == 0) {
#ifdef __x86_64__ /* on the stack; on aarch64 in a vector register */
        places->words = (uint8_t)((places->words + 1) / 2 * 2 + 2);
#endif
        return VIA_PLACE_NONE;
    }
    return places->registers < VIA_PLACE_REGISTERS
               ? places->registers++
               : (uint8_t)(VIA_PLACE_REGISTERS + places->words++);
}

static void note_parameter(struct via_call *call, const struct parameter *parameter, uint8_t place)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(role_names); i++) {
        if (strcmp(role_names[i].name, parameter->name) != 0)
            continue;
        enum via_role role = role_names[i].role;
        call->place[role] = place;
        if (role == VIA_ROLE_DEST || role == VIA_ROLE_SOURCE || role == VIA_ROLE_IVAR)
            call->element_bytes = bytes_of_type(parameter->type);
        if (role == VIA_ROLE_NELEMS)
            call->narrow = strcmp(parameter->type, "int") == 0;
    }
}

static void read_parameters(struct via_call *call)
{
    struct places places = {0};
    const char *at = call->parameters + 1; /* "(" */

    memset(call->place, VIA_PLACE_NONE, sizeof(call->place));
    while (*at != '\0') {
        struct parameter parameter;
        size_t length = strcspn(at, ",)");
        take_apart(at, length, &parameter);
        if (parameter.type[0] != '\0')
            note_parameter(call, &parameter, next_place(&places, &parameter));
        at += length;
        at += strspn(at, ",) ");
    }
}

/* --- what the name says ----------------------------------------------------------------------- */

static bool has_address(const struct via_call *call, const char *part)
{
    return strstr(call->name, part) != NULL;
}

static bool has_suffix(const struct via_call *call, const char *part)
{
    size_t length = strlen(call->name), part_length = strlen(part);
    return length >= part_length && strcmp(call->name + length - part_length, part) == 0;
}

/* shmem_put32, shmem_iget128, shmem_putmem, shmem_collect64, shmem_broadcastmem */
static uint8_t bytes_of_name(const char *name)
{
    static const struct {
        const char *part;
        uint8_t bytes;
    } sizes[] = {{"mem", 1}, {"128", 16}, {"16", 2}, {"32", 4}, {"64", 8}, {"8", 1}};

    for (size_t i = 0; i < VIA_ARRAY_COUNT(sizes); i++)
        if (strstr(name + strlen("shmem_"), sizes[i].part))
            return sizes[i].bytes;
    return 0;
}

static enum via_family family_of(const struct via_call *call)
{
    bool to_a_pe = call->place[VIA_ROLE_PE] != VIA_PLACE_NONE;

    if (has_address(call, "fence") || has_address(call, "quiet"))
        return VIA_FAMILY_ORDER;
    if (call->place[VIA_ROLE_LOCK] != VIA_PLACE_NONE)
        return VIA_FAMILY_LOCK;
    if (call->place[VIA_ROLE_IVAR] != VIA_PLACE_NONE || has_address(call, "signal_wait_until") ||
        has_address(call, "signal_fetch"))
        return VIA_FAMILY_WAIT;
    if (call->place[VIA_ROLE_SIGNAL_ADDRESS] != VIA_PLACE_NONE)
        return VIA_FAMILY_SIGNAL;
    if (call->place[VIA_ROLE_POINTER] != VIA_PLACE_NONE ||
        (call->place[VIA_ROLE_BYTES] != VIA_PLACE_NONE && !has_address(call, "team")))
        return VIA_FAMILY_MEMORY;
    if (has_suffix(call, "_ptr") || has_address(call, "accessible"))
        return VIA_FAMILY_OTHER;
    if (!to_a_pe)
        return call->place[VIA_ROLE_DEST] != VIA_PLACE_NONE || has_address(call, "barrier") ||
                       has_address(call, "sync") || has_address(call, "team_split") ||
                       has_address(call, "team_destroy") || has_address(call, "finalize")
                   ? VIA_FAMILY_COLLECTIVE
                   : VIA_FAMILY_OTHER;
    if (has_address(call, "put") || has_suffix(call, "_p"))
        return VIA_FAMILY_PUT;
    /* g and atomic fetches have only a source. */
    if (has_address(call, "get") || call->place[VIA_ROLE_DEST] == VIA_PLACE_NONE)
        return VIA_FAMILY_GET;
    return VIA_FAMILY_ATOMIC;
}

/* Sections of OpenSHMEM 1.6, by the first part that occurs in the name. */
/* clang-format off */
static const struct {
    const char *part, *section;
} sections[] = {
    {"init_thread", "9.2.1"}, {"query_thread", "9.2.2"}, {"query_initialized", "9.1.5"},
    {"init", "9.1.1"}, {"start_pes", "9.1.13"}, {"finalize", "9.1.4"}, {"global_exit", "9.1.6"},
    {"pe_accessible", "9.1.7"}, {"addr_accessible", "9.1.8"}, {"shmem_ptr", "9.1.9"},
    {"team_ptr", "9.1.10"}, {"info_get_version", "9.1.11"}, {"info_get_name", "9.1.12"},
    {"pcontrol", "10"}, {"malloc_with_hints", "9.3.5"}, {"malloc", "9.3.1"}, {"free", "9.3.2"},
    {"realloc", "9.3.3"}, {"align", "9.3.4"}, {"calloc", "9.3.6"}, {"team_create_ctx", "9.5.2"},
    {"ctx_get_team", "9.5.4"}, {"ctx_create", "9.5.1"}, {"ctx_destroy", "9.5.3"},
    {"session", "9.9"}, {"barrier_all", "9.10.1"}, {"barrier", "9.10.2"}, {"sync_all", "9.10.4"},
    {"sync", "9.10.3"}, {"alltoalls", "9.10.6"}, {"alltoall", "9.10.5"}, {"broadcast", "9.10.7"},
    {"collect", "9.10.8"}, {"reduce", "9.10.9"}, {"to_all", "9.10.9"}, {"scan", "9.10.10"},
    {"team", "9.4"}, {"my_pe", "9.1.2"}, {"n_pes", "9.1.3"}, {"num_pes", "9.1.3"}, {"signal_wait_until", "9.11.15"},
    {"signal_fetch", "9.8.4"}, {"signal_add", "9.8.3"}, {"signal_set", "9.8.5"},
    {"_signal_nbi", "9.8.2"}, {"_signal", "9.8.1"}, {"fence", "9.12.1"}, {"pe_quiet", "9.12.3"},
    {"quiet", "9.12.2"},
};
/* clang-format on */

static const char *section_of(const struct via_call *call)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(sections); i++)
        if (has_address(call, sections[i].part))
            return sections[i].section;
    switch (call->family) {
    case VIA_FAMILY_WAIT:
        return "9.11";
    case VIA_FAMILY_LOCK:
        return "9.13.1";
    case VIA_FAMILY_ATOMIC:
        return has_address(call, "_nbi") ? "9.7.2" : "9.7.1";
    case VIA_FAMILY_PUT:
    case VIA_FAMILY_GET:
        if (has_address(call, "fetch"))
            return has_address(call, "_nbi") ? "9.7.2" : "9.7.1";
        return has_address(call, "_nbi") ? "9.6.2" : "9.6.1";
    default:
        return has_address(call, "ctx") ? "9.5" : "9.1";
    }
}

static bool is_anytime(const struct via_call *call)
{
    static const char *const names[] = {
        "shmem_init",          "shmem_init_thread",      "start_pes",     "shmem_query_initialized",
        "shmem_info_get_name", "shmem_info_get_version", "shmem_pcontrol"};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(names); i++)
        if (strcmp(names[i], call->name) == 0)
            return true;
    return false;
}

void via_calls_init(void)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(calls); i++) {
        struct via_call *call = &calls[i];
        by_name[i] = call;
        read_parameters(call);
        if (call->element_bytes == 0)
            call->element_bytes = bytes_of_name(call->name);
        call->family = family_of(call);
        call->section = section_of(call);
        call->anytime = is_anytime(call);
    }
    qsort(by_name, VIA_ARRAY_COUNT(by_name), sizeof(by_name[0]), compare_names);
}
