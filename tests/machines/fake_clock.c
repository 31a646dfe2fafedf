/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A preload library: shifts the wall clock by the seconds in the file $FAKE_CLOCK, which may
 * change. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long offset_s(void)
{
    const char *path = getenv("FAKE_CLOCK");
    char text[32] = "";
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)!read(fd, text, sizeof(text) - 1);
        close(fd);
    }
    return atol(text);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t clock, struct timespec * now);
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    }
    int rc = real(clock, now);
    if (rc == 0 && clock == CLOCK_REALTIME) {
        now->tv_sec += offset_s();
    }
    return rc;
}
