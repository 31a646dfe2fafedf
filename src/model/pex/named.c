/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Models that drivers of one process meet at. */
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
    pthread_mutex_lock(pex->lock); /* a detaching function has left by then */
    bool is_used = pex->function[0].attached || pex->function[1].attached ||
                   (pex->joined != NULL && pex->joined->function[VIA_PEX_VIRTUAL].attached);
    pthread_mutex_unlock(pex->lock);
    if (!is_used) {
        *link = pex->next;
        via_pex_free(pex);
    }
}

static int make(const char *name, const struct via_pex_options *options, struct via_error *err)
{
    struct via_pex *pex;
    int rc = via_pex_new(options, &pex, err);
    if (rc == 0) {
        snprintf(pex->name, sizeof(pex->name), "%s", name);
        pex->next = models;
        models = pex;
    }
    return rc;
}

int via_pex_attach_pair(const char *name, unsigned end, const struct via_pex_options *options,
                        struct via_pci **ret_pci, struct via_error *err)
{
    struct via_pex *second = NULL;
    int rc = 0;
    if (name[0] == '\0' || strlen(name) >= VIA_PEX_NAME_BYTES) {
        return via_error_set(err, -EINVAL, "name of a model: not 1 to %u bytes",
                             VIA_PEX_NAME_BYTES - 1);
    }
    pthread_mutex_lock(&models_lock);
    struct via_pex *pex = find(name);
    if (pex == NULL) {
        rc = via_pex_new(options, &second, err);
        rc = rc == 0 ? make(name, options, err) : rc;
        pex = rc == 0 ? find(name) : NULL;
        if (pex != NULL) {
            via_pex_join(pex, second);
        } else if (second != NULL) {
            via_pex_free(second);
        }
    } else if (pex->joined == NULL) {
        rc = via_error_set(err, -EBUSY, "the model is one chip, not two back to back");
    }
    if (rc == 0) {
        rc = via_pex_attach(end == 0 ? pex : pex->joined, VIA_PEX_VIRTUAL, ret_pci);
        if (rc != 0) {
            drop(pex);
            via_error_set(err, rc, "end %u has a driver already", end);
        }
    }
    pthread_mutex_unlock(&models_lock);
    return rc;
}

int via_pex_attach_named(const char *name, enum via_pex_side side,
                         const struct via_pex_options *options, struct via_pci **ret_pci,
                         struct via_error *err)
{
    int rc = 0;
    if (name[0] == '\0' || strlen(name) >= VIA_PEX_NAME_BYTES) {
        return via_error_set(err, -EINVAL, "name of a model: not 1 to %u bytes",
                             VIA_PEX_NAME_BYTES - 1);
    }
    pthread_mutex_lock(&models_lock);
    if (find(name) == NULL) {
        rc = make(name, options, err);
    }
    if (rc == 0) {
        struct via_pex *pex = find(name);
        rc = pex->joined == NULL ? via_pex_attach(pex, side, ret_pci) : -EBUSY;
        if (pex->joined != NULL) {
            via_error_set(err, rc, "the model is two chips back to back: give both ends b2b");
        } else if (rc != 0) {
            drop(pex);
            via_error_set(err, rc, "the %s side has a driver already",
                          side == VIA_PEX_VIRTUAL ? "virtual" : "link");
        }
    }
    pthread_mutex_unlock(&models_lock);
    return rc;
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
