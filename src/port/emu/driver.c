/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The driver of the emulated port: emu:PATH[,side=0|1][,like=CLASS][,window=BYTES]... */
#include "port/emu/driver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "port/emu/port.h"

/* Of an emulated engine. Smaller than the number of copies that the channels of a host start at
 * once, so that they sometimes find the engine full. */
#define DMA_DEPTH 8u

struct config {
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    unsigned side;
    bool direct;
    const struct via_emu_like *like;
    uint64_t window_bytes;
    uint64_t seed;
};
_Static_assert(sizeof(struct config) <= VIA_LINK_CONFIG_BYTES, "fits");

static int parse_word(const struct via_link_word *word, struct config *config,
                      struct via_error *err)
{
    uint64_t number;
    if (strcmp(word->key, "side") == 0 && via_link_word_parse_number(word, 1, &number)) {
        config->side = (unsigned)number;
    } else if (strcmp(word->key, "nodirect") == 0 && word->value == NULL) {
        config->direct = false;
    } else if (strcmp(word->key, "like") == 0 && word->value != NULL) {
        config->like = via_emu_like_find(word->value);
        if (config->like == NULL) {
            return via_error_set(err, -EINVAL, "like '%s': there is no such class of links",
                                 word->value);
        }
    } else if (strcmp(word->key, "window") == 0 && via_link_word_parse_bytes(word, &number)) {
        config->window_bytes = number;
    } else if (strcmp(word->key, "seed") == 0 &&
               via_link_word_parse_number(word, UINT64_MAX, &number)) {
        config->seed = number;
    } else {
        return via_error_set(err, -EINVAL, "option '%s%s%s': not one of %s", word->key,
                             word->value != NULL ? "=" : "", word->value != NULL ? word->value : "",
                             via_emu_driver.usage);
    }
    return 0;
}

static int emu_parse(const struct via_link_words *words, void *ret_config, struct via_error *err)
{
    struct config config = {.direct = true, .like = via_emu_like_find("memory"), .seed = 1};
    if (words->target[0] == '\0') {
        return via_error_set(err, -EINVAL, "the path of a socket is missing");
    }
    if (strlen(words->target) >= sizeof(config.path)) {
        return via_error_set(err, -ENAMETOOLONG, "%s: longer than a socket address", words->target);
    }
    strcpy(config.path, words->target);
    for (unsigned i = 0; i < words->count; i++) {
        int rc = parse_word(&words->word[i], &config, err);
        if (rc != 0) {
            return rc;
        }
    }
    memcpy(ret_config, &config, sizeof(config));
    return 0;
}

static int emu_open(const void *config_bytes, const struct via_driver_host *host,
                    struct via_port **ret_port, struct via_error *err)
{
    struct config config;
    memcpy(&config, config_bytes, sizeof(config));
    struct via_emu_options options = {
        .path = config.path,
        .side = config.side,
        .host = host->host,
        .inbox_bytes = host->inbox_bytes,
        .bell_fd = host->bell_fd,
        .bell_lines = host->threads_count,
        .direct = config.direct,
        .like = config.like,
        .window_bytes = config.window_bytes,
        .seed = config.seed,
        .slices = host->slices,
        .inbox_bytes_min = host->inbox_bytes_min,
        .dma_depth = host->dma ? DMA_DEPTH : 0,
        .on_message = host->on_message,
        .ctx = host->ctx,
    };
    return via_emu_port_open(&options, ret_port, err);
}

static void emu_describe(const struct via_port *port, char *ret_text, size_t bytes)
{
    struct via_emu_status status;
    via_emu_port_status(port, &status);
    ret_text[0] = '\0';
    if (status.connected) {
        snprintf(ret_text, bytes, "process %d, host %u, inbox of %llu bytes", (int)status.peer_pid,
                 status.peer_host, (unsigned long long)status.peer_inbox_bytes);
    }
}

static void emu_status(const struct via_port *port, struct via_port_status *ret_status)
{
    const struct via_emu_port *emu = via_emu_port_of(port);
    struct via_emu_status status;
    via_emu_port_status(port, &status);
    *ret_status = (struct via_port_status){
        .cut = status.cut,
        .window_bytes = status.window_bytes,
        .maps_memory = emu->maps_memory,
        .class_name = emu->like->name,
        .peer_pid = (uint64_t)status.peer_pid,
        .doorbells_fired = status.doorbells_fired,
        .doorbells_coalesced = status.doorbells_coalesced,
        .peers_refused = status.peers_refused,
        .imitation = emu->lanes != NULL
                         ? "posted writes are queues of the emulated port, reads and fences wait "
                           "by the clock"
                     : port->caps.dma_depth != 0
                         ? "the DMA engine copies when the host polls for completions"
                         : NULL,
    };
    memcpy(ret_status->error, status.error, sizeof(ret_status->error));
}
_Static_assert(sizeof(((struct via_port_status *)NULL)->error) ==
                   sizeof(((struct via_emu_status *)NULL)->error),
               "the same text");

const struct via_driver via_emu_driver = {
    .name = "emu",
    .usage = "side=0|1, nodirect, like=CLASS, window=BYTES, seed=N",
    .parse = emu_parse,
    .open = emu_open,
    .describe = emu_describe,
    .status = emu_status,
    .fd = via_emu_port_fd,
    .service = via_emu_port_service,
    .cut = via_emu_port_cut,
    .slices = via_emu_port_slices,
    .request = via_emu_port_request,
};
