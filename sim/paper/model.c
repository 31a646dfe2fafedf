/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/paper/model.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/types.h"
#include "progress/progress.h"
#include "sim/memory.h"
#include "sim/paper/command.h"
#include "sim/paper/idle.h"
#include "sim/paper/ring.h"
#include "sim/paper/sdp.h"
#include "sim/paper/stream.h"

#define WORDS_MAX 16u
#define BYTES_MAX (UINT64_C(1) << 30)

/* --- kinds of scenarios ----------------------------------------------------------------------- */

/* By name, and as bits: 1 << place. "plan" is SIM_MODEL_PLAN. */
static const char *const kinds[] = {"stream", "ring", "copy", "sdp", "stores", "chain", "plan"};
enum { STREAM = 1, RING = 2, COPY = 4, SDP = 8, STORES = 16, CHAIN = 32 };
_Static_assert(SIM_MODEL_PLAN == 64, "the place of its name");
#define ANY (STREAM | RING | COPY | SDP | STORES | CHAIN | SIM_MODEL_PLAN)

/* --- scenarios -------------------------------------------------------------------------------- */

/* Kind and file: values follow. */
static int load(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    struct sim_scenario *scenario = &model->scenario;
    (void)n;
    model->kind = 0;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(kinds); i++) {
        model->kind |= strcmp(words[0], kinds[i]) == 0 ? 1u << i : 0;
    }
    snprintf(scenario->name, sizeof(scenario->name), "%s", words[1]);
    scenario->values_count = 0;
    return model->kind != 0 ? 0 : via_error_set(err, -EINVAL, "no such kind: %s", words[0]);
}

/* Section, key, number, or else the word. */
static int set_value(struct sim_model *model, char **words, const uint64_t *n,
                     struct via_error *err)
{
    struct sim_value value = {.number = strtod(words[2], NULL)};
    (void)n;
    snprintf(value.section, sizeof(value.section), "%s", words[0]);
    snprintf(value.key, sizeof(value.key), "%s", words[1]);
    snprintf(value.text, sizeof(value.text), "%s", words[3]);
    return sim_scenario_set(&model->scenario, &value, err);
}

/* --- requests --------------------------------------------------------------------------------- */

static int progress(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    (void)err;
    snprintf(model->title, sizeof(model->title), "%s", words[0]);
    via_progress_begin(&model->progress, model->title, n[0]);
    return 0;
}

static int step(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    (void)words, (void)err;
    via_progress_step(&model->progress, n[0]);
    return 0;
}

static int erase(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    (void)words, (void)n, (void)err;
    via_progress_end(&model->progress);
    return 0;
}

/* polling or doorbell, bytes: the receiver's bytes per second; ps of the sender's CPU per write. */
static int stream(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    struct sim_stream_result result;
    bool polls = strcmp(words[0], "polling") == 0;
    (void)err;
    sim_stream_run(&model->scenario, polls ? SIM_STREAM_POLLING : SIM_STREAM_DOORBELL, n[0],
                   &result);
    printf("%.17g %.17g", result.rate, result.cpu_ps);
    return 0;
}

/* Seconds of an eight-byte store. */
static int latency(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    (void)words, (void)n, (void)err;
    printf("%.17g", sim_stream_latency(&model->scenario));
    return 0;
}

/* Hosts, threads, senders, window, puts, bytes: ps per put, of a put, and of each of its steps. */
static int ring(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    struct sim_ring_result result;
    (void)words, (void)err;
    const struct sim_ring_run run = {.hosts_count = (unsigned)n[0],
                                     .threads_count = (unsigned)n[1],
                                     .senders_count = (unsigned)via_min(n[2], n[0]),
                                     .window = (unsigned)n[3],
                                     .puts_count = (unsigned)n[4],
                                     .bytes = n[5]};
    sim_ring_run(&model->scenario, &run, &result);
    printf("%.17g %.17g", result.put_ps, result.latency_ps);
    for (unsigned i = 0; i < SIM_RING_STEPS; i++) {
        printf(" %.17g", result.step_ps[i]);
    }
    return 0;
}

