/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A fuzzer without libFuzzer: runs the files of a folder, then inputs derived from them by a few
 * random changes. So every test run builds and runs the fuzzers, and repeats inputs that have found
 * bugs.
 *
 *   fuzz_NAME FOLDER [COUNT [FIRST]]   COUNT made inputs, numbers from FIRST on
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/types.h"
#include "tests/fuzz/input.h"

#define INPUT_BYTES_MAX 8192u
#define FILES_MAX 64u
#define COUNT 300u

static struct {
    unsigned char data[INPUT_BYTES_MAX];
    size_t bytes;
} files[FILES_MAX];
static unsigned files_count;
static char now[600]; /* the number of the input, for the report of a failure */

static void died(int signal)
{
    (void)!write(STDERR_FILENO, now, strlen(now));
    raise(signal); /* the handler is reset */
}

static void run(const unsigned char *data, size_t bytes)
{
    unsigned char *copy = malloc(bytes != 0 ? bytes : 1); /* of that size, for the sanitizer */
    require(copy != NULL);
    if (bytes != 0) {
        memcpy(copy, data, bytes);
    }
    (void)LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static void run_file(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    require(file != NULL && files_count < FILES_MAX);
    size_t bytes = fread(files[files_count].data, 1, INPUT_BYTES_MAX, file);
    fclose(file);
    files[files_count].bytes = bytes;
    snprintf(now, sizeof(now), "the input is %s\n", path);
    run(files[files_count++].data, bytes);
}

/* Changes, cuts out, doubles or appends some bytes, a few times. */
static size_t change(struct via_rng *rng, unsigned char *data, size_t bytes)
{
    for (uint64_t i = via_rng_below(rng, 8); i != 0; i--) {
        size_t at = via_rng_below(rng, bytes + 1);
        size_t some = via_rng_below(rng, 1 + via_min(bytes - at, (size_t)32));
        switch (via_rng_below(rng, 4)) {
        case 0:
            for (size_t k = 0; k < some; k++) {
                data[at + k] = (unsigned char)via_rng_next(rng);
            }
            break;
        case 1:
            memmove(data + at, data + at + some, bytes - at - some);
            bytes -= some;
            break;
        case 2:
            some = via_min(some, INPUT_BYTES_MAX - bytes);
            memmove(data + at + some, data + at, bytes - at);
            bytes += some;
            break;
        default:
            for (size_t k = via_rng_below(rng, 64); k != 0 && bytes < INPUT_BYTES_MAX; k--) {
                data[bytes++] = (unsigned char)via_rng_next(rng);
            }
        }
    }
    return bytes;
}

static void run_made(uint64_t number)
{
    static unsigned char data[INPUT_BYTES_MAX];
    struct via_rng rng;
    size_t bytes;
    via_rng_init(&rng, number);
    if (files_count != 0 && via_rng_chance(&rng, 3, 4)) {
        uint64_t index = via_rng_below(&rng, files_count);
        bytes = files[index].bytes;
        memcpy(data, files[index].data, bytes);
    } else {
        bytes = via_rng_below(&rng, via_rng_chance(&rng, 1, 2) ? 64 : 2048);
        for (size_t i = 0; i < bytes; i++) {
            data[i] = (unsigned char)via_rng_next(&rng);
        }
    }
    bytes = change(&rng, data, bytes);
    snprintf(now, sizeof(now), "the input is number %llu\n", (unsigned long long)number);
    run(data, bytes);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER [COUNT [FIRST]]\n", argv[0]);
        return 2;
    }
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : COUNT;
    uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    struct sigaction action = {.sa_handler = died, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGABRT, &action, NULL);
    struct dirent **names;
    int names_count = scandir(argv[1], &names, NULL, alphasort);
    for (int i = 0; i < names_count; i++) {
        if (names[i]->d_name[0] != '.') {
            run_file(argv[1], names[i]->d_name);
        }
        free(names[i]);
    }
    if (names_count >= 0) {
        free(names);
    }
    for (uint64_t i = 0; i < count; i++) {
        run_made(first + i);
    }
    printf("%u files and %llu made inputs\n", files_count, (unsigned long long)count);
    return 0;
}
