/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Changes the configuration of a running host. Links that are no longer configured close first,
 * because a new link may need their place in the tables, their socket or their device. Then the new
 * links open. All other links stay up.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "host/host_private.h"

/* Interval of polls of links that close; and the longest time before the new links open. */
#define LEAVE_POLL_NS VIA_MSEC_NS
#define LEAVE_NS (2 * VIA_SEC_NS)

static void note(struct via_host *host, bool failed, const char *format, ...) VIA_PRINTF(3, 4);

static void note(struct via_host *host, bool failed, const char *format, ...)
{
    const struct via_host_change *change = host->changing.change;
    char text[VIA_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    change->note(change->ctx, failed, text);
}

/* --- links ------------------------------------------------------------------------------------ */

static bool is_same(const struct via_host_cable *cable, const struct via_host_link *link)
{
    if (cable->port != NULL && cable->link.driver->is_bound_to_peer &&
        cable->offer.peer != link->peer) {
        return false;
    }
    return cable->port != NULL && !cable->leaving && cable->dimension == link->dimension &&
           strcmp(cable->description, link->description) == 0;
}

/* The expected peer and the name only appear in messages, unless the driver is bound to the
 * peer. */
static void rename_cable(struct via_host_cable *cable, const struct via_host_link *link)
{
    cable->peer = link->peer;
    snprintf(cable->name, sizeof(cable->name), "%s", link->name != NULL ? link->name : "");
}

static const struct via_host_link *find_wanted(const struct via_host_cable *cable,
                                               const struct via_host_options *options)
{
    for (unsigned i = 0; i < options->links_count; i++) {
        if (is_same(cable, &options->links[i])) {
            return &options->links[i];
        }
    }
    return NULL;
}

static bool is_there(const struct via_host *host, const struct via_host_link *link)
{
    for (unsigned i = 0; i < host->cables_count; i++) {
        if (is_same(&host->cables[i], link)) {
            return true;
        }
    }
    return false;
}

static void free_links(struct via_host_changing *changing)
{
    for (unsigned i = 0; i < changing->links_count; i++) {
        free((void *)(uintptr_t)changing->links[i].description);
        free((void *)(uintptr_t)changing->links[i].name);
    }
    free(changing->links);
    changing->links = NULL;
    changing->links_count = 0;
}

static bool copy_link(struct via_host_link *to, const struct via_host_link *link)
{
    *to = *link;
    to->description = strdup(link->description);
    to->name = link->name != NULL ? strdup(link->name) : NULL;
    return to->description != NULL && (link->name == NULL || to->name != NULL);
}

/* Copies the configured links that are not open. */
static int copy_links(struct via_host *host, const struct via_host_options *options)
{
    struct via_host_changing *changing = &host->changing;
    changing->links = calloc(via_max(options->links_count, 1u), sizeof(*changing->links));
    if (changing->links == NULL) {
        return -ENOMEM;
    }
    for (unsigned i = 0; i < options->links_count; i++) {
        if (!is_there(host, &options->links[i]) &&
            !copy_link(&changing->links[changing->links_count++], &options->links[i])) {
            free_links(changing);
            return -ENOMEM;
        }
    }
    return 0;
}

static void begin_leaving(struct via_host *host, const struct via_host_options *options)
{
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        const struct via_host_link *link = find_wanted(cable, options);
        if (cable->port == NULL || cable->leaving) {
            continue;
        }
        if (link != NULL) {
            rename_cable(cable, link);
            continue;
        }
        note(host, false, "%s: closed", via_host_cable_describe(cable).text);
        (void)via_host_cable_leave(cable); /* via_host_change_tick() completes it */
    }
}

static void open_new(struct via_host *host)
{
    struct via_host_changing *changing = &host->changing;
    (void)json_array_clear(host->links_failed);
    for (unsigned i = 0; i < changing->links_count; i++) {
        const struct via_host_link *link = &changing->links[i];
        struct via_error err;
        if (via_host_cable_open(host, link, &err) == 0) {
            note(host, false, "link%s%s: opened", link->name != NULL ? " " : "",
                 link->name != NULL ? link->name : "");
        } else {
            via_host_cable_failed(host, err.text);
            note(host, true, "%s", err.text);
        }
    }
}

/* --- the rest --------------------------------------------------------------------------------- */

/* Users that may attach need access to the run directory. */
static void open_rundir_to(struct via_host *host, const struct via_host_options *options)
{
    struct stat info;
    bool passable = options->attach.count + options->admin.count != 0;
    if (passable && stat(host->rundir.text, &info) == 0 && (info.st_mode & 0111) != 0111 &&
        chmod(host->rundir.text, 0711) != 0) {
        note(host, true, "run directory %s: chmod: %s", host->rundir.text, strerror(errno));
    }
}

static void take_options(struct via_host *host, const struct via_host_options *options)
{
    open_rundir_to(host, options);
    host->options.attach = options->attach;
    host->options.admin = options->admin;
    host->options.quota = options->quota;
    via_host_directory_renamed(host);
    via_tenants_requota(host);
    via_control_server_rights_changed(host);
}

/* --- the whole -------------------------------------------------------------------------------- */

int via_host_change(struct via_host *host, const struct via_host_options *options,
                    const struct via_host_change *change, struct via_error *err)
{
    struct via_host_identity identity;
    struct via_host_changing *changing = &host->changing;
    if (changing->active) {
        return via_error_set(err, -EBUSY, "host %u: a change is under way already",
                             host->config.host);
    }
    if (options->links_count > host->links_max) {
        return via_error_set(err, -EINVAL, "host %u: %u links, more than the %u that there may be",
                             host->config.host, options->links_count, host->links_max);
    }
    int rc = via_host_identity_init(&identity, options, err);
    for (unsigned i = 0; i < options->links_count && rc == 0; i++) {
        rc = via_host_link_check(&options->links[i], err);
    }
    if (rc == 0 && copy_links(host, options) != 0) {
        rc =
            via_error_set(err, -ENOMEM, "host %u: change: %s", host->config.host, strerror(ENOMEM));
    }
    if (rc != 0) {
        return rc;
    }
    /* From here on the change as a whole does not fail. */
    changing->active = true;
    changing->change = change;
    changing->deadline_ns = host->now_ns + LEAVE_NS;
    host->identity = identity;
    take_options(host, options);
    begin_leaving(host, options);
    return 0;
}

/* Returns the number of links that have not closed yet. */
static unsigned go_on_leaving(struct via_host *host)
{
    unsigned count = 0;
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        count += cable->leaving && via_host_cable_leave(cable) != 0;
    }
    return count;
}

uint64_t via_host_change_tick(struct via_host *host)
{
    struct via_host_changing *changing = &host->changing;
    unsigned leaving = go_on_leaving(host);
    if (changing->active && (leaving == 0 || host->now_ns >= changing->deadline_ns)) {
        if (leaving != 0) {
            note(host, true, "%u links have not released their ports yet", leaving);
        }
        open_new(host);
        free_links(changing);
        changing->active = false;
        via_host_direct_changed(host);
        changing->change->done(changing->change->ctx);
    }
    return leaving != 0 || changing->active ? host->now_ns + LEAVE_POLL_NS : VIA_NEVER_NS;
}

void via_host_change_close(struct via_host *host)
{
    free_links(&host->changing);
    host->changing.active = false;
}