/* Request: the time of a DMA of the given number of bytes, in ps. */
static int raw(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    (void)words, (void)err;
    printf("%.17g", sim_ring_raw_ps(&model->scenario, n[0]));
    return 0;
}

/* Connections, 1 for zero copy: bytes per second; percents of the sender's and receiver's CPU. */
static int sdp(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    struct sim_sdp_result result;
    (void)words, (void)err;
    sim_sdp_run(&model->scenario, (unsigned)n[0], n[1] != 0, &result);
    printf("%.17g %.17g %.17g", result.bytes_per_s, result.sender_cpu_percent,
           result.receiver_cpu_percent);
    return 0;
}

/* Generation, lanes, payload and header: ps of a TLP on a link without DLLPs. */
static int tlp(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    (void)model, (void)words, (void)err;
    const struct sim_pcie_link link = {.generation = (unsigned)n[0], .lanes = (unsigned)n[1]};
    printf("%" PRIu64, sim_pcie_ps(sim_pcie_tlp_bandwidth(&link), 1, n[2], (unsigned)n[3]));
    return 0;
}

/* --- on an idle fabric: model->idle ----------------------------------------------------------- */

/* The nodes. */
static int between(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    (void)n, (void)err;
    snprintf(model->from, sizeof(model->from), "%s", words[0]);
    snprintf(model->to, sizeof(model->to), "%s", words[1]);
    return 0;
}

/* 1 for write-combined, bytes: ps until the last store has left, and until it can be seen. */
static int store(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    uint64_t left_ps, seen_ps;
    (void)words, (void)err;
    sim_idle_store(&model->idle, n[0] != 0, n[1], &left_ps, &seen_ps);
    printf("%" PRIu64 " %" PRIu64, left_ps, seen_ps);
    return 0;
}

/* ps of a loaded word. */
static int read_word(struct sim_model *model, char **words, const uint64_t *n,
                     struct via_error *err)
{
    (void)words, (void)n, (void)err;
    printf("%" PRIu64, sim_idle_read(&model->idle));
    return 0;
}

/* The engine's node, bytes: ps of the transfer, and of a load of the engine's register. */
static int dma(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    uint64_t moved_ps, polled_ps;
    (void)err;
    sim_idle_dma(&model->idle, words[0], n[0], &moved_ps, &polled_ps);
    printf("%" PRIu64 " %" PRIu64, moved_ps, polled_ps);
    return 0;
}

/* The engine's name, 1 for host to device, 1 for a doorbell that the core stores, bytes, ps before
 * the doorbell, ps until the completion is noticed: ps in all. */
static int engine(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    if (n[1] != 0 && model->kind == COPY) {
        return via_error_set(err, -EINVAL, "such a scenario has no [pio]");
    }
    const struct sim_idle_engine run = {.name = words[0],
                                        .to_device = n[0] != 0,
                                        .stored = n[1] != 0,
                                        .bytes = n[2],
                                        .before_ps = n[3],
                                        .notice_ps = n[4]};
    printf("%" PRIu64, sim_idle_engine(&model->idle, &run));
    return 0;
}

#define IDLE (COPY | STORES | CHAIN)
#define PS_MAX UINT64_C(1000000000000)

