/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/perf_series.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEAD \
    "direction,bytes,rounds,median_ns,quartile1_ns,quartile3_ns,low_ns,high_ns,way,target\n"
#define NUMBERS 7u /* numbers in a row, after its direction */
#define BYTES_MAX (UINT64_C(1) << 30)
#define TIME_NS_MAX 1e15

static const char *const direction_names[VIA_PERF_DIRECTIONS] = {"to host", "to device", "loop"};

const char *via_perf_direction_name(enum via_perf_direction direction)
{
    return direction_names[direction];
}

/* --- points --- */

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* The largest k for which the true median lies below the k-th smallest of `rounds` times with a
 * probability of at most 1.25 %: the probability that fewer than k of `rounds` tosses of a coin are
 * heads. */
static unsigned interval_rank(unsigned rounds)
{
    double chance = ldexp(1, -(int)rounds), sum = 0;
    unsigned k = 0;
    for (; k < rounds / 2; k++) {
        sum += chance;
        if (sum > 0.0125) {
            break;
        }
        chance = chance * (rounds - k) / (k + 1);
    }
    return k;
}

void via_perf_point_make(uint64_t *ns, unsigned rounds, struct via_perf_point *point)
{
    qsort(ns, rounds, sizeof(ns[0]), by_value);
    unsigned rank = via_max(interval_rank(rounds), 1u);
    point->rounds = rounds;
    /* A clock with coarse steps may measure 0. */
    point->median_ns = (double)via_max(ns[rounds / 2], UINT64_C(1));
    point->quartile1_ns = (double)via_max(ns[rounds / 4], UINT64_C(1));
    point->quartile3_ns = (double)via_max(ns[rounds * 3 / 4], UINT64_C(1));
    point->low_ns = (double)via_max(ns[rank - 1], UINT64_C(1));
    point->high_ns = (double)via_max(ns[rounds - rank], UINT64_C(1));
}

/* --- series --- */

int via_perf_set_add(struct via_perf_set *set, const char *label,
                     struct via_perf_series **ret_series)
{
    if (set->series_count == VIA_PERF_SERIES_MAX) {
        return -ENOSPC;
    }
    struct via_perf_series *series = &set->series[set->series_count++];
    series->points_count = 0;
    series->is_named = false;
    snprintf(series->label, sizeof(series->label), "%s", label);
    for (char *at = series->label; *at != '\0'; at++) {
        *at = *at >= ' ' && *at < 0x7f ? *at : '?';
    }
    *ret_series = series;
    return 0;
}

static const struct via_perf_point *find(const struct via_perf_series *series,
                                         enum via_perf_direction direction, uint64_t bytes)
{
    for (unsigned i = 0; i < series->points_count; i++) {
        if (series->points[i].direction == direction && series->points[i].bytes == bytes) {
            return &series->points[i];
        }
    }
    return NULL;
}

int via_perf_series_add(struct via_perf_series *series, const struct via_perf_point *point)
{
    if (find(series, point->direction, point->bytes) != NULL) {
        return -EEXIST;
    }
    if (series->points_count == VIA_PERF_POINTS_MAX) {
        return -ENOSPC;
    }
    series->points[series->points_count++] = *point;
    return 0;
}

/* --- the file --- */

void via_perf_series_write_head(FILE *out)
{
    fputs(HEAD, out);
}

void via_perf_series_write(FILE *out, const char *way, const char *target,
                           const struct via_perf_point *point)
{
    fprintf(out, "%s,%llu,%u,%.0f,%.0f,%.0f,%.0f,%.0f,%s,%s\n", direction_names[point->direction],
            (unsigned long long)point->bytes, point->rounds, point->median_ns, point->quartile1_ns,
            point->quartile3_ns, point->low_ns, point->high_ns, way, target);
}

struct reader {
    struct via_perf_set *set;
    const char *name, *label;
    unsigned first; /* index of the first series of this file */
    unsigned line;
    struct via_error *err;
    char text[512]; /* the present line */
    char target[256];
};

