/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shmem/launch.h"
#include "viaduct/viaduct.h"

#define HOST_ID_MAX 1023ul

static int add_host(struct via_launch_options *options, uint32_t host, uint32_t slots,
                    struct via_error *err)
{
    for (uint32_t i = 0; i < options->hosts_count; i++)
        if (options->hosts[i] == host)
            return via_error_set(err, -EINVAL, "host %u is named twice", host);
    if (options->hosts_count == VIA_LAUNCH_HOSTS_MAX)
        return via_error_set(err, -EINVAL, "more than %u hosts", VIA_LAUNCH_HOSTS_MAX);
    options->slots[options->hosts_count] = slots;
    options->hosts[options->hosts_count++] = host;
    return 0;
}

/* Parses a number at *text and advances *text past it. */
static bool take_number(const char **text, unsigned long *ret_number)
{
    char *end;

    if (**text < '0' || **text > '9')
        return false;
    *ret_number = strtoul(*text, &end, 10);
    *text = end;
    return *ret_number <= HOST_ID_MAX;
}

int via_launch_parse_hosts(const char *text, struct via_launch_options *options,
                           struct via_error *err)
{
    const char *at = text;
    unsigned long first, last, slots;
    int result = 0;

    options->hosts_count = 0;
    do {
        bool good = take_number(&at, &first);
        last = first;
        if (good && *at == '-') {
            at++;
            good = take_number(&at, &last) && first <= last;
        }
        slots = 0;
        if (good && *at == ':') {
            at++;
            good = take_number(&at, &slots) && slots > 0;
        }
        if (!good || (*at != ',' && *at != '\0'))
            return via_error_set(
                err, -EINVAL, "\"%s\": not a list of host ids such as 1,2 or 1-4 or 1:3,2:1", text);
        for (unsigned long host = first; host <= last && result == 0; host++)
            result = add_host(options, (uint32_t)host, (uint32_t)slots, err);
    } while (result == 0 && *at++ == ',');
    return result;
}

/* --- hosts that are up ------------------------------------------------------------------------ */

static int check_host(const struct via_launch_place *place, uint32_t host, struct via_error *err)
{
    struct via_attach_options options = {
        .size = sizeof(options), .rundir = place->rundir.text, .host = (int)host, .channel = -1};
    struct via_attach *attach;

    int result = via_attach_open(&options, &attach);
    if (result < 0)
        return via_error_set(err, result, "host %u of %s: %s", host, place->rundir.text,
                             via_error_text());
    via_attach_close(attach);
    return 0;
}

/* Parses the host's id from the name of its socket. */
static bool parse_host_name(const char *name, unsigned long *ret_host)
{
    const char *at = name + strlen("host-");

    return strncmp(name, "host-", strlen("host-")) == 0 && take_number(&at, ret_host) &&
           strcmp(at, ".attach") == 0;
}

static int compare_hosts(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

/* Finds the hosts of the fabric whose daemons run on this machine and answer. */
static int find_hosts(struct via_launch_place *place, uint32_t max, struct via_error *err)
{
    DIR *dir = opendir(place->rundir.text);
    struct dirent *entry;
    unsigned long host;
    uint32_t count = 0;

    if (!dir)
        return via_error_set(err, -errno, "%s: %s; is the fabric up?", place->rundir.text,
                             strerror(errno));
    while ((entry = readdir(dir)) != NULL && count < VIA_LAUNCH_HOSTS_MAX)
        if (parse_host_name(entry->d_name, &host) && check_host(place, (uint32_t)host, NULL) == 0)
            place->host_of[count++] = (uint32_t)host;
    closedir(dir);
    if (count == 0)
        return via_error_set(err, -ENOENT, "%s: no host of the fabric is up", place->rundir.text);
    qsort(place->host_of, count, sizeof(place->host_of[0]), compare_hosts);
    place->nodes_count = via_min(count, max);
    return 0;
}

int via_launch_find_host(const char *fabric, struct via_launch_place *ret_place,
                         struct via_error *err)
{
    struct via_launch_place *place = ret_place;
    const char *named = getenv("VIADUCT_HOST"), *at = named;
    unsigned long host;

    int result = via_rundir_default(fabric, &place->rundir, err);
    if (result < 0)
        return result;
    place->fabric = true;
    if (named) {
        if (!take_number(&at, &host) || *at != '\0')
            return via_error_set(err, -EINVAL, "VIADUCT_HOST=\"%s\": not a host id", named);
        place->host_of[0] = (uint32_t)host;
        place->nodes_count = 1;
        return check_host(place, (uint32_t)host, err);
    }
    unsigned local;
    if (via_rundir_local(place->rundir.text, &local) == 0) {
        place->host_of[0] = local;
        place->nodes_count = 1;
        return check_host(place, local, err);
    }
    result = find_hosts(place, VIA_LAUNCH_HOSTS_MAX, err);
    if (result == 0 && place->nodes_count > 1)
        result = via_error_set(err, -ENOENT,
                               "%s: %u hosts of the fabric are on this machine; VIADUCT_HOST "
                               "there has to name one",
                               place->rundir.text, place->nodes_count);
    return result;
}

int via_launch_place(const struct via_launch_options *options, struct via_launch_place *ret_place,
                     struct via_error *err)
{
    struct via_launch_place *place = ret_place;
    int result = 0;

    memset(place, 0, sizeof(*place));
    place->fabric = options->spread || options->hosts_count > 0;
    place->nodes_count = place->fabric ? options->hosts_count : 1;
    if (place->fabric)
        result = via_rundir_default(options->fabric, &place->rundir, err);
    if (result == 0 && options->spread)
        result = find_hosts(place, options->pes_count, err);
    for (uint32_t i = 0; i < options->hosts_count && result == 0; i++) {
        place->host_of[i] = options->hosts[i];
        result = check_host(place, options->hosts[i], err);
    }
    if (result < 0)
        return result;
    return via_launch_share_out("host", options->slots, place->nodes_count, options->pes_count,
                                place, err);
}
