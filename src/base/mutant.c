/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "base/mutant.h"

#ifdef VIA_MUTANTS
int via_mutant;
#endif