#define COMPLAIN(reader, ...) (via_error_set((reader)->err, -EINVAL, __VA_ARGS__), complain(reader))

static int complain(struct reader *reader)
{
    via_error_prefix(reader->err, "%s:%u: ", reader->name, reader->line);
    return -EINVAL;
}

/* Takes the word up to the next comma, and moves *at behind that. NULL: no comma. */
static char *take_word(char **at)
{
    char *word = *at, *comma = strchr(word, ',');
    if (comma == NULL) {
        return NULL;
    }
    *comma = '\0';
    *at = comma + 1;
    return word;
}

static int take_number(const char *word, double max, double *ret_number)
{
    char *end;
    if (word[0] < '0' || word[0] > '9') {
        return -EINVAL;
    }
    *ret_number = strtod(word, &end);
    return *end == '\0' && *ret_number >= 1 && *ret_number <= max ? 0 : -EINVAL;
}

static int take_point(struct reader *reader, char **at, struct via_perf_point *ret_point)
{
    double number[NUMBERS];
    const char *direction = take_word(at);
    ret_point->direction = VIA_PERF_DIRECTIONS;
    for (unsigned i = 0; direction != NULL && i < VIA_PERF_DIRECTIONS; i++) {
        if (strcmp(direction, direction_names[i]) == 0) {
            ret_point->direction = (enum via_perf_direction)i;
        }
    }
    if (ret_point->direction == VIA_PERF_DIRECTIONS) {
        return COMPLAIN(reader, "'%.40s': not 'to host', 'to device' or 'loop'", reader->text);
    }
    for (unsigned i = 0; i < NUMBERS; i++) {
        const char *word = take_word(at);
        double max = i == 0 ? (double)BYTES_MAX : i == 1 ? 1e6 : TIME_NS_MAX;
        if (word == NULL || take_number(word, max, &number[i]) != 0) {
            return COMPLAIN(reader, "column %u: '%.40s': not a number from 1 to %.0f", i + 2,
                            word != NULL ? word : "", max);
        }
    }
    ret_point->bytes = (uint64_t)number[0];
    ret_point->rounds = (unsigned)number[1];
    ret_point->median_ns = number[2];
    ret_point->quartile1_ns = number[3];
    ret_point->quartile3_ns = number[4];
    ret_point->low_ns = number[5];
    ret_point->high_ns = number[6];
    if (number[3] > number[2] || number[2] > number[4] || number[5] > number[2] ||
        number[2] > number[6]) {
        return COMPLAIN(reader, "the median is not between its quartiles and its bounds");
    }
    return 0;
}

/* Finds or adds the series of this file and target. All rows of one target are consecutive in a
 * file. */
static int take_series(struct reader *reader, const char *way, const char *target,
                       struct via_perf_series **ret_series)
{
    char key[sizeof(reader->target)], label[VIA_PERF_LABEL_BYTES];
    struct via_perf_set *set = reader->set;
    snprintf(key, sizeof(key), "%s (%s)", target, way);
    if (set->series_count != reader->first && strcmp(key, reader->target) == 0) {
        *ret_series = &set->series[set->series_count - 1];
        return 0;
    }
    if (reader->label != NULL && set->series_count != reader->first) {
        return COMPLAIN(reader, "a second target, and '%s=' names one", reader->label);
    }
    memcpy(reader->target, key, sizeof(key));
    snprintf(label, sizeof(label), "%.50s: %.70s", reader->name, key);
    if (via_perf_set_add(set, reader->label != NULL ? reader->label : label, ret_series) != 0) {
        return COMPLAIN(reader, "more than %u targets in all", VIA_PERF_SERIES_MAX);
    }
    (*ret_series)->is_named = reader->label != NULL;
    return 0;
}

