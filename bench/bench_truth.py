#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Emulated hosts for real beside the simulator, its costs calibrated on this machine: "viaduct sim truth"."""
import os
import sys

import measure

if __name__ == "__main__":
    os.execv(measure.VIADUCT, [measure.VIADUCT, "sim", "truth", *sys.argv[1:]])
