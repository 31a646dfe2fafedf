/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A folder in place of sysfs and devfs, with a PCI function in it. */
#ifndef VIA_TESTS_PCI_FOLDER_H
#define VIA_TESTS_PCI_FOLDER_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE "/bus/pci/devices/0000:03:00.0"

/* Makes a directory, or a link to `target`, and the directories above. */
static inline void make(const char *folder, const char *name, const char *target)
{
    char path[256];
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(path, sizeof(path), "%s%.*s", folder, (int)(slash - name), name);
        (void)mkdir(path, 0700);
    }
    snprintf(path, sizeof(path), "%s%s", folder, name);
    (void)unlink(path);
    if (target == NULL) {
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    } else {
        assert_int_equal(symlink(target, path), 0);
    }
}

#endif
