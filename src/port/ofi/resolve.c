/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ofi/resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 256u

struct via_ofi_resolve {
    _Atomic int owners; /* references of the thread and the caller; the last one frees */
    _Atomic bool done;  /* release after code and address, acquire in _poll() */
    int code;           /* of getaddrinfo() */
    char name[NAME_BYTES];
    char address[VIA_OFI_ADDRESS_BYTES];
};

bool via_ofi_resolve_is_address(const char *text)
{
    struct in6_addr any;
    return inet_pton(AF_INET, text, &any) == 1 || inet_pton(AF_INET6, text, &any) == 1;
}

static void leave(struct via_ofi_resolve *resolve)
{
    if (atomic_fetch_sub_explicit(&resolve->owners, 1, memory_order_acq_rel) == 1) {
        free(resolve);
    }
}

static void *resolve_name(void *argument)
{
    struct via_ofi_resolve *resolve = argument;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    resolve->code = getaddrinfo(resolve->name, NULL, &hints, &list);
    if (resolve->code == 0) {
        resolve->code = getnameinfo(list->ai_addr, list->ai_addrlen, resolve->address,
                                    sizeof(resolve->address), NULL, 0, NI_NUMERICHOST);
        freeaddrinfo(list);
    }
    atomic_store_explicit(&resolve->done, true, memory_order_release);
    leave(resolve);
    return NULL;
}

int via_ofi_resolve_start(const char *name, struct via_ofi_resolve **ret_resolve)
{
    struct via_ofi_resolve *resolve = calloc(1, sizeof(*resolve));
    pthread_attr_t attr;
    pthread_t thread;
    if (resolve == NULL) {
        return -ENOMEM;
    }
    resolve->owners = 2;
    snprintf(resolve->name, sizeof(resolve->name), "%s", name);
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&thread, &attr, resolve_name, resolve);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (code != 0) {
        free(resolve);
        return -code;
    }
    *ret_resolve = resolve;
    return 0;
}

int via_ofi_resolve_poll(struct via_ofi_resolve *resolve, char ret_address[VIA_OFI_ADDRESS_BYTES],
                         const char **ret_why)
{
    if (!atomic_load_explicit(&resolve->done, memory_order_acquire)) {
        return -EAGAIN;
    }
    if (resolve->code != 0) {
        *ret_why = gai_strerror(resolve->code);
        return -ENOENT;
    }
    memcpy(ret_address, resolve->address, VIA_OFI_ADDRESS_BYTES);
    return 0;
}

void via_ofi_resolve_drop(struct via_ofi_resolve *resolve)
{
    if (resolve != NULL) {
        leave(resolve);
    }
}
