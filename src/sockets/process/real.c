/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/process/real.h"

#include <dlfcn.h>
#include <string.h>

struct via_real via_real;

static void resolve(const char *name, void *ret_function)
{
    void *function = dlsym(RTLD_NEXT, name);
    memcpy(ret_function, &function, sizeof(function));
}

void via_real_init(void)
{
    if (via_real.connect != NULL) {
        return;
    }
#define RESOLVE(type, name, arguments) resolve(#name, &via_real.name);
    VIA_REAL_FUNCTIONS(RESOLVE)
#undef RESOLVE
}
