/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Part of viaduct and oshrun in builds with ASan: without detect_leaks=1 in ASAN_OPTIONS, these
 * commands do not look for leaks as they end. The search, and what ASan prepares for it at the
 * start, take half of the CPU time of a short command, and tests start thousands. `make
 * test-stacks` sets the option; daemons, libraries and tests always look.
 */
__attribute__((visibility("default"))) const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}
