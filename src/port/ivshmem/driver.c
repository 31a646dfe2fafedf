/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The driver of the ivshmem port:
 * ivshmem:TARGET,side=0|1[,cell=K][,window=BYTES][,access=vfio|sysfs] */
#include "port/ivshmem/driver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "port/ivshmem/ivshmem.h"
#include "vfio/kernel.h"

struct config {
    char target[128];
    unsigned side;
    uint32_t cell;
    uint64_t window_bytes; /* 0: the largest that the host's node can use */
    enum via_ivshmem_access access;
    bool has_access;
};
_Static_assert(sizeof(struct config) <= VIA_LINK_CONFIG_BYTES, "fits");

static bool parse_access(const struct via_link_word *word, enum via_ivshmem_access *ret_access)
{
    if (strcmp(word->key, "access") != 0 || word->value == NULL) {
        return false;
    }
    bool by_sysfs = strcmp(word->value, "sysfs") == 0;
    *ret_access = by_sysfs ? VIA_IVSHMEM_SYSFS : VIA_IVSHMEM_VFIO;
    return by_sysfs || strcmp(word->value, "vfio") == 0;
}

static int parse_word(const struct via_link_word *word, struct config *config,
                      struct via_error *err)
{
    uint64_t number;
    if (strcmp(word->key, "side") == 0 && via_link_word_parse_number(word, 1, &number)) {
        config->side = (unsigned)number;
    } else if (strcmp(word->key, "cell") == 0 &&
               via_link_word_parse_number(word, VIA_IVSHMEM_CELLS_MAX - 1, &number)) {
        config->cell = (uint32_t)number;
    } else if (strcmp(word->key, "window") == 0 && via_link_word_parse_bytes(word, &number) &&
               number != 0) {
        config->window_bytes = number;
    } else if (parse_access(word, &config->access)) {
        config->has_access = true;
    } else {
        return via_error_set(err, -EINVAL, "option '%s%s%s': not one of %s", word->key,
                             word->value != NULL ? "=" : "", word->value != NULL ? word->value : "",
                             via_ivshmem_driver.usage);
    }
    return 0;
}

static int ivshmem_parse(const struct via_link_words *words, void *ret_config,
                         struct via_error *err)
{
    struct config config = {.side = 2};
    bool is_function = via_kernel_is_address(words->target);
    if (words->target[0] != '/' && !is_function) {
        return via_error_set(err, -EINVAL,
                             "target '%s': neither the absolute path of an ivshmem server's socket "
                             "nor a PCI function as 0000:00:04.0",
                             words->target);
    }
    if (strlen(words->target) >= sizeof(config.target)) {
        return via_error_set(err, -ENAMETOOLONG, "%s: longer than %zu bytes", words->target,
                             sizeof(config.target) - 1);
    }
    strcpy(config.target, words->target);
    for (unsigned i = 0; i < words->count; i++) {
        int rc = parse_word(&words->word[i], &config, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (config.has_access && !is_function) {
        return via_error_set(err, -EINVAL, "access= is for PCI functions, not for %s",
                             words->target);
    }
    if (config.side > 1) {
        return via_error_set(err, -EINVAL, "side=0 or side=1 is missing");
    }
    memcpy(ret_config, &config, sizeof(config));
    return 0;
}

static int ivshmem_open(const void *config_bytes, const struct via_driver_host *host,
                        struct via_port **ret_port, struct via_error *err)
{
    struct config config;
    memcpy(&config, config_bytes, sizeof(config));
    struct via_ivshmem_options options = {
        .target = config.target,
        .access = config.access,
        .side = config.side,
        .cell = config.cell,
        .window_bytes = config.window_bytes != 0 ? config.window_bytes : host->inbox_bytes,
        .host = host->host,
        .threads_count = host->threads_count,
        .wake = host->wake,
        .ctx = host->ctx,
    };
    if (options.window_bytes < host->inbox_bytes_min) {
        return via_error_set(err, -EINVAL, "window of %llu bytes: this host needs %llu",
                             (unsigned long long)options.window_bytes,
                             (unsigned long long)host->inbox_bytes_min);
    }
    return via_ivshmem_port_open(&options, ret_port, err);
}

static void ivshmem_describe(const struct via_port *port, char *ret_text, size_t bytes)
{
    struct via_ivshmem_status status;
    via_ivshmem_port_status(port, &status);
    if (status.peer_host != 0 || status.peer_id != 0) {
        snprintf(ret_text, bytes, "%s; host %u is peer %u", status.found, status.peer_host,
                 status.peer_id);
    } else {
        snprintf(ret_text, bytes, "%s", status.found);
    }
}

static void ivshmem_status(const struct via_port *port, struct via_port_status *ret_status)
{
    struct via_ivshmem_status status;
    via_ivshmem_port_status(port, &status);
    *ret_status = (struct via_port_status){
        .cut = status.cut,
        .window_bytes = status.window_bytes,
        .class_name = "ivshmem",
        .doorbells_fired = status.doorbells_fired,
        .doorbells_coalesced = status.doorbells_coalesced,
        .peers_refused = status.peers_refused,
    };
    memcpy(ret_status->error, status.error, sizeof(ret_status->error));
}
_Static_assert(sizeof(((struct via_port_status *)NULL)->error) ==
                   sizeof(((struct via_ivshmem_status *)NULL)->error),
               "the same text");

const struct via_driver via_ivshmem_driver = {
    .name = "ivshmem",
    .usage = "side=0|1, cell=NUMBER, window=BYTES, access=vfio|sysfs",
    .parse = ivshmem_parse,
    .open = ivshmem_open,
    .describe = ivshmem_describe,
    .status = ivshmem_status,
    .fd = via_ivshmem_port_fd,
    .service = via_ivshmem_port_service,
    .cut = via_ivshmem_port_cut,
};
