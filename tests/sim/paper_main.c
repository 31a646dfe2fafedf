/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* "viaduct-sim model" without sanitizers, because with them system B and the tests of the planner
 * take too long for "make test".
 */
#include "sim/paper/command.h"
#include "sim/plan/requests.h"

int main(void)
{
    return sim_model_main(&sim_plan_more);
}
