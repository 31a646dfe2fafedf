/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Rows of viaduct perf device: their intervals, their file, and comparisons. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "cli/perf_series.h"

#define HEAD \
    "direction,bytes,rounds,median_ns,quartile1_ns,quartile3_ns,low_ns,high_ns,way,target\n"
#define ROW(bytes, median) "to host," bytes ",31," median ",100,900,200,800,messages,device A\n"

static struct via_perf_set set;

static void the_interval_of_a_median_is_between_two_times(void **state)
{
    /* From tables of the binomial distribution: 97.5 %, so 1.25 % on either side. */
    static const struct {
        unsigned rounds, low, high;
    } known[] = {{7, 1, 7}, {10, 2, 9}, {31, 9, 23}, {64, 23, 42}};
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(known); i++) {
        uint64_t ns[64];
        struct via_perf_point point = {0};
        for (unsigned k = 0; k < known[i].rounds; k++) {
            ns[k] = known[i].rounds - k; /* 1 to rounds, in reverse order */
        }
        via_perf_point_make(ns, known[i].rounds, &point);
        assert_int_equal(point.low_ns, known[i].low);
        assert_int_equal(point.high_ns, known[i].high);
    }
}

/* For times with a long tail, the true median is outside of the interval no more often than
 * promised. */
static void the_interval_contains_the_median_as_often_as_promised(void **state)
{
    struct via_rng rng;
    unsigned outside = 0;
    (void)state;
    via_rng_init(&rng, 19);
    for (unsigned run = 0; run < 20000; run++) {
        uint64_t ns[31];
        struct via_perf_point point = {0};
        for (unsigned k = 0; k < 31; k++) {
            uint64_t even = via_rng_below(&rng, 2001); /* median 1000 */
            ns[k] = even > 1000 ? 1000 + (even - 1000) * (even - 1000) : even;
        }
        via_perf_point_make(ns, 31, &point);
        outside += point.low_ns > 1000 || point.high_ns < 1000;
    }
    assert_true(outside <= 500); /* 2.5 % */
    assert_true(outside >= 100); /* and the interval is not too wide */
}

static void read_good(const char *label, const char *text)
{
    struct via_error err = {0};
    if (via_perf_set_read(&set, "F", label, text, strlen(text), &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static char *compared(unsigned *ret_pairs)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    *ret_pairs = via_perf_set_compare(&set, out, NULL);
    fclose(out);
    return text;
}

static void series_are_compared_with_the_first(void **state)
{
    unsigned pairs;
    (void)state;
    set.series_count = 0;
    read_good("near", HEAD ROW("4096", "400") ROW("8192", "400"));
    read_good(NULL, HEAD ROW("4096", "800") ROW("16384", "400"));
    char *text = compared(&pairs);
    assert_int_equal(pairs, 1);
    assert_non_null(strstr(text, "1 = near\n2 = F: device A (messages)\n"));
    /* 4096 bytes in 800 ns are 5120 MB/s, half as fast, between 200/800 and 800/200. */
    assert_non_null(strstr(text, "5120.0 [   5120.0,   20480.0]    0.500 [ 0.250,  4.000]"));
    free(text);
}

static void runs_of_one_label_are_one_and_their_interval_spans_all(void **state)
{
    (void)state;
    set.series_count = 0;
    read_good("x", HEAD "loop,8,31,400,390,410,395,405,w,t\n");
    read_good("y", HEAD "loop,8,31,500,390,510,395,505,w,t\n");
    read_good("x", HEAD "loop,8,31,300,290,310,295,305,w,t\n");
    read_good("x", HEAD "loop,8,31,900,890,910,895,905,w,t\n");
    via_perf_set_merge(&set);
    assert_int_equal(set.series_count, 2);
    assert_string_equal(set.series[0].label, "x");
    assert_string_equal(set.series[1].label, "y");
    const struct via_perf_point *point = &set.series[0].points[0];
    assert_int_equal(point->median_ns, 400);
    assert_int_equal(point->low_ns, 295);
    assert_int_equal(point->high_ns, 905);
    assert_int_equal(point->rounds, 93);
    assert_int_equal(set.series[1].points[0].median_ns, 500);
}

static const struct {
    const char *text, *complaint;
} bad[] = {
    {"", "F:1: no rows"},
    {"a,b\n", "F:1: not the first line of 'viaduct perf device --csv'"},
    {HEAD, "F:1: no rows"},
    {HEAD "to hell,4,31,1,1,1,1,1,w,t\n", "F:2: 'to hell': not 'to host', 'to device' or 'loop'"},
    {HEAD "loop,0,31,1,1,1,1,1,w,t\n", "F:2: column 2: '0': not a number from 1 to 1073741824"},
    {HEAD "loop,4,31,nan,1,1,1,1,w,t\n",
     "F:2: column 4: 'nan': not a number from 1 to 1000000000000000"},
    {HEAD "loop,4,31,9e99,1,1,1,1,w,t\n",
     "F:2: column 4: '9e99': not a number from 1 to 1000000000000000"},
    {HEAD "loop,4\n", "F:2: column 2: '': not a number from 1 to 1073741824"},
    {HEAD "loop,4,31,5,1,2,1,9,w,t\n", "F:2: the median is not between its quartiles and its "
                                       "bounds"},
    {HEAD "loop,4,31,5,1,9,1,9,w\n", "F:2: way or target is missing"},
    {HEAD "loop,4,31,5,1,9,1,9,w,t\nloop,4,31,5,1,9,1,9,w,t\n",
     "F:3: loop, 4 bytes: a second row of this target"},
};

static void an_invalid_file_is_refused_with_the_line(void **state)
{
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(bad); i++) {
        struct via_error err = {0};
        set.series_count = 0;
        assert_int_equal(via_perf_set_read(&set, "F", NULL, bad[i].text, strlen(bad[i].text), &err),
                         -EINVAL);
        assert_string_equal(err.text, bad[i].complaint);
    }
    struct via_error err = {0};
    set.series_count = 0;
    assert_int_equal(via_perf_set_read(&set, "F", NULL, HEAD "a\0b\n", sizeof(HEAD) + 3, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "F:2: longer than 511 bytes, or with a byte 0"));
}

static void a_picture_contains_only_valid_text(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    (void)state;
    set.series_count = 0;
    read_good("<a>&\x01", HEAD ROW("4096", "400"));
    read_good("b", HEAD ROW("4096", "400"));
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    via_perf_set_draw(&set, out);
    fclose(out);
    assert_non_null(strstr(text, "1 = &lt;a&gt;&amp;?</text>"));
    assert_non_null(strstr(text, "rate in parts of the first"));
    assert_non_null(strstr(text, "</svg>"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_interval_of_a_median_is_between_two_times),
        cmocka_unit_test(the_interval_contains_the_median_as_often_as_promised),
        cmocka_unit_test(series_are_compared_with_the_first),
        cmocka_unit_test(runs_of_one_label_are_one_and_their_interval_spans_all),
        cmocka_unit_test(an_invalid_file_is_refused_with_the_line),
        cmocka_unit_test(a_picture_contains_only_valid_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
