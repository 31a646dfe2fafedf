/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* clang-format off */
/* Written by tools/shmem-costs --write: 7 rounds on 2 CPUs (Intel(R) Xeon(R) Processor), a ring of six emulated hosts. */
#define VIA_MEASURED_COSTS \
    {\
     .local_ns = 148,\
     .near_ns = 735,\
     .far_ns = 10858,\
     .hop_ns = 20526,\
     .local_ps = 16,\
     .near_ps = 16,\
     .far_ps = 156,\
     .combine_ps = 56,\
    }
/* clang-format on */
