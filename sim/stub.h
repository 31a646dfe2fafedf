/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Functions of the product that do nothing in a part of the simulator but return a value: a line
 * each. A file that includes this need not use all parameters. */
#ifndef SIM_STUB_H
#define SIM_STUB_H

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define SIM_STUB(type, value, name, ...) \
    type name(__VA_ARGS__)               \
    {                                    \
        return value;                    \
    }
#define SIM_STUB_VOID(name, ...) \
    void name(__VA_ARGS__)       \
    {                            \
    }
/* It must not be called. */
#define SIM_STUB_NEVER(type, name, ...) \
    type name(__VA_ARGS__)              \
    {                                   \
        abort();                        \
    }

#endif
