/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The driver of the ofi port:
 * ofi:PROVIDER://HOST[:PORT][,listen=ADDRESS[:PORT]][,encrypt][,unordered] */
#include "port/ofi/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port/ofi/ops.h"
#include "port/ofi/port.h"

struct config {
    char provider[VIA_OFI_PROVIDER_BYTES];
    struct via_ofi_place place;
    struct via_ofi_place listen; /* host "": the host's default */
    bool unordered;
    bool encrypted;
};
_Static_assert(sizeof(struct config) <= VIA_LINK_CONFIG_BYTES, "fits");

static int parse_port(const char *text, const char *digits, uint16_t *ret_port,
                      struct via_error *err)
{
    char *end;
    unsigned long port = digits[0] >= '0' && digits[0] <= '9' ? strtoul(digits, &end, 10) : 0;
    if (port == 0 || port > UINT16_MAX || *end != '\0') {
        return via_error_set(err, -EINVAL, "'%s': a port is a number from 1 to 65535", text);
    }
    *ret_port = (uint16_t)port;
    return 0;
}

/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT. */
static int parse_place(const char *text, struct via_ofi_place *ret_place, struct via_error *err)
{
    const char *host = text;
    size_t length = strcspn(text, ":");
    const char *rest = text + length;
    if (text[0] == '[') {
        host = text + 1;
        length = strcspn(host, "]");
        if (host[length] != ']') {
            return via_error_set(err, -EINVAL, "'%s': a ']' is missing", text);
        }
        rest = host + length + 1;
    }
    if (length == 0 || length >= sizeof(ret_place->host)) {
        return via_error_set(err, -EINVAL, "'%s': not HOST[:PORT]", text);
    }
    if (rest[0] != '\0' && (rest[0] != ':' || strchr(rest + 1, ':') != NULL)) {
        return via_error_set(err, -EINVAL, "'%s': not HOST[:PORT]; an IPv6 address has brackets",
                             text);
    }
    *ret_place = (struct via_ofi_place){.port = VIA_OFI_PORT_DEFAULT};
    memcpy(ret_place->host, host, length);
    return rest[0] == ':' ? parse_port(text, rest + 1, &ret_place->port, err) : 0;
}

/* Accepts addresses only: a name may stand for an address of another machine. */
static int parse_listen(const char *text, struct via_ofi_place *ret_place, struct via_error *err)
{
    int rc = parse_place(text, ret_place, err);
    if (rc == 0 && !via_ofi_resolve_is_address(ret_place->host)) {
        rc = via_error_set(err, -EINVAL, "'%s': not an address of this machine", text);
    }
    if (rc != 0) {
        via_error_prefix(err, "listen: ");
    }
    return rc;
}

static int parse_word(const struct via_link_word *word, struct config *config,
                      struct via_error *err)
{
    if (strcmp(word->key, "listen") == 0 && word->value != NULL) {
        return parse_listen(word->value, &config->listen, err);
    }
    if (strcmp(word->key, "unordered") == 0 && word->value == NULL) {
        config->unordered = true;
        return 0;
    }
    if (strcmp(word->key, "encrypt") == 0 && word->value == NULL) {
        config->encrypted = true;
        return 0;
    }
    return via_error_set(err, -EINVAL, "option '%s%s%s': not one of %s", word->key,
                         word->value != NULL ? "=" : "", word->value != NULL ? word->value : "",
                         via_ofi_driver.usage);
}

static int ofi_parse(const struct via_link_words *words, void *ret_config, struct via_error *err)
{
    struct config config = {0};
    const char *separator = strstr(words->target, "://");
    size_t length = separator != NULL ? (size_t)(separator - words->target) : 0;
    if (length == 0) {
        return via_error_set(err, -EINVAL, "'%s': not PROVIDER://HOST[:PORT]", words->target);
    }
    if (length >= sizeof(config.provider) || strcspn(words->target, "^,!") < length) {
        return via_error_set(err, -EINVAL, "'%.*s': not the name of a provider such as tcp",
                             (int)length, words->target);
    }
    memcpy(config.provider, words->target, length);
    int rc = parse_place(separator + 3, &config.place, err);
    for (unsigned i = 0; i < words->count && rc == 0; i++) {
        rc = parse_word(&words->word[i], &config, err);
    }
    if (rc == 0) {
        memcpy(ret_config, &config, sizeof(config));
    }
    return rc;
}

