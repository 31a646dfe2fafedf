/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Files of plans: whatever the bytes are, what is taken is in range and can be printed, and what is
 * not is explained. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sim/plan/diff.h"
#include "tests/fuzz/input.h"

static void check_text(const char *text)
{
    require(strlen(text) < PLAN_JSON_TEXT_BYTES);
    for (; *text != '\0'; text++) {
        require(*text >= ' ' && *text <= '~');
    }
}

static void check_number(double number)
{
    require(isnan(number) || (number >= 0 && number <= 1e18));
}

static void check(const struct plan_summary *plan)
{
    require(plan->rows_count <= PLAN_DIFF_ROWS_MAX);
    check_text(plan->topology);
    check_text(plan->board);
    check_number(plan->hosts);
    check_number(plan->bound);
    for (unsigned i = 0; i < plan->rows_count; i++) {
        check_text(plan->rows[i].limit);
        check_number(plan->rows[i].p99);
        check_number(plan->rows[i].host);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct plan_json json;
    static struct plan_summary plan;
    struct via_error err = {0};
    int rc = plan_json_parse("F", (const char *)data, bytes, &json, &err);
    require(json.values_count <= PLAN_JSON_VALUES_MAX);
    if (rc == 0) {
        rc = plan_summary_read("F", &json, &plan, &err);
    }
    if (rc != 0) {
        require(strncmp(err.text, "F:", 2) == 0);
    } else {
        FILE *out = fopen("/dev/null", "we");
        require(out != NULL);
        check(&plan);
        plan_diff_print(&plan, &plan, out);
        fclose(out);
    }
    plan_json_fini(&json);
    return 0;
}
