/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Named models, through which drivers in one process are connected. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "model/pex/chip.h"

static pthread_mutex_t models_lock = PTHREAD_MUTEX_INITIALIZER;
static struct via_pex *models;

static struct via_pex *find(const char *name)
{
    struct via_pex *pex = models;
    while (pex != NULL && strcmp(pex->name, name) != 0) {
        pex = pex->next;
    }
    return pex;
}

static void drop(struct via_pex *pex)
{
    struct via_pex **link = &models;
    while (*link != NULL && *link != pex) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        return;
    }
    struct via_pex *parts[] = {pex, pex->joined, pex->twin};
    bool is_used = false;
    pthread_mutex_lock(pex->lock); /* with the lock, after a function that is being detached */
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(parts); i++) {
        is_used |= parts[i] != NULL && (parts[i]->function[VIA_PEX_VIRTUAL].attached ||
                                        parts[i]->function[VIA_PEX_LINK].attached);
    }
    pthread_mutex_unlock(pex->lock);
    if (!is_used) {
        *link = pex->next;
        via_pex_free(pex);
    }
}

/* The kinds of named models. */
enum shape { ONE_PORT, TWO_CHIPS, TWO_PORTS };

static enum shape shape_of(const struct via_pex *pex)
{
    return pex->joined != NULL ? TWO_CHIPS : pex->twin != NULL ? TWO_PORTS : ONE_PORT;
}

static int make_chips(enum shape shape, const struct via_pex_options *options,
                      struct via_pex **ret_pex, struct via_error *err)
{
    return shape == TWO_PORTS   ? via_pex_new_twins(options, ret_pex, err)
           : shape == TWO_CHIPS ? via_pex_new_pair(options, ret_pex, err)
                                : via_pex_new(options, ret_pex, err);
}

static int find_or_make(const char *name, enum shape shape, const struct via_pex_options *options,
                        struct via_pex **ret_pex, struct via_error *err)
{
    static const char *const shapes[] = {
        [ONE_PORT] = "the model is a chip with one NT port: give neither b2b nor nt",
        [TWO_CHIPS] = "the model is two chips back to back: give both ends b2b",
        [TWO_PORTS] = "the model is a chip with two NT ports: give all ends nt"};
    struct via_pex *pex = find(name);
    if (pex != NULL) {
        *ret_pex = pex;
        return shape_of(pex) == shape ? 0 : via_error_set(err, -EBUSY, "%s", shapes[shape_of(pex)]);
    }
    int rc = make_chips(shape, options, &pex, err);
    if (rc == 0) {
        snprintf(pex->name, sizeof(pex->name), "%s", name);
        pex->next = models;
        models = *ret_pex = pex;
    }
    return rc;
}

/* index: of the chip, or of the NT port. */
static int attach(const char *name, enum shape shape, unsigned index, enum via_pex_side side,
                  const struct via_pex_options *options, struct via_pci **ret_pci,
                  struct via_error *err)
{
    struct via_pex *pex;
    if (name[0] == '\0' || strlen(name) >= VIA_PEX_NAME_BYTES) {
        return via_error_set(err, -EINVAL, "name of a model: not 1 to %u bytes",
                             VIA_PEX_NAME_BYTES - 1);
    }
    pthread_mutex_lock(&models_lock);
    int rc = find_or_make(name, shape, options, &pex, err);
    if (rc == 0) {
        struct via_pex *second = shape == TWO_CHIPS ? pex->joined : pex->twin;
        rc = via_pex_attach(index == 0 ? pex : second, side, ret_pci);
        if (rc != 0) {
            drop(pex);
            static const char *const of[][2] = {[ONE_PORT] = {""},
                                                [TWO_CHIPS] = {" of end 0", " of end 1"},
                                                [TWO_PORTS] = {" of NT0", " of NT1"}};
            via_error_set(err, rc, "the %s side%s has a driver already",
                          side == VIA_PEX_VIRTUAL ? "virtual" : "link", of[shape][index]);
        }
    }
    pthread_mutex_unlock(&models_lock);
    return rc;
}

int via_pex_attach_pair(const char *name, unsigned end, const struct via_pex_options *options,
                        struct via_pci **ret_pci, struct via_error *err)
{
    return attach(name, TWO_CHIPS, end, VIA_PEX_VIRTUAL, options, ret_pci, err);
}

int via_pex_attach_named_twin(const char *name, unsigned nt, enum via_pex_side side,
                              const struct via_pex_options *options, struct via_pci **ret_pci,
                              struct via_error *err)
{
    return attach(name, TWO_PORTS, nt, side, options, ret_pci, err);
}

int via_pex_attach_named(const char *name, enum via_pex_side side,
                         const struct via_pex_options *options, struct via_pci **ret_pci,
                         struct via_error *err)
{
    return attach(name, ONE_PORT, 0, side, options, ret_pci, err);
}

struct via_pex *via_pex_find(const char *name)
{
    pthread_mutex_lock(&models_lock);
    struct via_pex *pex = find(name);
    pthread_mutex_unlock(&models_lock);
    return pex;
}

void via_pex_named_closed(struct via_pex *pex)
{
    pthread_mutex_lock(&models_lock);
    drop(pex);
    pthread_mutex_unlock(&models_lock);
}
