/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Opens ends of a link without a daemon; a thread services them in place of a host's control
 * thread. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tune/pio.h"

#define INBOX_BYTES (UINT64_C(2) << 20)
#define INBOX_BYTES_MIN 4096u
#define BELL_BYTES 4096
#define POLL_MS 5
#define DMA_NS_MAX (1 * VIA_SEC_NS)

/* --- the control thread --- */

static void service(struct via_pio_link *link)
{
    struct pollfd fds[2];
    uint64_t wait_ns = POLL_MS * VIA_MSEC_NS;
    for (unsigned i = 0; i < link->ends_count; i++) {
        struct via_pio_end *end = &link->ends[i];
        uint64_t now_ns = via_pio_now_ns(), deadline_ns = VIA_NEVER_NS;
        (void)end->config.driver->service(end->port, now_ns, &deadline_ns);
        (void)end->port->ops->events(end->port, VIA_PORT_EVENT_CONTROL);
        wait_ns = via_min(wait_ns, deadline_ns > now_ns ? deadline_ns - now_ns : 0);
        fds[i] = (struct pollfd){.fd = end->config.driver->fd(end->port), .events = POLLIN};
    }
    poll(fds, link->ends_count, (int)((wait_ns + VIA_MSEC_NS - 1) / VIA_MSEC_NS));
}

static void *control(void *argument)
{
    struct via_pio_link *link = argument;
    while (!atomic_load_explicit(&link->stop, memory_order_relaxed)) {
        service(link);
    }
    return NULL;
}

static void wake(void *ctx, unsigned thread)
{
    (void)ctx; /* no thread sleeps */
    (void)thread;
}

/* --- ends --- */

static int name_emulated(struct via_pio_link *link, struct via_error *err)
{
    strcpy(link->directory, "/tmp/viaduct-pio-XXXXXX");
    if (mkdtemp(link->directory) == NULL) {
        link->directory[0] = '\0';
        return via_error_set(err, -errno, "/tmp: directory for an emulated link: %s",
                             strerror(errno));
    }
    for (unsigned i = 0; i < 2; i++) {
        snprintf(link->texts[i], sizeof(link->texts[i]), "emu:%s/link.sock,side=%u",
                 link->directory, i);
        link->ends[i].text = link->texts[i];
    }
    link->ends_count = 2;
    return 0;
}