static int take_row(struct reader *reader)
{
    struct via_perf_point point = {0};
    struct via_perf_series *series = NULL;
    char *at = reader->text;
    int rc = take_point(reader, &at, &point);
    if (rc != 0) {
        return rc;
    }
    const char *way = take_word(&at);
    if (way == NULL || at[0] == '\0') {
        return COMPLAIN(reader, "way or target is missing");
    }
    rc = take_series(reader, way, at, &series);
    if (rc != 0) {
        return rc;
    }
    rc = via_perf_series_add(series, &point);
    return rc == -EEXIST
               ? COMPLAIN(reader, "%s, %llu bytes: a second row of this target",
                          direction_names[point.direction], (unsigned long long)point.bytes)
           : rc != 0 ? COMPLAIN(reader, "more than %u rows of one target", VIA_PERF_POINTS_MAX)
                     : 0;
}

int via_perf_set_read(struct via_perf_set *set, const char *name, const char *label,
                      const char *text, size_t bytes, struct via_error *err)
{
    struct reader reader = {
        .set = set, .name = name, .label = label, .first = set->series_count, .err = err};
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - (text + at)) : bytes - at;
        reader.line++;
        if (length >= sizeof(reader.text) || memchr(text + at, '\0', length) != NULL) {
            return COMPLAIN(&reader, "longer than %zu bytes, or with a byte 0",
                            sizeof(reader.text) - 1);
        }
        memcpy(reader.text, text + at, length);
        reader.text[length] = '\0';
        at += length + 1;
        if (reader.line > 1) {
            rc = take_row(&reader);
        } else if (strncmp(HEAD, reader.text, sizeof(HEAD) - 2) != 0 ||
                   length != sizeof(HEAD) - 2) {
            return COMPLAIN(&reader, "not the first line of 'viaduct perf device --csv'");
        }
    }
    if (rc == 0 && set->series_count == reader.first) {
        reader.line = via_max(reader.line, 1u);
        return COMPLAIN(&reader, "no rows");
    }
    return rc;
}

/* --- runs of one name --- */

static bool are_one(const struct via_perf_series *a, const struct via_perf_series *b)
{
    return a->is_named && b->is_named && strcmp(a->label, b->label) == 0;
}

