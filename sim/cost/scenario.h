/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Scenario files: every parameter of the cost model with its value, its unit, how it is known and
 * from where (viaduct-scenario(5)):
 *
 *     [link cable]
 *     lanes = 8 lanes [stated] x8 cable adapters
 *
 * Each module declares its parameters as sections; a caller loads a file against the sections it
 * needs. All keys of a section must be there, no other may be. Numbers are kept in base units:
 * picoseconds, bytes, bytes per second, metres.
 *
 * Parts that several scenarios use are defined once, in parts.ini beside them. "[switch chip:
 * pex8749]" takes the keys that it does not set from "[switch pex8749]" of that file. A section
 * without a name takes them from the section of the same type, and a link takes its "[medium
 * copper]" from there.
 */
#ifndef SIM_COST_SCENARIO_H
#define SIM_COST_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum sim_dimension {
    SIM_COUNT,       /* whole; any word for the unit: 8 lanes, 32 tags */
    SIM_RATE,        /* of a lane: GT/s or Gb/s */
    SIM_TIME,        /* ps ns us ms s -> ps */
    SIM_BYTES,       /* whole; B KiB MiB GiB kB MB -> B */
    SIM_BANDWIDTH,   /* B/s kB/s MB/s GB/s -> B/s; Mb/s and Gb/s are bits */
    SIM_LENGTH,      /* m cm -> m */
    SIM_TIME_LENGTH, /* ns/m -> ps per metre */
    SIM_PERCENT,     /* % -> a fraction of 1 */
    SIM_WORD,        /* one of `words`, no unit */
    SIM_NAME,        /* a name: a letter, then letters, digits, '-' or '_' */
};

struct sim_key {
    const char *name;
    enum sim_dimension dimension;
    double min, max;   /* in base units, both allowed; not of words and names */
    const char *words; /* SIM_WORD: "copper optical" */
};

struct sim_section {
    const char *name;
    bool named; /* "[link cable]", any number of them; otherwise "[dma]", exactly one */
    const struct sim_key *keys;
    size_t keys_count;
};

/* How a value is known. */
enum sim_mark {
    SIM_STATED,  /* the paper says so */
    SIM_SPEC,    /* a specification or data sheet says so */
    SIM_TYPICAL, /* others measured it on such hardware */
    SIM_CHOSEN,  /* a choice of how we run the model: no true value exists */
    SIM_FITTED,  /* fitted to the figures that are marked as such */
};

struct sim_value {
    size_t part;               /* of the scenario's parts */
    const struct sim_key *key; /* borrowed from the declaration */
    char text[32];             /* of words and names */
    double number;
    char unit[16];
    double unit_factor; /* number = the file's number * this; 0 for words */
    enum sim_mark mark;
    char source[160];
    unsigned line;
    bool shared; /* from parts.ini, as is the line */
};

/* A section of the file. */
struct sim_part {
    const struct sim_section *section; /* borrowed from the declaration */
    char instance[32];
    char like[32]; /* the section of the parts that it takes keys from; "": its own name, or none */
    unsigned line;
};

#define SIM_VALUES_MAX 512
#define SIM_PARTS_MAX 128

struct sim_scenario {
    char name[256];       /* of the file, for errors */
    char parts_name[256]; /* the same of parts.ini */
    const struct sim_section *const *sections;
    size_t sections_count;
    size_t parts_count;
    struct sim_part parts[SIM_PARTS_MAX];
    size_t values_count;
    struct sim_value values[SIM_VALUES_MAX]; /* in the order of the file */
};

#define SIM_SCENARIO_BYTES_MAX (1u << 20)

/*
 * Errors begin with "name:line: " and name the key. 0 or -EINVAL, which leaves *ret undefined.
 * sections and everything they point to must outlive *ret.
 */
int sim_scenario_parse(const char *name, const char *text, size_t bytes,
                       const struct sim_section *const *sections, size_t sections_count,
                       struct sim_scenario *ret, struct via_error *err) VIA_MUST_CHECK;

/* The same from a file, with missing keys taken from the file `parts`; NULL: none. Also -errno of
 * open and read, -EFBIG. */
int sim_scenario_load(const char *path, const char *parts,
                      const struct sim_section *const *sections, size_t sections_count,
                      struct sim_scenario *ret, struct via_error *err) VIA_MUST_CHECK;

/*
 * Values by section ("dma", "link cable") and key. Asking for an undeclared key or a missing
 * section is a bug of the caller, and ends the program.
 */
double sim_scenario_number(const struct sim_scenario *scenario, const char *section,
                           const char *key);
uint64_t sim_scenario_count(const struct sim_scenario *scenario, const char *section,
                            const char *key);
uint64_t sim_scenario_ps(const struct sim_scenario *scenario, const char *section, const char *key);
const char *sim_scenario_word(const struct sim_scenario *scenario, const char *section,
                              const char *key);

/* The name of the index-th "[section name]" of the file; NULL if there are fewer. */
const char *sim_scenario_instance(const struct sim_scenario *scenario, const char *section,
                                  size_t index);

/* Does the file have "[link cable]"? */
bool sim_scenario_has(const struct sim_scenario *scenario, const char *section);

/* A value with its origin: for reports, fits, and errors that name file, line and key. */
struct sim_value *sim_scenario_find(struct sim_scenario *scenario, const char *section,
                                    const char *key);
/* Sets err to "file:line: [section] key: ..." of that value. Returns -EINVAL. */
int sim_scenario_complain(const struct sim_scenario *scenario, const char *section, const char *key,
                          struct via_error *err, const char *format, ...) VIA_PRINTF(5, 6);

/* Every value with its mark and source, as a table. */
void sim_scenario_print(const struct sim_scenario *scenario, FILE *out);
/* "stated", "spec", ... */
const char *sim_mark_name(enum sim_mark mark);

#endif
