/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/find.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAEMON "viaductd"
#define SIMULATOR "viaduct-sim"
#define PRELOAD "libviaduct-sockets.so"

static bool is_file(const char *path, int mode)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, mode) == 0;
}

/* The folder of this program; "": unknown. */
static struct via_find_path own_folder(void)
{
    struct via_find_path own;
    ssize_t bytes = readlink("/proc/self/exe", own.text, sizeof(own.text) - 1);
    own.text[bytes > 0 ? bytes : 0] = '\0';
    char *slash = strrchr(own.text, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    return own;
}

static bool join(struct via_find_path *ret, const char *folder, const char *between,
                 const char *name)
{
    int bytes = snprintf(ret->text, sizeof(ret->text), "%s/%s%s", folder, between, name);
    return bytes > 0 && (size_t)bytes < sizeof(ret->text);
}

int via_find_in_path(const char *name, struct via_find_path *ret_path)
{
    const char *at = getenv("PATH");
    while (at != NULL && *at != '\0') {
        size_t bytes = strcspn(at, ":");
        int written =
            snprintf(ret_path->text, sizeof(ret_path->text), "%.*s/%s", (int)bytes, at, name);
        if (bytes > 0 && (size_t)written < sizeof(ret_path->text) &&
            is_file(ret_path->text, X_OK)) {
            return 0;
        }
        at += bytes + (at[bytes] == ':' ? 1 : 0);
    }
    return -ENOENT;
}

static int find_command(const char *name, struct via_find_path *ret_path, struct via_error *err)
{
    struct via_find_path own = own_folder();
    if ((join(ret_path, own.text, "", name) && is_file(ret_path->text, X_OK)) ||
        via_find_in_path(name, ret_path) == 0) {
        return 0;
    }
    return via_error_set(err, -ENOENT, "%s: find: neither in %.200s nor in $PATH", name, own.text);
}

int via_find_daemon(struct via_find_path *ret_path, struct via_error *err)
{
    return find_command(DAEMON, ret_path, err);
}

int via_find_ip(struct via_find_path *ret_path, struct via_error *err)
{
    return find_command("viaduct-ip", ret_path, err);
}

int via_find_oshrun(struct via_find_path *ret_path, struct via_error *err)
{
    return find_command("oshrun", ret_path, err);
}

int via_find_simulator(struct via_find_path *ret_path, struct via_error *err)
{
    static const char *const between[] = {"", "../libexec/viaduct/"};
    struct via_find_path own = own_folder();
    for (size_t i = 0; i < VIA_ARRAY_COUNT(between); i++) {
        if (join(ret_path, own.text, between[i], SIMULATOR) && is_file(ret_path->text, X_OK)) {
            return 0;
        }
    }
    if (via_find_in_path(SIMULATOR, ret_path) == 0) {
        return 0;
    }
    return via_error_set(err, -ENOENT,
                         "%s: find: neither in %.200s, nor in its ../libexec/viaduct, nor in $PATH",
                         SIMULATOR, own.text);
}

int via_find_preload(struct via_find_path *ret_path, struct via_error *err)
{
    static const char *const between[] = {"", "../lib/", VIADUCT_BINDIR_TO_LIBDIR "/"};
    struct via_find_path own = own_folder();
    struct via_find_path found;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(between); i++) {
        if (join(&found, own.text, between[i], PRELOAD) && is_file(found.text, R_OK) &&
            realpath(found.text, ret_path->text) != NULL) {
            return 0;
        }
    }
    bool other = strcmp(VIADUCT_BINDIR_TO_LIBDIR, "../lib") != 0;
    return via_error_set(err, -ENOENT, "%s: find: neither in %.200s nor in its ../lib%s%s", PRELOAD,
                         own.text, other ? " or " : "", other ? VIADUCT_BINDIR_TO_LIBDIR : "");
}

int via_find_shared(const char *name, struct via_find_path *ret_path, struct via_error *err)
{
    struct via_find_path own = own_folder();
    if (join(ret_path, own.text, "../share/viaduct/", name) && is_file(ret_path->text, R_OK)) {
        return 0;
    }
    return via_error_set(err, -ENOENT, "%s: find: not in ../share/viaduct of %.200s", name,
                         own.text);
}
