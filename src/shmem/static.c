/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Stubs for the static library, which neither loads nor inspects other libraries. */
#include <errno.h>

#include "shmem/check_calls.h"
#include "shmem/pmi.h"

static int open_pmix(struct via_pmi *pmi, struct via_error *err)
{
    (void)pmi;
    return via_error_set(
        err, -ENOTSUP,
        "the launcher speaks PMIx, which a statically linked program can not: link "
        "it with the shared library, or use oshrun");
}

const struct via_pmi_ops via_pmix_ops = {.name = "PMIx", .open = open_pmix};

int via_check_hook(struct via_error *err)
{
    return via_error_set(err, -ENOTSUP,
                         "VIADUCT_SHMEM_CHECK can not check a statically linked program: "
                         "link it with the shared library");
}

/* A static program is one object, in which nothing distinguishes the library's code from the
 * program's. */
void *via_call_object(void)
{
    return NULL;
}
