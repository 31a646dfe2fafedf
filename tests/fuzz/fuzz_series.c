/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Files that viaduct perf device --compare reads: accepted files are compared and drawn, refused
 * files get a reason with the line. The first byte is the number of files. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/perf_series.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct via_perf_set set;
    struct input input = {data, bytes};
    unsigned files = input_byte(&input) % 3 + 1;
    struct via_error err = {0};
    set.series_count = 0;
    for (unsigned i = 0; i < files; i++) {
        size_t part = i + 1 < files ? input.bytes / 2 : input.bytes;
        /* A copy of exact size, so that the sanitizer finds reads beyond its end. */
        char *copy = malloc(part + 1);
        require(copy != NULL);
        memcpy(copy + 1, input.data, part);
        int rc = via_perf_set_read(&set, "F", i == 1 ? NULL : "label", copy + 1, part, &err);
        free(copy);
        if (rc != 0) {
            require(strncmp(err.text, "F:", 2) == 0);
            return 0;
        }
        input.data += i + 1 < files ? 0 : part; /* the same file again: runs of one label */
    }
    via_perf_set_merge(&set);
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);
    require(out != NULL);
    (void)via_perf_set_compare(&set, out, out);
    rewind(out);
    via_perf_set_draw(&set, out);
    fclose(out);
    require(strstr(text, "=\"nan") == NULL && strstr(text, "=\"-nan") == NULL &&
            strstr(text, "inf\"") == NULL);
    free(text);
    return 0;
}
