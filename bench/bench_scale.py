#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Runs the real core of up to 1,024 hosts under virtual time: bring-up, a link cut, memory (viaduct-sim scale)."""
import argparse
import os
import subprocess
import sys

import measure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    parser.add_argument("--hosts", help="how many, separated by commas")
    arguments = parser.parse_args()
    command = [os.path.join(os.path.dirname(measure.VIADUCT), "viaduct-sim"), "scale"]
    command += ["--json", arguments.json] if arguments.json else []
    command += ["--hosts", arguments.hosts] if arguments.hosts else []
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
