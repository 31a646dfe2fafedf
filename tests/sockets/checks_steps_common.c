/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "steps.h"

#ifdef STEPS_WORK
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#include <x86intrin.h>

#include "checks.h"

#define TRAP_FLAG 0x100u /* TF in RFLAGS */

static volatile sig_atomic_t step, signal_step;

/* No traps after the signal: the library may block all signals, and a trap would then end the
 * process. */
static void count_step(int number, siginfo_t *info, void *of_kernel)
{
    ucontext_t *context = of_kernel;
    (void)number;
    (void)info;
    step = step + 1;
    if (step == signal_step) {
        context->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
        raise(SIGUSR1);
    }
}

void steps_install(void (*handler)(int))
{
    struct sigaction on_trap = {.sa_sigaction = count_step, .sa_flags = SA_SIGINFO};
    struct sigaction on_signal = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGTRAP, &on_trap, NULL) == 0 && sigaction(SIGUSR1, &on_signal, NULL) == 0);
}

bool steps_call(bool (*call)(int fd), int fd, int instruction)
{
    if (instruction == 0) {
        return call(fd);
    }
    step = 0;
    signal_step = instruction;
    __writeeflags(__readeflags() | TRAP_FLAG);
    bool succeeded = call(fd);
    __writeeflags(__readeflags() & ~(unsigned long long)TRAP_FLAG);
    return succeeded;
}

int steps_made(void)
{
    return step;
}

int steps_stride(int usual)
{
    const char *value = getenv("VIADUCT_CHECKS_STRIDE");
    return value != NULL ? atoi(value) : usual;
}
#endif
