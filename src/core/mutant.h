/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Known-bad variants of the core, for the simulator to catch. In the core that is shipped
 * VIA_MUTANT() is the constant 0 and nothing of it is compiled; only the copy that
 * sim/CMakeLists.txt builds with -DVIA_MUTANTS knows via_mutant, which selects one.
 */
#ifndef VIA_CORE_MUTANT_H
#define VIA_CORE_MUTANT_H

/* X(symbol, name, what is wrong) */
#define VIA_MUTANTS_EACH(X)                                                             \
    X(NO_EPOCH, "no-epoch", "a reader takes records of an earlier epoch")               \
    X(NO_SECOND_LOOK, "no-second-look", "a thread sleeps without looking after arming") \
    X(ACK_FIRST, "ack-first", "acknowledged before it is delivered")

#ifdef VIA_MUTANTS
#define VIA_MUTANT_NUMBER(symbol, name, text) VIA_MUTANT_##symbol,
enum via_mutant_number { VIA_MUTANT_NONE, VIA_MUTANTS_EACH(VIA_MUTANT_NUMBER) };
extern int via_mutant; /* enum via_mutant_number; defined by the simulator */
#define VIA_MUTANT(symbol) (via_mutant == VIA_MUTANT_##symbol)
#else
#define VIA_MUTANT(symbol) 0
#endif

#endif
