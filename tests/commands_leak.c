/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Part of viaduct and oshrun in builds with ASan: without detect_leaks=1 in ASAN_OPTIONS, these
 * commands do not look for leaks as they end. The search takes a third of the CPU time of a short
 * command, and tests start thousands. `make test-stacks` sets the option; daemons, libraries and
 * tests always look.
 */
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
    const char *options = getenv("ASAN_OPTIONS");
    return options == NULL || strstr(options, "detect_leaks=1") == NULL;
}
