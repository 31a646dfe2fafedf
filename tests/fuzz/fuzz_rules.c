/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Rules of the sockets: an accepted file is valid, and a refused one gets a reason. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/control_rules.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct via_rules rules;
    struct via_error err = {0};
    static const unsigned char ip[16] = {[15] = 1};
    via_rules_init(&rules);
    if (via_rules_parse(&rules, "F", (const char *)data, bytes, "program", &err) != 0) {
        require(strncmp(err.text, "F:", 2) == 0);
        return 0;
    }
    require(rules.ports_count <= VIA_RULES_ITEMS_MAX && rules.after_calls <= VIA_RULES_AFTER_MAX);
    for (unsigned i = 0; i < rules.ports_count; i++) {
        require(rules.ports[i].first <= rules.ports[i].last);
    }
    for (unsigned i = 0; i < rules.networks_count; i++) {
        require(rules.networks[i].prefix_bits <= 128);
    }
    for (unsigned i = 0; i < rules.programs_count; i++) {
        require(memchr(rules.programs[i].pattern, 0, VIA_RULES_PATTERN_BYTES) != NULL);
    }
    via_rules_is_network_allowed(&rules, ip);
    via_rules_is_program_allowed(&rules, "program");
    via_rules_is_port_allowed(&rules, 80);
    return 0;
}
