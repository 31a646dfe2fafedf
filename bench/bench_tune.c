/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Compares the settings that viaduct tune chooses for a link with each fixed choice: the port's
 * stores, each other store of this CPU, and DMA. At each size the tuned setting and a fixed one run
 * in turns; the ratio is the fixed one's speed in parts of the tuned one's, with the interval in
 * which the true median lies in 95 of 100 cases. Fails where a fixed choice is certainly more than
 * 5 % faster.
 *
 *   bench_tune [--pairs N] [LINK PEER]    default: emulated links of classes memory and pex, and a
 *                                         register model of PEX 87xx in this process
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/types.h"
#include "tune/tune.h"

#define TOLERATED 1.05
#define WAIT_NS (10 * VIA_SEC_NS)
#define BATCH_NS (150 * VIA_USEC_NS)
#define BATCH_MAX 512u
#define CHOICES_MAX (VIA_STORES_MAX + 2)

static const uint64_t sizes[] = {64, 256, 1024, 3000, 4096, 12000, 16384, 32768, 65472};

/* A setting for bodies of all sizes. */
struct choice {
    const struct via_store *stores[VIA_STORE_CLASSES]; /* NULL: the port's own */
    uint64_t dma_from;                                 /* 0: never */
    char name[48];
};

static unsigned pairs_wanted = 41;

static _Noreturn void die(const char *what, const char *cause)
{
    fprintf(stderr, "bench_tune: %s: %s\n", what, cause);
    exit(2);
}

static double run(struct via_pio_measure *measure, const struct choice *choice, uint64_t bytes,
                  unsigned count)
{
    static const struct via_pio_way port = {.kind = VIA_PIO_PORT}, dma = {.kind = VIA_PIO_DMA};
    struct via_pio_end *end = &measure->link->ends[0];
    bool by_dma = choice->dma_from != 0 && bytes >= choice->dma_from;
    double ns = 0;
    if (end->config.driver->use_store != NULL) {
        unsigned k = via_store_class(bytes);
        end->config.driver->use_store(end->port, k, choice->stores[k]);
    }
    int rc = via_pio_measure_batch(measure, by_dma ? &dma : &port, bytes, count, &ns);
    if (rc != 0) {
        die(choice->name, strerror(-rc));
    }
    return ns;
}

/* Runs once before the measurement, so that earlier work does not affect it. */
static double run_warm(struct via_pio_measure *measure, const struct choice *choice, uint64_t bytes,
                       unsigned count)
{
    (void)run(measure, choice, bytes, count);
    return run(measure, choice, bytes, count);
}

static struct via_tune_result compare(struct via_pio_measure *measure, const struct choice *tuned,
                                      const struct choice *fixed, uint64_t bytes)
{
    struct via_tune_pairs pairs = {0};
    (void)run(measure, tuned, bytes, 4); /* the warm-up */
    double ns = run(measure, tuned, bytes, 4);
    unsigned count = (unsigned)fmax(2, fmin((double)BATCH_NS / ns, BATCH_MAX));
    while (pairs.count < pairs_wanted) {
        bool fixed_first = pairs.count % 2 != 0;
        double first = run_warm(measure, fixed_first ? fixed : tuned, bytes, count);
        double second = run_warm(measure, fixed_first ? tuned : fixed, bytes, count);
        pairs.ratio[pairs.count++] = fixed_first ? second / first : first / second;
    }
    return via_tune_decide(&pairs, VIA_TUNE_MARGIN);
}

static unsigned list_choices(const struct via_pio_link *link, struct choice *ret_choices)
{
    unsigned count = 0;
    ret_choices[count++] = (struct choice){.name = "the port's stores"};
    for (unsigned i = 0; i < via_stores_count && link->ends[0].config.driver->use_store != NULL;
         i++) {
        if (via_store_is_there(&via_stores[i]) && via_stores[i].bytes >= 16) {
            struct choice *choice = &ret_choices[count++];
            *choice = (struct choice){0};
            for (unsigned k = 0; k < VIA_STORE_CLASSES; k++) {
                choice->stores[k] = &via_stores[i];
            }
            snprintf(choice->name, sizeof(choice->name), "stores %s", via_stores[i].name);
        }
    }
    if (link->has_dma) {
        ret_choices[count++] = (struct choice){.dma_from = 1, .name = "DMA"};
    }
    return count;
}