static const struct sim_model_request requests[] = {
    {"load", 0, 2, load, 0, {{0}}},
    {"value", ANY, 4, set_value, 0, {{0}}},
    {"progress", 0, 1, progress, 1, {{0, UINT64_MAX}}},
    {"step", 0, 0, step, 1, {{0, UINT64_MAX}}},
    {"erase", 0, 0, erase, 0, {{0}}},
    {"stream", STREAM, 1, stream, 1, {{1, BYTES_MAX}}},
    {"latency", STREAM, 0, latency, 0, {{0}}},
    {"ring",
     RING,
     0,
     ring,
     6,
     {{2, SIM_RING_HOSTS_MAX},
      {1, SIM_RING_THREADS_MAX},
      {1, SIM_RING_HOSTS_MAX},
      {1, 1024},
      {1, 10000000},
      {1, BYTES_MAX}}},
    {"raw", RING, 0, raw, 1, {{1, BYTES_MAX}}},
    {"sdp", SDP, 0, sdp, 2, {{1, SIM_SDP_CONNECTIONS_MAX}, {0, 1}}},
    {"tlp", 0, 0, tlp, 4, {{1, SIM_PCIE_GENERATION_MAX}, {1, 16}, {1, 4096}, {0, 4096}}},
    {"between", IDLE, 2, between, 0, {{0}}},
    {"store", STORES | CHAIN, 0, store, 2, {{0, 1}, {1, BYTES_MAX}}},
    {"read", IDLE, 0, read_word, 0, {{0}}},
    {"dma", IDLE, 1, dma, 1, {{1, BYTES_MAX}}},
    {"engine", IDLE, 1, engine, 5, {{0, 1}, {0, 1}, {1, BYTES_MAX}, {0, PS_MAX}, {0, PS_MAX}}},
};

static const struct sim_model_more *more; /* set by sim_model_main() */

static int number(const char *word, const struct sim_model_limits *limits, uint64_t *ret,
                  struct via_error *err)
{
    char *end;
    errno = 0;
    *ret = strtoull(word, &end, 10);
    return word[0] >= '0' && word[0] <= '9' && *end == '\0' && errno == 0 && *ret >= limits->min &&
                   *ret <= limits->max
               ? 0
               : via_error_set(err, -EINVAL, "%s: not a number from %" PRIu64 " to %" PRIu64, word,
                               limits->min, limits->max);
}

/* Each is measured on a fabric of its own. */
static int answer_idle(struct sim_model *model, const struct sim_model_request *request,
                       char **words, const uint64_t *n, struct via_error *err)
{
    sim_idle_init(&model->idle, &model->scenario, model->from, model->to);
    int rc = request->answer(model, words, n, err);
    sim_idle_fini(&model->idle);
    return rc;
}

static int answer(struct sim_model *model, char *line, struct via_error *err)
{
    char *words[WORDS_MAX], *rest = line;
    uint64_t n[SIM_MODEL_NUMBERS_MAX];
    unsigned count = 0;
    const struct sim_model_request *request = NULL;
    line[strcspn(line, "\n")] = '\0';
    do {
        words[count++] = strsep(&rest, "\t");
    } while (rest != NULL && count < WORDS_MAX);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(requests); i++) {
        request = strcmp(requests[i].name, words[0]) == 0 ? &requests[i] : request;
    }
    for (size_t i = 0; more != NULL && i < more->requests_count; i++) {
        request = strcmp(more->requests[i].name, words[0]) == 0 ? &more->requests[i] : request;
    }
    if (request == NULL) {
        return via_error_set(err, -EINVAL, "no such request: %s", words[0]);
    }
    if (rest != NULL || count != 1 + request->words + request->numbers ||
        (request->kinds != 0 && (request->kinds & model->kind) == 0)) {
        return via_error_set(err, -EINVAL, "%s: not such words, or not here", words[0]);
    }
    for (unsigned i = 0; i < request->numbers; i++) {
        int rc = number(words[1 + request->words + i], &request->limits[i], &n[i], err);
        if (rc != 0) {
            return rc;
        }
    }
    bool is_idle =
        request->kinds != ANY && (request->kinds & CHAIN) != 0 && request->answer != between;
    return is_idle ? answer_idle(model, request, words + 1, n, err)
                   : request->answer(model, words + 1, n, err);
}

int sim_model_main(const struct sim_model_more *added)
{
    more = added;
    struct sim_model *model = sim_alloc(sizeof(*model));
    char line[8192];
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* a signal that ends the script ends this, too */
    while (fgets(line, sizeof(line), stdin) != NULL) {
        struct via_error err = {0};
        if (answer(model, line, &err) != 0) {
            printf("! %s", via_error_describe(&err));
        }
        putchar('\n');
        if (fflush(stdout) != 0) {
            break;
        }
    }
    if (more != NULL) {
        more->end(model);
    }
    free(model);
    return ferror(stdin) || ferror(stdout) ? 2 : 0;
}
