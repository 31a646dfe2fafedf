/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* "viaduct-sim model" without sanitizers, because with them system B takes too long for "make
 * test".
 */
#include <stddef.h>

#include "sim/paper/command.h"

int main(void)
{
    return sim_model_main(NULL);
}