/* False if a fixed choice is certainly faster by more than the limit. */
static bool check(struct via_pio_measure *measure, const struct choice *tuned)
{
    struct choice choices[CHOICES_MAX];
    unsigned count = list_choices(measure->link, choices);
    bool good = true;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(sizes); i++) {
        struct via_tune_result best = {.median = 0};
        const struct choice *fastest = NULL;
        for (unsigned k = 0; k < count && sizes[i] <= measure->link->window_bytes; k++) {
            struct via_tune_result result = compare(measure, tuned, &choices[k], sizes[i]);
            if (result.median > best.median) {
                best = result;
                fastest = &choices[k];
            }
        }
        if (fastest == NULL) {
            continue;
        }
        /* The best of several may be so by chance, so it is measured once more. */
        best = compare(measure, tuned, fastest, sizes[i]);
        bool fits = best.low <= TOLERATED;
        good &= fits;
        printf("%8llu  %-24s %6.3f  (%.3f to %.3f)%s\n", (unsigned long long)sizes[i],
               fastest->name, best.median, best.low, best.high,
               fits ? "" : "  more than 5 % faster than what tune chose");
        fflush(stdout);
    }
    return good;
}

static bool tune_and_check(const char *name, const char *near, const char *far)
{
    static struct via_pio_link link;
    static struct via_tune tune;
    struct via_pio_measure measure = {.link = &link, .threads = 1};
    struct via_error err = {0};
    memset(&link, 0, sizeof(link));
    memset(&tune, 0, sizeof(tune));
    link.ends[0].text = near;
    link.ends[1].text = far;
    link.ends_count = 2;
    if (via_pio_link_open(&link, WAIT_NS, &err) != 0 ||
        via_pio_measure_begin(&measure, VIA_PIO_ANY_CPU, &err) != 0) {
        die(name, err.text);
    }
    tune.measure = &measure;
    tune.pairs = pairs_wanted;
    if (via_tune_link(&tune, &err) != 0) {
        die(name, err.text);
    }
    struct choice tuned = {.dma_from = tune.dma_bytes_min, .name = "tuned"};
    char text[VIA_STORE_TEXT_BYTES];
    memcpy(tuned.stores, tune.stores, sizeof(tuned.stores));
    via_store_print(tune.stores, text);
    printf("%s: stores %s, DMA from %u bytes on (0: never)\n", name, text, tune.dma_bytes_min);
    printf("%8s  %-24s %6s\n", "bytes", "fastest fixed choice", "speed");
    bool good = check(&measure, &tuned);
    via_pio_measure_end(&measure);
    via_pio_link_close(&link);
    return good;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/viaduct-bench-XXXXXX", ends[2][96];
    static const char *const classes[] = {"memory", "pex"};
    bool good = true;
    if (argc > 2 && strcmp(argv[1], "--pairs") == 0) {
        pairs_wanted = (unsigned)fmax(11, fmin(atoi(argv[2]), VIA_TUNE_PAIRS_MAX));
        argc -= 2;
        argv += 2;
    }
    if (argc == 3) {
        return tune_and_check(argv[1], argv[1], argv[2]) ? 0 : 1;
    }
    if (mkdtemp(folder) == NULL) {
        die(folder, "mkdtemp");
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(classes); i++) {
        for (unsigned side = 0; side < 2; side++) {
            snprintf(ends[side], sizeof(ends[side]), "emu:%s/%s,side=%u,like=%s", folder,
                     classes[i], side, classes[i]);
        }
        char name[48];
        snprintf(name, sizeof(name), "emulated, %s", classes[i]);
        good &= tune_and_check(name, ends[0], ends[1]);
    }
    good &= tune_and_check("register model of PEX 87xx", "pex:model:tune,side=virtual",
                           "pex:model:tune,side=link");
    rmdir(folder);
    return good ? 0 : 1;
}
