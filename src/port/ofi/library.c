/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ofi/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define NAME "libfabric.so.1"

#ifdef __SANITIZE_ADDRESS__
/* When an event queue is closed, libfabric 1.17 leaks connections that it has accepted but whose
 * request it has not read. */
const char *__lsan_default_suppressions(void); /* NOLINT: the sanitizer's name */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libfabric.so\n";
}

/* libfabric 1.17 reads /proc/kallsyms twice while it is loaded, for ib_register_peer_memory_client
 * and ib_umem_dmabuf_get: does the kernel let adapters into the memory of GPUs? No link uses that,
 * and FI_PROVIDER does not prevent it. It is most of the CPU time of a daemon's start, and the
 * tests start hundreds of daemons. In their builds libfabric finds no such file, as in a container
 * that hides it. */
__attribute__((visibility("default"))) FILE *fopen(const char *path, const char *mode)
{
    FILE *(*next)(const char *, const char *);
    if (strcmp(path, "/proc/kallsyms") == 0) {
        errno = ENOENT;
        return NULL;
    }
    void *symbol = dlsym(RTLD_NEXT, "fopen");
    memcpy(&next, &symbol, sizeof(next));
    return next(path, mode);
}
#endif

static struct via_ofi_library library;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

/* Looks up the symbol version that matches the structs of libfabric 1.17, with which this program
 * is built. */
static int find(void *handle, const char *name, const char *version, void *ret_function,
                struct via_error *err)
{
    void *symbol = dlvsym(handle, name, version);
    if (symbol == NULL) {
        return via_error_set(err, -ELIBACC, "%s: has no %s of %s", NAME, name, version);
    }
    memcpy(ret_function, &symbol, sizeof(symbol));
    return 0;
}

static int load(struct via_error *err)
{
    uint32_t (*version)(void) = NULL;
    void *handle = dlopen(NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *why = dlerror();
        return via_error_set(err, -ELIBACC, "libfabric can not be loaded: %s",
                             why != NULL ? why : NAME);
    }
    int rc = find(handle, "fi_version", "FABRIC_1.0", &version, err);
    if (rc == 0 && FI_VERSION_LT(version(), VIA_OFI_VERSION)) {
        rc = via_error_set(err, -ELIBACC, "%s is version %u.%u, 1.17 or later is needed", NAME,
                           FI_MAJOR(version()), FI_MINOR(version()));
    }
    if (rc == 0) {
        library.has_completion_order = FI_MAJOR(version()) < 2;
        rc = find(handle, "fi_getinfo", "FABRIC_1.3", &library.getinfo, err);
    }
    if (rc == 0) {
        rc = find(handle, "fi_freeinfo", "FABRIC_1.3", &library.freeinfo, err);
    }
    if (rc == 0) {
        rc = find(handle, "fi_dupinfo", "FABRIC_1.3", &library.dupinfo, err);
    }
    if (rc == 0) {
        rc = find(handle, "fi_fabric", "FABRIC_1.1", &library.fabric, err);
    }
    if (rc == 0) {
        rc = find(handle, "fi_strerror", "FABRIC_1.0", &library.strerror, err);
    }
    /* Never unloaded, because its threads and the handlers of other objects may exist by now. */
    return rc;
}

const struct via_ofi_library *via_ofi_library_load(struct via_error *err)
{
    pthread_mutex_lock(&lock);
    if (!loaded) {
        loaded = load(err) == 0;
    }
    bool there = loaded;
    pthread_mutex_unlock(&lock);
    return there ? &library : NULL;
}
