#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Tests and programs of other projects, with and without the library: a test that fails only with the library is a bug
of the library.

usage: conform_sockets.py [--suites NAME,...] [--all] [--python PROGRAM] [--timeout S] [--nginx-tests PATH] [MODULE...]
  --suites  some of: programs, servers, services, web, queues, names, systems, runtimes, libraries,
             clusters, redis, nginx, curl, cpython; default: all
  --all     every test of Redis, nginx and curl, not only some
  --nginx-tests  a path, or another URL, from which git gets nginx' tests
  MODULE    of CPython's tests, which are then the only suite

Each runs on kernel TCP and on pipes. Then the share of pipes is printed: of all sent bytes, and of the eligible ones
(not those of connections that stay with the kernel by rule: demoted, to plain programs, or ended before the two ends
had met; nor bytes sent before there was another end). Where few bytes were sent, the bytes are printed. The tests come
from Debian's packages libpython3.11-testsuite, redis, curl, libevent and libuv1 (source), and nginx' by git. Exit code
1 for new failures or less than 90 % of the eligible bytes by pipes, 77 when nothing could run.
"""
import argparse
import os
import sys
import tempfile

import conform_clusters
import conform_cpython
import conform_curl
import conform_libraries
import conform_names
import conform_nginx
import conform_programs
import conform_queues
import conform_redis
import conform_runtimes
import conform_servers
import conform_services
import conform_systems
import conform_web
from conform_share import Share
import lab
from lab import PRELOAD

SUITES = {"programs": conform_programs.suite, "servers": conform_servers.suite,
          "services": conform_services.suite, "web": conform_web.suite, "queues": conform_queues.suite,
          "names": conform_names.suite, "systems": conform_systems.suite,
          "runtimes": conform_runtimes.suite, "libraries": conform_libraries.suite,
          "clusters": conform_clusters.suite,
          "redis": conform_redis.suite, "nginx": conform_nginx.suite, "curl": conform_curl.suite,
          "cpython": conform_cpython.suite}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].replace("%", "%%"))
    parser.add_argument("--suites", type=lambda text: text.split(","), default=list(SUITES))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--timeout", type=int, default=600)
    parser.add_argument("--nginx-tests", default=conform_nginx.URL)
    parser.add_argument("modules", nargs="*")
    args = parser.parse_args()
    if not set(args.suites) <= set(SUITES):
        sys.exit("conform_sockets: --suites: some of %s" % ",".join(SUITES))
    total = Share()
    bad = []
    ran = 0
    for name in ["cpython"] if args.modules else args.suites:
        with tempfile.TemporaryDirectory(prefix="via-conform-", ignore_cleanup_errors=True) as folder:
            new, share = SUITES[name](folder, PRELOAD, args)
        if new is None:
            print("%s: left out: %s" % (name, share))
            continue
        ran += 1
        bad += new
        total.add(share)
    if ran == 0:
        return 77
    print()
    total.show()
    print("new failures: %s" % (", ".join(bad) or "none"))
    return 1 if bad or total.of_eligible() < 90 else 0


if __name__ == "__main__":
    lab.begin()
    sys.exit(main())