static int by_time(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* Merges the points of this direction and size of all series with the label of
 * set->series[first]. */
static void merge_point(const struct via_perf_set *set, unsigned first,
                        struct via_perf_point *point)
{
    double medians[VIA_PERF_SERIES_MAX] = {0};
    unsigned count = 0;
    for (unsigned i = first; i < set->series_count; i++) {
        const struct via_perf_point *one = find(&set->series[i], point->direction, point->bytes);
        if (one == NULL || (i != first && !are_one(&set->series[first], &set->series[i]))) {
            continue;
        }
        medians[count++] = one->median_ns;
        point->rounds += i != first ? one->rounds : 0;
        point->quartile1_ns = fmin(point->quartile1_ns, one->quartile1_ns);
        point->quartile3_ns = fmax(point->quartile3_ns, one->quartile3_ns);
        point->low_ns = fmin(point->low_ns, one->low_ns);
        point->high_ns = fmax(point->high_ns, one->high_ns);
    }
    qsort(medians, count, sizeof(medians[0]), by_time);
    point->median_ns =
        count % 2 != 0 ? medians[count / 2] : (medians[count / 2 - 1] + medians[count / 2]) / 2;
}

void via_perf_set_merge(struct via_perf_set *set)
{
    for (unsigned first = 0; first < set->series_count; first++) {
        struct via_perf_series *series = &set->series[first];
        for (unsigned k = 0; k < series->points_count; k++) {
            struct via_perf_point merged = series->points[k];
            merge_point(set, first, &merged);
            series->points[k] = merged;
        }
        unsigned kept = first + 1;
        for (unsigned i = first + 1; i < set->series_count; i++) {
            if (!are_one(series, &set->series[i])) {
                memmove(&set->series[kept++], &set->series[i], sizeof(set->series[i]));
            }
        }
        set->series_count = kept;
    }
}

/* --- comparison --- */

static double rate(uint64_t bytes, double ns)
{
    return 1e3 * (double)bytes / ns;
}

static void print_pair(const struct via_perf_point *base, const struct via_perf_point *other,
                       FILE *out)
{
    fprintf(out, "  %9.1f [%9.1f, %9.1f]  %7.3f [%6.3f, %6.3f]",
            rate(other->bytes, other->median_ns), rate(other->bytes, other->high_ns),
            rate(other->bytes, other->low_ns), base->median_ns / other->median_ns,
            base->low_ns / other->high_ns, base->high_ns / other->low_ns);
}

static void print_base(const struct via_perf_point *base, FILE *out)
{
    fprintf(out, "%10llu  %9.1f [%9.1f, %9.1f]", (unsigned long long)base->bytes,
            rate(base->bytes, base->median_ns), rate(base->bytes, base->high_ns),
            rate(base->bytes, base->low_ns));
}

static unsigned compare_size(const struct via_perf_set *set, const struct via_perf_point *base,
                             FILE *out, FILE *csv)
{
    unsigned pairs = 0;
    print_base(base, out);
    for (unsigned i = 1; i < set->series_count; i++) {
        const struct via_perf_point *other = find(&set->series[i], base->direction, base->bytes);
        if (other == NULL) {
            fprintf(out, "  %59s", "-");
            continue;
        }
        pairs++;
        print_pair(base, other, out);
        if (csv != NULL) {
            fprintf(csv, "%s,%llu,%.2f,%.2f,%.4f,%.4f,%.4f,%u,%s\n",
                    direction_names[base->direction], (unsigned long long)base->bytes,
                    rate(base->bytes, base->median_ns), rate(base->bytes, other->median_ns),
                    base->median_ns / other->median_ns, base->low_ns / other->high_ns,
                    base->high_ns / other->low_ns, i + 1, set->series[i].label);
        }
    }
    fputc('\n', out);
    return pairs;
}

/* True if the first series and another one share a size in this direction. */
static bool has_pairs(const struct via_perf_set *set, enum via_perf_direction direction)
{
    const struct via_perf_series *base = &set->series[0];
    for (unsigned k = 0; k < base->points_count; k++) {
        for (unsigned i = 1; i < set->series_count; i++) {
            if (base->points[k].direction == direction &&
                find(&set->series[i], direction, base->points[k].bytes) != NULL) {
                return true;
            }
        }
    }
    return false;
}

unsigned via_perf_set_compare(const struct via_perf_set *set, FILE *out, FILE *csv)
{
    unsigned pairs = 0;
    for (unsigned i = 0; i < set->series_count; i++) {
        fprintf(out, "%u = %s\n", i + 1, set->series[i].label);
    }
    if (csv != NULL) {
        fputs("direction,bytes,first_mb_per_second,other_mb_per_second,ratio,ratio_low,ratio_high,"
              "other_number,other\n",
              csv);
    }
    for (unsigned direction = 0; direction < VIA_PERF_DIRECTIONS; direction++) {
        if (!has_pairs(set, (enum via_perf_direction)direction)) {
            continue;
        }
        fprintf(out, "%s, MB/s\n%10s  %-32s", direction_names[direction], "bytes", "1 [interval]");
        for (unsigned i = 1; i < set->series_count; i++) {
            fprintf(out, "  %u %-32s %u / 1 %-18s", i + 1, "[interval]", i + 1, "[interval]");
        }
        fputc('\n', out);
        const struct via_perf_series *base = &set->series[0];
        for (unsigned k = 0; k < base->points_count; k++) {
            if (base->points[k].direction == direction) {
                pairs += compare_size(set, &base->points[k], out, csv);
            }
        }
    }
    fputs("Intervals: 97.5 % of each median, so at least 95 % of a ratio. They include the "
          "scatter within a run, but\ndifferences between runs, power-ons or slots only if several "
          "runs have one label.\n",
          out);
    return pairs;
}
