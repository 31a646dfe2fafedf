/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Registers of a PEX 87xx that the driver uses. Sources: "F" is FreeBSD's sys/dev/ntb/ntb_hw/
 * ntb_hw_plx.c, "V" Intel's VCA drivers. Where they disagree, an option of the link chooses.
 */
#ifndef VIA_PORT_PEX_REGS_H
#define VIA_PORT_PEX_REGS_H

#include <stdint.h>

#define PEX_VENDOR 0x10B5u
#define PEX_NT0_LINK 0x87A0u /* NT1: + 1 (F) */
#define PEX_NT0_VIRTUAL 0x87B0u
#define PEX_ENGINE 0x87D0u /* Linux' plx_dma.c */

/* BAR 0: the registers of the whole chip (F). */
#define PEX_REGISTERS 0u
#define PEX_REGISTERS_BYTES UINT64_C(0x40000)
#define PEX_NT0_BASE 0x3E000u
#define PEX_NT1_BASE 0x3C000u
#define PEX_LINK_SIDE 0x1000u /* from the base of the NT port */

/* Of the chip. */
#define PEX_PORTS 0x360u /* [12:8] port of NT0, [20:16] of NT1, bits 30 and 31 A-LUT (F) */
#define PEX_PORTS_ALUT(nt) (UINT32_C(1) << (30 + (nt)))
#define PEX_ALUT 0x38000u /* entries: address; + 0x400 upper half, + 0x800 permission (F) */
#define PEX_ALUT_HIGH 0x400u
#define PEX_ALUT_PERMISSION 0x800u
#define PEX_ALUT_READ_WRITE 3u

/* From the base of a side. */
#define PEX_LINK_CAPABILITY 0x074u /* PCI Express: [3:0] generation, [9:4] width */
#define PEX_LINK_STATUS 0x078u     /* [19:16] generation, [24:20] width (V) */
#define PEX_VIRTUAL_SETUP(bar) (0x0D4u + 4u * ((bar)-2u)) /* (V) */
#define PEX_LINK_SETUP(bar) (0x0E8u + 4u * ((bar)-2u))    /* (F) */
#define PEX_LINK_SETUP0 0x0E4u /* BAR 0/1 of the link side: 3 = 64 bits (F) */
#define PEX_LINK_SETUP0_64 3u
#define PEX_BAR(bar) (0x010u + 4u * (bar))
#define PEX_BAR_64 4u
#define PEX_BAR_SETUP_64 0xcu
#define PEX_TRANSLATION(bar) (0xC3Cu + 4u * ((bar)-2u)) /* (F) */
#define PEX_BELL_VIRTUAL 0xC4Cu /* set; + 4 clear, + 8 mask, + 12 unmask (F) */
#define PEX_BELL_LINK 0xC5Cu
#define PEX_BELL_CLEAR 4u
#define PEX_BELL_MASK 8u
#define PEX_BELL_UNMASK 12u
#define PEX_PADS 0xC6Cu /* eight, of the port (F) */
#define PEX_WHO 0xC8Cu  /* bit 0 NT number, bit 31 link side (F) */
#define PEX_WHO_LINK_SIDE UINT32_C(0x80000000)
#define PEX_REQUESTER 0xC90u
#define PEX_ALUT_ENABLE 0xC94u
#define PEX_ALUT_ENABLED UINT32_C(0x90000000) /* bit 28 (F); bits 28 and 31 (V) */
#define PEX_LUT_VIRTUAL 0xD94u                /* (F) */
#define PEX_LUT_LINK 0xDB4u                   /* (F); of both sides (V) */
#define PEX_LUT_ENABLE 1u
#define PEX_LUT_ENTRIES 32u
#define PEX_LUT_REQUESTER UINT32_C(0xfff8) /* bus and device */
#define PEX_ERRORS 0xFE0u                  /* virtual side only (F) */
#define PEX_ERRORS_MASK 0xFE4u
#define PEX_ERROR_CORRECTABLE 1u
#define PEX_ERROR_UNCORRECTABLE 2u
#define PEX_ERROR_DL_DOWN 4u
#define PEX_ERROR_DROPPED 8u

/* Back to back: where a link side's BARs lie on the cable (F). Registers of the chip are first. */
#define PEX_CABLE(bar) (UINT64_C(0x2000000000000000) * (bar))
#define PEX_CABLE_WINDOW_MIN (UINT64_C(2) << 20) /* of a BAR that is shared with them (F) */

#endif