static int ofi_open(const void *config_bytes, const struct via_driver_host *host,
                    struct via_port **ret_port, struct via_error *err)
{
    struct config config;
    memcpy(&config, config_bytes, sizeof(config));
    if (host->peer == VIA_DRIVER_PEER_LEARNED || host->peer == host->host) {
        return via_error_set(err, -EINVAL,
                             "the link must say which host is at the other end: the lower id "
                             "connects to the higher");
    }
    struct via_ofi_options options = {
        .system = &via_ofi_system,
        .provider = config.provider,
        .place = config.place,
        .listen = config.listen,
        .unordered = config.unordered,
        .encrypted = config.encrypted || host->encrypted,
        .host = host,
    };
    if (options.encrypted && host->mac == NULL) {
        return via_error_set(err, -EINVAL, "a link that is encrypted needs a fabric key");
    }
    int rc = 0;
    if (options.listen.host[0] == '\0') {
        rc = parse_listen(host->listen != NULL ? host->listen : "0.0.0.0", &options.listen, err);
    }
    return rc == 0 ? via_ofi_port_open(&options, ret_port, err) : rc;
}

static void ofi_describe(const struct via_port *base, char *ret_text, size_t bytes)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    pthread_mutex_lock(&port->hub->lock);
    if (port->conn == NULL && !via_ofi_side_is_connector(port)) {
        snprintf(ret_text, bytes, "waits for host %u to connect", port->peer_id);
    } else {
        snprintf(ret_text, bytes, "%s", port->found);
    }
    pthread_mutex_unlock(&port->hub->lock);
}

static uint64_t read_counter(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void ofi_status(const struct via_port *base, struct via_port_status *ret_status)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    *ret_status = (struct via_port_status){
        .window_bytes = base->caps.window_bytes,
        .class_name = "network",
        .doorbells_fired = read_counter(&port->counters.doorbells_fired),
        .doorbells_coalesced = read_counter(&port->counters.doorbells_coalesced),
    };
    pthread_mutex_lock(&port->hub->lock);
    ret_status->cut = via_ofi_decision_is_cut(&port->decision);
    ret_status->peers_refused = port->peers_refused;
    memcpy(ret_status->error, port->error, sizeof(ret_status->error));
    pthread_mutex_unlock(&port->hub->lock);
}
_Static_assert(sizeof(((struct via_port_status *)NULL)->error) ==
                   sizeof(((struct via_ofi_port *)NULL)->error),
               "the same text");

uint64_t via_ofi_puts_out_of_bounds(const struct via_port *port)
{
    return read_counter(&via_ofi_port_of(port)->counters.puts_out_of_bounds);
}

static int ofi_fd(const struct via_port *port)
{
    return via_ofi_port_of(port)->changed_fd;
}

/* The hub's thread does all the work. */
static int ofi_service(struct via_port *base, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    uint64_t changes;
    (void)now_ns;
    *ret_deadline_ns = VIA_NEVER_NS;
    if (port->changed_fd >= 0) {
        (void)!read(port->changed_fd, &changes, sizeof(changes));
    }
    /* After the read: a later change makes the descriptor readable again. */
    return atomic_exchange_explicit(&port->changed, false, memory_order_acq_rel) ? 1 : 0;
}

static int ofi_memory_register(struct via_port *base, void *memory, size_t bytes,
                               struct via_error *err)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    struct via_ofi_hub *hub = port->hub;
    int rc = hub->local_keys && base->caps.dma_depth != 0
                 ? via_ofi_hub_register(hub, memory, bytes, FI_WRITE, &port->dma_mr)
                 : 0;
    return rc != 0 ? via_error_set(err, rc, "provider %s: register %zu bytes: %s", hub->provider,
                                   bytes, hub->library->strerror(-rc))
                   : 0;
}

/* "10.0.0.1:7471", "[fd00::1]:7471" */
static int address_alone(const char *text, char *ret_address, size_t bytes)
{
    const char *begin = text[0] == '[' ? text + 1 : text;
    const char *end = strrchr(begin, text[0] == '[' ? ']' : ':');
    if (end == NULL || (size_t)(end - begin) >= bytes) {
        return -EXDEV;
    }
    snprintf(ret_address, bytes, "%.*s", (int)(end - begin), begin);
    return 0;
}

static int ofi_tcp(struct via_port *base, char *ret_local, char *ret_peer, size_t bytes)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    if (port->encrypted || strcmp(port->hub->provider, "tcp") != 0) {
        return -EXDEV; /* a connection of a process would not be encrypted, or is not faster */
    }
    pthread_mutex_lock(&port->hub->lock);
    int rc = -ENOLINK;
    if (port->conn != NULL && via_ofi_port_is_up(port)) {
        rc = address_alone(port->conn->local_text, ret_local, bytes);
        rc = rc == 0 ? address_alone(port->conn->peer_text, ret_peer, bytes) : rc;
    }
    pthread_mutex_unlock(&port->hub->lock);
    return rc;
}

const struct via_driver via_ofi_driver = {
    .name = "ofi",
    .usage = "listen=ADDRESS[:PORT], encrypt, unordered",
    .is_bound_to_peer = true,
    .parse = ofi_parse,
    .open = ofi_open,
    .describe = ofi_describe,
    .status = ofi_status,
    .fd = ofi_fd,
    .service = ofi_service,
    .cut = via_ofi_port_cut,
    .memory_register = ofi_memory_register,
    .tcp = ofi_tcp,
};
