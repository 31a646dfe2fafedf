/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * PMIx: the launchers of Open MPI, PRRTE and Slurm. Its library is loaded if the environment has
 * PMIX_NAMESPACE and PMIX_RANK, so other programs do not need it. Calls and types: PMIx standard
 * 4.1, chapters 4 to 7.
 */
#include "shmem/pmi.h"

#ifdef VIA_HAVE_PMIX

#include <dlfcn.h>
#include <errno.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libpmix.so.2"

/* The functions of PMIx that are used here, under the same names. */
static struct {
    __typeof__(PMIx_Init) *init;
    __typeof__(PMIx_Finalize) *finalize;
    __typeof__(PMIx_Abort) *abort;
    __typeof__(PMIx_Put) *put;
    __typeof__(PMIx_Commit) *commit;
    __typeof__(PMIx_Fence) *fence;
    __typeof__(PMIx_Get) *get;
    __typeof__(PMIx_Error_string) *error_string;
} lib;

static pmix_proc_t me;

static int load(struct via_error *err)
{
    static const struct {
        const char *name;
        void *slot;
    } wanted[] = {
        {"PMIx_Init", &lib.init},     {"PMIx_Finalize", &lib.finalize},
        {"PMIx_Abort", &lib.abort},   {"PMIx_Put", &lib.put},
        {"PMIx_Commit", &lib.commit}, {"PMIx_Fence", &lib.fence},
        {"PMIx_Get", &lib.get},       {"PMIx_Error_string", &lib.error_string},
    };
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!handle)
        return via_error_set(err, -ENOENT,
                             "the launcher speaks PMIx, and its library can not be loaded: %s",
                             dlerror());
    for (size_t i = 0; i < VIA_ARRAY_COUNT(wanted); i++) {
        void *function = dlsym(handle, wanted[i].name);
        if (!function)
            return via_error_set(err, -ENOENT, "%s: %s", LIBRARY, dlerror());
        /* POSIX's way to get a function pointer from dlsym. */
        memcpy(wanted[i].slot, &function, sizeof(function));
    }
    return 0;
}

static int fail(pmix_status_t status, const char *attempt, struct via_error *err)
{
    return via_error_set(err, -EIO, "PMIx: %s: %s", attempt, lib.error_string(status));
}

static void fill_key(pmix_key_t key, const char *text)
{
    memset(key, 0, sizeof(pmix_key_t));
    snprintf(key, sizeof(pmix_key_t), "%s", text);
}

static int query_size(uint32_t *ret_size, struct via_error *err)
{
    pmix_proc_t all = me;
    pmix_value_t *value;

    all.rank = PMIX_RANK_WILDCARD;
    pmix_status_t status = lib.get(&all, PMIX_JOB_SIZE, NULL, 0, &value);
    if (status != PMIX_SUCCESS)
        return fail(status, "get the number of processes", err);
    int result = 0;
    if (value->type == PMIX_UINT32 && value->data.uint32 > 0)
        *ret_size = value->data.uint32;
    else
        result = via_error_set(err, -EPROTO, "PMIx: a job size of type %u", value->type);
    free(value);
    return result;
}

static int open_pmix(struct via_pmi *pmi, struct via_error *err)
{
    int result = load(err);

    if (result < 0)
        return result;
    pmix_status_t status = lib.init(&me, NULL, 0);
    if (status != PMIX_SUCCESS)
        return fail(status, "init", err);
    pmi->rank = me.rank;
    return query_size(&pmi->size, err);
}

static int put(struct via_pmi *pmi, const char *key, const char *text, struct via_error *err)
{
    char name[64], copy[VIA_PMI_VALUE_BYTES];
    pmix_value_t value = {.type = PMIX_STRING};

    (void)pmi;
    if (strlen(text) >= sizeof(copy))
        return via_error_set(err, -EMSGSIZE, "PMIx: %zu bytes for %s", strlen(text), key);
    snprintf(name, sizeof(name), "viaduct-%s", key);
    value.data.string = strcpy(copy, text);
    pmix_status_t status = lib.put(PMIX_GLOBAL, name, &value);
    return status == PMIX_SUCCESS ? 0 : fail(status, "put", err);
}

static int fence(struct via_pmi *pmi, struct via_error *err)
{
    pmix_info_t collect = {.value = {.type = PMIX_BOOL}};

    (void)pmi;
    fill_key(collect.key, PMIX_COLLECT_DATA);
    collect.value.data.flag = true;
    pmix_status_t status = lib.commit();
    if (status == PMIX_SUCCESS)
        status = lib.fence(NULL, 0, &collect, 1);
    return status == PMIX_SUCCESS ? 0 : fail(status, "fence", err);
}

static int get(struct via_pmi *pmi, uint32_t rank, const char *key, char *ret_value,
               struct via_error *err)
{
    pmix_proc_t proc = me;
    pmix_value_t *value;
    char name[64];

    (void)pmi;
    proc.rank = rank;
    snprintf(name, sizeof(name), "viaduct-%s", key);
    pmix_status_t status = lib.get(&proc, name, NULL, 0, &value);
    if (status != PMIX_SUCCESS)
        return fail(status, "get", err);
    int result = 0;
    if (value->type == PMIX_STRING && strlen(value->data.string) < VIA_PMI_VALUE_BYTES)
        strcpy(ret_value, value->data.string);
    else
        result = via_error_set(err, -EPROTO, "PMIx: %s of PE %u is not a valid value", key, rank);
    if (value->type == PMIX_STRING)
        free(value->data.string);
    free(value);
    return result;
}

static void finalize(struct via_pmi *pmi)
{
    (void)pmi;
    lib.finalize(NULL, 0);
}

static void abort_job(struct via_pmi *pmi, int code, const char *why)
{
    (void)pmi;
    lib.abort(code, why, NULL, 0);
}

const struct via_pmi_ops via_pmix_ops = {
    .name = "PMIx",
    .open = open_pmix,
    .put = put,
    .fence = fence,
    .get = get,
    .finalize = finalize,
    .abort = abort_job,
};

#else /* built without its headers */

#include <errno.h>

static int open_pmix(struct via_pmi *pmi, struct via_error *err)
{
    (void)pmi;
    return via_error_set(err, -ENOTSUP,
                         "the launcher speaks PMIx, and this library was built without it");
}

const struct via_pmi_ops via_pmix_ops = {.name = "PMIx", .open = open_pmix};

#endif
