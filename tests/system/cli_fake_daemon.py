#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A stand-in for viaductd beside a copy of viaduct, with faults. The environment selects the fault of one host:
VIADUCT_FAKE="<host> <fault>". Faults:
  exit       ends with code 3 after a line on standard error
  kill       kills itself
  mute       never becomes ready
  links-bad  is ready, but its links are 'bad-version'
  links-wait is ready, but its links wait forever
  stubborn   ignores "stop" and SIGTERM
  silent     answers one status per link, then is silent
"""
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import time


def option(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def fault_of(host):
    words = os.environ.get("VIADUCT_FAKE", "").split()
    return words[1] if len(words) == 2 and int(words[0]) == host else ""


class Daemon:
    def __init__(self):
        self.rundir = option("--rundir")
        self.host = int(option("--host"))
        self.how = fault_of(self.host)
        self.peers = [int(sys.argv[i + 1].split(":")[0])
                      for i, word in enumerate(sys.argv) if word == "--link"]
        self.hosts_max = int(option("--hosts-max"))
        self.cut = set()
        self.started = time.monotonic()
        self.answered = 0

    def lock(self):
        self.lock_file = open("%s/host-%d.lock" % (self.rundir, self.host), "w", encoding="ascii")
        fcntl.flock(self.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print(os.getpid(), file=self.lock_file, flush=True)

    def status(self):
        state = {"links-bad": "bad-version", "links-wait": "waiting"}.get(self.how, "up")
        passed = time.monotonic() - self.started
        links = [{"peer": peer, "port": port, "state": "down" if peer in self.cut else state,
                  "cut": peer in self.cut, "errors": 1, "ups": 1, "downs": 0,
                  "frames_sent": int(passed * 1000), "frames_received": int(passed * 1000),
                  "bytes_sent": int(passed * 1e6), "bytes_received": int(passed * 1e6)}
                 for port, peer in enumerate(self.peers)]
        routes = [{"host": i, "port": 0, "hops": 1 if i in self.peers else 2, "session": 1}
                  for i in range(1, self.hosts_max) if i != self.host]
        return {"ok": True, "host": self.host, "session": 7, "pid": os.getpid(), "channels": 2,
                "uptime_ns": int(passed * 1e9), "links": links, "routes": routes, "counters": {},
                "processes": [{"pid": 1, "comm": "init", "segments": 0, "bytes": 0}]}

    def answer(self, request):
        self.answered += 1
        if self.how == "silent" and self.answered > 1:
            time.sleep(60)
        if request["cmd"] == "status":
            return self.status()
        if request["cmd"] in ("cut", "mend"):
            change = self.cut.add if request["cmd"] == "cut" else self.cut.discard
            change(request["peer"])
            return {"ok": True}
        if request["cmd"] == "stop":
            return {"ok": True}
        return {"ok": False, "error": "unknown command"}

    def serve(self):
        server = socket.socket(socket.AF_UNIX)
        server.bind("%s/host-%d.ctl" % (self.rundir, self.host))
        server.listen(8)
        with contextlib.suppress(BrokenPipeError):  # As the daemon does, if 'viaduct up' was killed.
            os.write(int(option("--ready-fd")), b"1")
        while True:
            peer, _ = server.accept()
            with peer, peer.makefile("rw", encoding="utf-8") as lines:
                request = json.loads(lines.readline())
                print(json.dumps(self.answer(request)), file=lines, flush=True)
            if request["cmd"] == "stop" and self.how != "stubborn":
                return


def main():
    daemon = Daemon()
    if daemon.how == "exit":
        print("no memory for 64 pipes", file=sys.stderr)
        sys.exit(3)
    if daemon.how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if daemon.how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    daemon.lock()
    if daemon.how == "mute":
        time.sleep(60)
    daemon.serve()


if __name__ == "__main__":
    main()
