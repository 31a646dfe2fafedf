# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""No process outlives a supervised program: supervise.py, under which all tests run, ends them all."""
import os
import signal
import subprocess
import sys
import time

SUPERVISE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supervise.py")
# A child in a session of its own, which says that it is there.
PROGRAM = """
import os, subprocess, sys
child = subprocess.Popen(["sh", "-c", sys.argv[1] + "echo $$; exec sleep 1000"], stdout=subprocess.PIPE,
                         start_new_session=True)
os.write(1, child.stdout.readline())
os.execvp("sh", ["sh", "-c", sys.argv[2]])
"""
STUBBORN = 'trap "" TERM;'
ENV = {name: value for name, value in os.environ.items() if name != "VIADUCT_SUPERVISED"}
LATE_S = 60


def is_gone(pid):
    deadline = time.monotonic() + LATE_S
    while os.path.exists("/proc/%d" % pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True


def check(what, then, code, end=None, first="", **more):
    process = subprocess.Popen([sys.executable, SUPERVISE, sys.executable, "-c", PROGRAM, first, then],
                               stdout=subprocess.PIPE, text=True, env=ENV, **more)
    daemon = int(process.stdout.readline())
    if end is not None:
        end(process)
    got = process.wait(LATE_S)
    if got != code:
        sys.exit("supervised: %s: ended with %d, not %d" % (what, got, code))
    if not is_gone(daemon):
        sys.exit("supervised: %s: a process was left behind" % what)


check("a program that ends", "exit 7", 7)
check("one whose daemon does not mind being asked", "exit 7", 7, first=STUBBORN)
check("a program that is killed", "kill -9 $$", -signal.SIGKILL)
check("one that ends by a signal", "kill $$", -signal.SIGTERM)
check("asked to end", "sleep 1000", 128 + signal.SIGTERM, subprocess.Popen.terminate)
check("killed", "sleep 1000", -signal.SIGKILL, subprocess.Popen.kill)
check("killed with its group", "sleep 1000", -signal.SIGKILL, lambda process: os.killpg(process.pid, signal.SIGKILL),
      start_new_session=True)
