/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/control_rights.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/types.h"

static bool parse_id(const char *text, uint32_t *ret_id)
{
    char *end;
    errno = 0;
    unsigned long id = strtoul(text, &end, 10);
    /* All-ones is no id: chown(2) uses it for "unchanged". */
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || id >= UINT32_MAX) {
        return false;
    }
    *ret_id = (uint32_t)id;
    return true;
}

static bool parse_user(const char *name, uint32_t *ret_id)
{
    const struct passwd *user = getpwnam(name);
    if (user != NULL) {
        *ret_id = user->pw_uid;
    }
    return user != NULL || parse_id(name, ret_id);
}

static bool parse_group(const char *name, uint32_t *ret_id)
{
    const struct group *group = getgrnam(name);
    if (group != NULL) {
        *ret_id = group->gr_gid;
    }
    return group != NULL || parse_id(name, ret_id);
}

static int add_item(struct via_rights *rights, const char *item, struct via_error *err)
{
    struct via_rights_entry entry = {.kind = VIA_RIGHTS_ALL};
    if (strcmp(item, "owner") == 0) {
        return 0;
    }
    if (strncmp(item, "user:", 5) == 0) {
        entry.kind = VIA_RIGHTS_USER;
        if (!parse_user(item + 5, &entry.id)) {
            return via_error_set(err, -EINVAL, "'%.60s': there is no such user", item);
        }
    } else if (strncmp(item, "group:", 6) == 0) {
        entry.kind = VIA_RIGHTS_GROUP;
        if (!parse_group(item + 6, &entry.id)) {
            return via_error_set(err, -EINVAL, "'%.60s': there is no such group", item);
        }
    } else if (strcmp(item, "all") != 0) {
        return via_error_set(err, -EINVAL,
                             "'%.60s': all, owner, user:NAME and group:NAME are known", item);
    }
    if (rights->count == VIA_RIGHTS_ENTRIES_MAX) {
        return via_error_set(err, -EINVAL, "more than %u users and groups", VIA_RIGHTS_ENTRIES_MAX);
    }
    rights->entries[rights->count++] = entry;
    return 0;
}

int via_rights_add(struct via_rights *rights, const char *text, struct via_error *err)
{
    struct via_rights copy = *rights;
    int rc = 0;
    for (const char *at = text; rc == 0 && at != NULL;) {
        char item[256];
        size_t bytes = strcspn(at, ",");
        if (bytes >= sizeof(item)) {
            return via_error_set(err, -EINVAL, "'%.60s...': longer than a name may be", at);
        }
        memcpy(item, at, bytes);
        item[bytes] = '\0';
        rc = add_item(&copy, item, err);
        at = at[bytes] == ',' ? at + bytes + 1 : NULL;
    }
    if (rc == 0) {
        *rights = copy;
    }
    return rc;
}

bool via_rights_is_owner(uint32_t uid)
{
    return uid == 0 || uid == geteuid();
}

static bool is_in_group(const struct via_rights_user *user, uint32_t id)
{
    for (unsigned i = 0; i < user->groups_count; i++) {
        if (user->groups[i] == id) {
            return true;
        }
    }
    return user->gid == id;
}

void via_rights_user_of(int fd, const struct ucred *peer, struct via_rights_user *ret_user)
{
    socklen_t bytes = sizeof(ret_user->groups);
    ret_user->uid = peer->uid;
    ret_user->gid = peer->gid;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, ret_user->groups, &bytes) != 0) {
        bytes =
            /* too many groups, or a kernel without SO_PEERGROUPS: only the primary group of the
             * process counts */
            0;
    }
    ret_user->groups_count = bytes / (unsigned)sizeof(ret_user->groups[0]);
}

bool via_rights_has_user(const struct via_rights *rights, const struct via_rights_user *user)
{
    if (via_rights_is_owner(user->uid)) {
        return true;
    }
    for (unsigned i = 0; i < rights->count; i++) {
        const struct via_rights_entry *entry = &rights->entries[i];
        if (entry->kind == VIA_RIGHTS_ALL ||
            (entry->kind == VIA_RIGHTS_USER && entry->id == user->uid) ||
            (entry->kind == VIA_RIGHTS_GROUP && is_in_group(user, entry->id))) {
            return true;
        }
    }
    return false;
}

bool via_rights_has(const struct via_rights *rights, int fd, const struct ucred *peer)
{
    struct via_rights_user user;
    if (rights->count == 0) {
        return via_rights_is_owner(peer->uid); /* avoids a system call for the groups */
    }
    via_rights_user_of(fd, peer, &user);
    return via_rights_has_user(rights, &user);
}

/* --- quotas ---------------------------------------------------------------------------------- */

/* Parses a decimal number other than 0, if `scaled` with an optional K, M, G or T, to the end of
 * the text. */
static bool parse_amount(const char *text, bool scaled, uint64_t max, uint64_t *ret_amount)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long amount = strtoull(text, &end, 10);
    const char *unit = *end != '\0' && scaled ? strchr(units, *end) : NULL;
    unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
    end += unit != NULL ? 1 : 0;
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || amount == 0 ||
        amount > max >> shift) {
        return false;
    }
    *ret_amount = (uint64_t)amount << shift;
    return true;
}

static int parse_item(struct via_quota *quota, const char *item, struct via_error *err)
{
    const struct {
        const char *name;
        uint32_t *count;
        uint64_t *bytes;
    } items[] = {{"segments=", &quota->segments, NULL},
                 {"memory=", NULL, &quota->memory_bytes},
                 {"pipes=", &quota->pipes, NULL},
                 {"notes=", &quota->notes, NULL}};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(items); i++) {
        size_t length = strlen(items[i].name);
        bool scaled = items[i].bytes != NULL;
        uint64_t amount;
        if (strncmp(item, items[i].name, length) != 0) {
            continue;
        }
        if (!parse_amount(item + length, scaled, scaled ? UINT64_MAX : UINT32_MAX, &amount)) {
            return via_error_set(err, -EINVAL, "'%.60s': a number from 1 on is expected%s", item,
                                 scaled ? ", with K, M, G or T" : "");
        }
        if (scaled) {
            *items[i].bytes = amount;
        } else {
            *items[i].count = (uint32_t)amount;
        }
        return 0;
    }
    return via_error_set(err, -EINVAL,
                         "'%.60s': segments=N, memory=BYTES, pipes=N and notes=N are "
                         "known",
                         item);
}

int via_quota_parse(struct via_quota *quota, const char *text, struct via_error *err)
{
    struct via_quota copy = *quota;
    int rc = 0;
    for (const char *at = text; rc == 0 && at != NULL;) {
        char item[64];
        size_t bytes = strcspn(at, ",");
        if (bytes >= sizeof(item)) {
            return via_error_set(err, -EINVAL, "'%.60s...': longer than any quota", at);
        }
        memcpy(item, at, bytes);
        item[bytes] = '\0';
        rc = parse_item(&copy, item, err);
        at = at[bytes] == ',' ? at + bytes + 1 : NULL;
    }
    if (rc == 0) {
        *quota = copy;
    }
    return rc;
}
