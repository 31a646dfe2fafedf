/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Settings that `viaduct tune` has measured, and their file
 * (docs/adr/0051-settings-that-measurably-help.md). Each names the processor and the hardware of
 * the link on which it was measured; daemons ignore it on any other.
 */
#ifndef VIA_HOST_TUNING_H
#define VIA_HOST_TUNING_H

#include <stdio.h>

#include "base/error.h"
#include "base/store.h"
#include "port/driver.h"

#define VIA_TUNING_FILE_BYTES_MAX (256u << 10)
#define VIA_TUNING_LINKS_MAX 64u
#define VIA_TUNING_TEXT_BYTES 320u
#define VIA_TUNING_SLOTS_MAX 1024u

struct via_tuning_link {
    char link[VIA_LINK_DESCRIPTION_BYTES]; /* as viaductd has it */
    char hardware[VIA_TUNING_TEXT_BYTES];
    uint32_t dma_bytes_min; /* 0: not set */
    bool has_stores;
    const struct via_store *stores[VIA_STORE_CLASSES];
};

struct via_tuning {
    char cpu[VIA_TUNING_TEXT_BYTES];
    uint32_t slots; /* of pipes; a power of two, 0: not set */
    unsigned links_count;
    struct via_tuning_link links[VIA_TUNING_LINKS_MAX];
};

/* name is for errors: "name:line: reason". -EINVAL. */
VIA_MUST_CHECK int via_tuning_parse(const char *name, const char *text, size_t bytes,
                                    struct via_tuning *ret_tuning, struct via_error *err);

/* A regular file that belongs to root or this user, and that no other user may write (-EPERM). */
VIA_MUST_CHECK int via_tuning_load(const char *path, struct via_tuning *ret_tuning,
                                   struct via_error *err);

/* Writes the whole file, or leaves the old one. */
VIA_MUST_CHECK int via_tuning_save(const char *path, const struct via_tuning *tuning,
                                   struct via_error *err);
void via_tuning_print(const struct via_tuning *tuning, FILE *to);

/* The texts by which settings name the processor of this machine, and the hardware of a port. */
void via_tuning_cpu(char ret_text[VIA_TUNING_TEXT_BYTES]);
void via_tuning_hardware(const struct via_driver *driver, const struct via_port *port,
                         char ret_text[VIA_TUNING_TEXT_BYTES]);

/* 0; -ENODEV: the settings were measured on another processor. */
VIA_MUST_CHECK int via_tuning_check_cpu(const struct via_tuning *tuning, struct via_error *err);
/* 0; -ENODEV: the settings of this link were measured on other hardware. */
VIA_MUST_CHECK int via_tuning_check_link(const struct via_tuning_link *link,
                                         const struct via_driver *driver,
                                         const struct via_port *port, struct via_error *err);

/* The settings of the link with this description; NULL: none. */
const struct via_tuning_link *via_tuning_find(const struct via_tuning *tuning, const char *link);
bool via_tuning_has_dma(const struct via_tuning *tuning);

#endif