/* The bell page that a peer's port rings; no thread sleeps on it. */
static int make_bell(struct via_pio_end *end, struct via_error *err)
{
    end->bell_fd = memfd_create("viaduct-pio-bells", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (end->bell_fd < 0 || ftruncate(end->bell_fd, BELL_BYTES) != 0 ||
        fcntl(end->bell_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return via_error_set(err, -errno, "memory for doorbells: %s", strerror(errno));
    }
    return 0;
}

static int open_end(struct via_pio_link *link, unsigned index, struct via_error *err)
{
    struct via_pio_end *end = &link->ends[index];
    end->bell_fd = -1;
    int rc = via_link_parse(end->text, &end->config, err);
    rc = rc == 0 ? make_bell(end, err) : rc;
    if (rc != 0) {
        return rc;
    }
    uint64_t inbox_bytes = end->config.inbox_bytes != 0 ? end->config.inbox_bytes : INBOX_BYTES;
    end->host = (struct via_driver_host){.host = (uint16_t)(index + 1),
                                         .inbox_bytes = inbox_bytes,
                                         .inbox_bytes_min = INBOX_BYTES_MIN,
                                         .threads_count = 1,
                                         .bell_fd = end->bell_fd,
                                         .dma = true,
                                         .wake = wake,
                                         .peer = VIA_DRIVER_PEER_LEARNED};
    rc = end->config.driver->open(end->config.config, &end->host, &end->port, err);
    return rc == 0 ? 0 : via_error_prefix(err, "%s: open: ", end->text);
}

static int make_source(struct via_pio_link *link, struct via_error *err)
{
    void *at = mmap(NULL, VIA_PIO_SOURCE_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) {
        return via_error_set(err, -errno, "%u bytes of memory: %s", VIA_PIO_SOURCE_BYTES,
                             strerror(errno));
    }
    link->source = at;
    for (unsigned i = 0; i < VIA_PIO_SOURCE_BYTES; i++) {
        link->source[i] = (unsigned char)(i * 31);
    }
    struct via_pio_end *end = &link->ends[0];
    if (link->ends_count == 0 || end->port->caps.dma_depth == 0 ||
        end->config.driver->memory_register == NULL) {
        return 0;
    }
    int rc =
        end->config.driver->memory_register(end->port, link->source, VIA_PIO_SOURCE_BYTES, err);
    return rc == 0 ? 0 : via_error_prefix(err, "%s: memory for DMA: ", end->text);
}

/* Opens a write-combined and an uncached view, if the port distinguishes them. */
static int open_views(struct via_pio_link *link, struct via_error *err)
{
    struct via_pio_end *end = &link->ends[0];
    const struct via_driver *driver = end->config.driver;
    if (driver->view_open == NULL) {
        if (end->port->window != NULL) {
            link->views[link->views_count++] =
                (struct via_port_view){.at = end->port->window,
                                       .bytes = end->port->caps.window_bytes,
                                       .caching = VIA_PORT_MEMORY};
        }
        return 0;
    }
    for (unsigned i = 0; i < 2; i++) {
        struct via_port_view view;
        int rc = driver->view_open(end->port, i == 0, &view);
        if (rc == -ENOTSUP) {
            return 0;
        }
        if (rc != 0) {
            return via_error_set(err, rc, "%s: map the window: %s", end->text, strerror(-rc));
        }
        bool is_known = i == 1 && view.caching == link->views[0].caching;
        if (is_known) {
            driver->view_close(end->port, &view);
        } else {
            link->views[link->views_count++] = view;
        }
    }
    return 0;
}

static int wait_up(struct via_pio_link *link, uint64_t wait_ns, struct via_error *err)
{
    struct via_pio_end *end = &link->ends[0];
    uint64_t until_ns = via_pio_now_ns() + wait_ns;
    while (!end->port->ops->link_is_up(end->port)) {
        if (via_pio_now_ns() >= until_ns) {
            struct via_port_status status;
            end->config.driver->status(end->port, &status);
            return via_error_set(err, -ETIMEDOUT, "%s: wait for the other end: %s", end->text,
                                 status.error[0] != '\0' ? status.error
                                                         : "the link did not come up");
        }
        poll(NULL, 0, 1);
    }
    return 0;
}

/* Starts a copy, and waits for its end, at most DMA_NS_MAX. 0, or negative errno. */
static int try_dma(struct via_port *port, const unsigned char *source)
{
    uint64_t until_ns = via_pio_now_ns() + DMA_NS_MAX, cookie;
    int rc, result;
    do {
        rc = port->ops->dma(port, 0, 0, source, VIA_CACHELINE, 1);
    } while (rc == -EAGAIN && via_pio_now_ns() < until_ns);
    while (rc == 0 && port->ops->dma_take(port, 0, &cookie, &result, 1) == 0) {
        if (via_pio_now_ns() >= until_ns) {
            port->ops->dma_abort(port, 0);
            rc = -ETIMEDOUT;
        }
    }
    return rc != 0 ? rc : result;
}

/* A failure of the engine is not an error, because everything else can be measured. */
static void check_dma(struct via_pio_link *link)
{
    struct via_pio_end *end = &link->ends[0];
    if (end->port->caps.dma_depth == 0) {
        return;
    }
    int rc = try_dma(end->port, link->source);
    link->has_dma = rc == 0;
    if (rc != 0) {
        struct via_port_status status;
        end->config.driver->status(end->port, &status);
        snprintf(link->dma_why, sizeof(link->dma_why), "%s",
                 status.error[0] != '\0' ? status.error : strerror(-rc));
    }
}

static int open_ends(struct via_pio_link *link, struct via_error *err)
{
    int rc = link->ends_count == 0 ? name_emulated(link, err) : 0;
    for (unsigned i = 0; i < link->ends_count && rc == 0; i++) {
        rc = open_end(link, i, err);
    }
    return rc;
}

int via_pio_link_open(struct via_pio_link *link, uint64_t wait_ns, struct via_error *err)
{
    int rc = open_ends(link, err);
    rc = rc == 0 ? make_source(link, err) : rc;
    rc = rc == 0 ? open_views(link, err) : rc;
    if (rc != 0) {
        return rc;
    }
    rc = pthread_create(&link->thread, NULL, control, link);
    if (rc != 0) {
        return via_error_set(err, -rc, "thread: %s", strerror(rc));
    }
    link->has_thread = true;
    link->window_bytes = link->ends[0].port->caps.window_bytes;
    int rc_up = wait_up(link, wait_ns, err);
    if (rc_up == 0) {
        check_dma(link);
    }
    return rc_up;
}

int via_pio_link_serve(struct via_pio_link *link, const _Atomic bool *stop, struct via_error *err)
{
    int rc = open_ends(link, err);
    while (rc == 0 && !atomic_load_explicit(stop, memory_order_relaxed)) {
        service(link);
    }
    return rc;
}

/* --- a bare BAR --- */

int via_pio_link_open_bar(struct via_pio_link *link, const char *device, struct via_pci *pci,
                          unsigned bar, struct via_error *err)
{
    struct via_pci_region region = {0};
    link->pci = pci;
    uint32_t command = 0;
    link->ends[0].text = device;
    link->bar = bar;
    int rc = link->pci->ops->region(link->pci, bar, &region);
    if (rc != 0 || region.bytes == 0) {
        return via_error_set(err, -ENXIO, "%s: BAR %u: there is none", device, bar);
    }
    rc = link->pci->ops->config_read(link->pci, VIA_PCI_COMMAND, 2, &command);
    rc = rc == 0 ? link->pci->ops->config_write(link->pci, VIA_PCI_COMMAND, 2,
                                                command | VIA_PCI_COMMAND_MEMORY)
                 : rc;
    if (rc != 0) {
        return via_error_set(err, rc, "%s: memory decoding: %s", device, strerror(-rc));
    }
    link->window_bytes = via_min(region.bytes, (uint64_t)VIA_PIO_SOURCE_BYTES);
    for (unsigned i = 0; i < 2 && region.mappable; i++) {
        /* One mapping at a time, because a second mapping gets the caching of the first. */
        struct via_pci_mapping mapping;
        if (link->pci->ops->map(link->pci, bar, 0, link->window_bytes, i == 0, &mapping) != 0) {
            continue;
        }
        enum via_port_caching caching = mapping.caching == VIA_PCI_UNCACHED    ? VIA_PORT_UNCACHED
                                        : mapping.caching == VIA_PCI_COMBINING ? VIA_PORT_COMBINING
                                                                               : VIA_PORT_MEMORY;
        link->pci->ops->unmap(link->pci, &mapping);
        if (link->views_count == 0 || caching != link->views[0].caching) {
            link->views[link->views_count++] =
                (struct via_port_view){.bytes = link->window_bytes, .caching = caching};
        }
    }
    if (link->views_count == 0) {
        return via_error_set(err, -ENOTSUP, "%s: BAR %u: it can not be mapped", device, bar);
    }
    return make_source(link, err);
}

int via_pio_link_use_view(struct via_pio_link *link, unsigned view)
{
    if (link->pci == NULL || link->views[view].at != NULL) {
        return 0;
    }
    if (link->mapping.at != NULL) {
        link->pci->ops->unmap(link->pci, &link->mapping);
    }
    for (unsigned i = 0; i < link->views_count; i++) {
        link->views[i].at = NULL;
    }
    int rc = link->pci->ops->map(link->pci, link->bar, 0, link->window_bytes,
                                 link->views[view].caching != VIA_PORT_UNCACHED, &link->mapping);
    link->views[view].at = rc == 0 ? link->mapping.at : NULL;
    return rc;
}

/* --- close --- */

static void close_views(struct via_pio_link *link)
{
    struct via_pio_end *end = &link->ends[0];
    if (link->pci != NULL && link->mapping.at != NULL) {
        link->pci->ops->unmap(link->pci, &link->mapping);
    }
    for (unsigned i = 0; i < link->views_count && link->pci == NULL; i++) {
        if (end->config.driver->view_close != NULL) {
            end->config.driver->view_close(end->port, &link->views[i]);
        }
    }
}

void via_pio_link_close(struct via_pio_link *link)
{
    if (link->has_thread) {
        atomic_store_explicit(&link->stop, true, memory_order_relaxed);
        pthread_join(link->thread, NULL);
    }
    close_views(link);
    for (unsigned i = 0; i < link->ends_count; i++) {
        if (link->ends[i].port != NULL) {
            link->ends[i].port->ops->close(link->ends[i].port);
        }
        if (link->ends[i].bell_fd > 0) {
            close(link->ends[i].bell_fd);
        }
    }
    if (link->pci != NULL) {
        link->pci->ops->close(link->pci);
    }
    if (link->source != NULL) {
        munmap(link->source, VIA_PIO_SOURCE_BYTES);
    }
    if (link->directory[0] != '\0') {
        rmdir(link->directory);
    }
}

/* --- description --- */

const char *via_pio_link_name(const struct via_pio_link *link)
{
    return link->directory[0] != '\0' ? "an emulated link" : link->ends[0].text;
}

void via_pio_link_describe(const struct via_pio_link *link, char *ret_text, size_t bytes)
{
    if (link->pci != NULL) {
        snprintf(ret_text, bytes, "BAR %u of %s", link->bar, link->pci->ops->describe(link->pci));
        return;
    }
    const struct via_pio_end *end = &link->ends[0];
    ret_text[0] = '\0';
    end->config.driver->describe(end->port, ret_text, bytes);
}

static bool is_virtual_machine(void)
{
    char line[4096];
    bool is_found = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && !is_found && fgets(line, sizeof(line), file) != NULL) {
        is_found = strncmp(line, "flags", 5) == 0 && strstr(line, " hypervisor") != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    return is_found;
}

void via_pio_link_limits(const struct via_pio_link *link,
                         const char *ret_limits[VIA_PIO_LIMITS_MAX])
{
    unsigned count = 0;
    if (link->ends_count != 0) {
        struct via_port_status status;
        link->ends[0].config.driver->status(link->ends[0].port, &status);
        if (status.imitation != NULL) {
            ret_limits[count++] = status.imitation;
        }
        if (!link->has_dma) {
            ret_limits[count++] =
                link->dma_why[0] != '\0' ? link->dma_why : "no DMA engine: no crossover";
        }
    } else {
        ret_limits[count++] = "a bare BAR: no port, no DMA engine, no crossover";
    }
    if (link->views_count == 0) {
        ret_limits[count++] = "the window is not mapped: stores by width can not be measured";
    } else if (link->views[0].caching == VIA_PORT_MEMORY) {
        ret_limits[count++] = "the window is memory of this machine: its caches take the stores; "
                              "what packets cost, and what write-combining saves, does not show";
    } else if (is_virtual_machine()) {
        ret_limits[count++] = "this is a virtual machine: where its hypervisor emulates the "
                              "device, a store is a call of the hypervisor";
    }
    ret_limits[count] = NULL;
}
