/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CONTROL_CLEAN_H
#define VIA_HOST_CONTROL_CLEAN_H

#include <jansson.h>

/* Replaces the characters that a terminal acts on in all texts of an answer, keys too: control
 * characters, and those that change the direction of text. Programs choose their names, and other
 * hosts choose their texts. */
void via_clean_json(json_t *value);

#endif
