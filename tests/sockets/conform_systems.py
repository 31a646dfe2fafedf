# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Services of a machine room (mail, logs, jobs, disks, displays, proxies) and tools that load connections, each with
clients, both ends with the library.

Programs that are not installed are left out.
"""
import os
import re
import shutil
import subprocess
import time

from conform_names import NAMES, address, check_names
from conform_programs import HOST, Failed, big_file, run_rows, same
from conform_services import write
from conform_web import fetch, origin
from lab import free_port

# --- proxies -------------------------------------------------------------------------------------


def dante(lab):
    """Processes that pass a connection on by SCM_RIGHTS: one negotiates, one connects, one copies the data."""
    port = free_port()
    config = write(lab, "danted.conf", "logoutput: %s/danted.log\ninternal: %s port = %d\nexternal: lo\nclientmethod: none\n"
                   "socksmethod: none\nuser.privileged: root\nuser.unprivileged: nobody\nclient pass {\n from: 0.0.0.0/0 to: 0.0.0.0/0\n"
                   "}\nsocks pass {\n from: 0.0.0.0/0 to: 0.0.0.0/0\n}\n" % (lab.folder, HOST, port))
    with origin(lab) as behind, lab.server("danted", "-f", config, "-p", lab.folder + "/danted.pid", port=port):
        fetch(lab, behind, "--socks5", "%s:%d" % (HOST, port))


def nutcracker(lab, *options):
    """One thread, edge-triggered, in front of Redis."""
    port, behind, stats = free_port(), free_port(), free_port()
    config = write(lab, "nutcracker.yml", "one:\n  listen: %s:%d\n  redis: true\n  hash: fnv1a_64\n  distribution: ketama\n  servers:\n"
                   "   - %s:%d:1\n" % (HOST, port, HOST, behind))
    with lab.server("redis-server", "--port", str(behind), "--save", "", port=behind), \
            lab.server("nutcracker", "-c", config, "-a", HOST, "-s", str(stats), port=port):
        out = lab.run("redis-benchmark", "-p", str(port), "-n", "10000", "-t", "set,get", "--csv", *options).decode()
    if '"GET"' not in out:
        raise Failed("redis-benchmark: %r" % out[-200:])


# --- mail, logs, jobs, names ---------------------------------------------------------------------


def postfix_sink(lab, *options):
    """Postfix' own load: a process that takes many mails at a time from one that sends them."""
    port = free_port()
    with lab.server("smtp-sink", "-u", "nobody", "%s:%d" % (HOST, port), "100", port=port):
        lab.run("smtp-source", "-m", "500", "-f", "me@localhost", "-t", "you@localhost", *options, "%s:%d" % (HOST, port))


def syslog_ng(lab):
    """Several connections, line by line."""
    port, lines = free_port(), 20_000
    got = os.path.join(lab.folder, "syslog-got")
    config = write(lab, "syslog-ng.conf", '@version: 3.38\nsource s { network(ip("%s") port(%d) transport("tcp") max-connections(20)); };\n'
                   'destination d { file("%s" template("$MSG\\n")); };\nlog { source(s); destination(d); flags(flow-control); };\n'
                   % (HOST, port, got))
    own = [word for name in ("persist-file", "control", "pidfile") for word in ("--" + name, "%s/syslog-%s" % (lab.folder, name))]
    try:
        with lab.server("syslog-ng", "-F", "--no-caps", "-f", config, *own, port=port):
            lab.run("loggen", "--inet", "--stream", "--number=%d" % lines, "--rate=1000000", "--size=300", "--active-connections=4",
                    HOST, str(port))
            deadline = time.monotonic() + 30
            while count_lines(got) != 4 * lines:
                if time.monotonic() > deadline:
                    raise Failed("syslog-ng: %d lines" % count_lines(got))
                time.sleep(0.05)
    finally:
        if os.path.exists(got):
            os.unlink(got)


def count_lines(path):
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as file:
        return sum(1 for _ in file)


def gearman(lab):
    """The server passes a client's job to a worker, and the result back."""
    port = free_port()
    at = ("-h", HOST, "-p", str(port))
    with lab.server("gearmand", "-L", HOST, "-p", str(port), "-l", "stderr", "--threads=2", port=port):
        worker = subprocess.Popen(["gearman", *at, "-w", "-f", "back", "cat"], env=lab.env, cwd=lab.folder,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for size in (1, 1000, 60_000) * 5:  # with more bytes than a pipe of the shell holds, cat would block
                data = os.urandom(size)
                same("gearman", lab.run("gearman", *at, "-f", "back", stdin=data), data)
        finally:
            worker.terminate()
            worker.wait()


def knot(lab):
    """Threads, each with a set."""
    port = free_port()
    write(lab, "test.zone", "$ORIGIN test.\n$TTL 60\n@ SOA ns root 1 60 60 60 60\n@ NS ns\nns A 127.0.0.1\n" +
          "".join("%s A %s\n" % (name, address(n)) for n, name in enumerate(NAMES)))
    config = write(lab, "knot.conf", "server:\n  listen: %s@%d\n  rundir: %s\n  tcp-workers: 2\ndatabase:\n  storage: %s\n"
                   "acl:\n - id: all\n   action: transfer\nzone:\n - domain: test\n   storage: %s\n   file: test.zone\n   acl: all\n"
                   % (HOST, port, lab.folder, lab.folder, lab.folder))
    with lab.server("knotd", "-c", config, port=port):
        check_names(lab, port)
        got = re.findall(r"^(host\d+)\.test\.\s.*\sA\s+(\S+)$",
                         lab.run("kdig", "@" + HOST, "-p", str(port), "+tcp", "test", "axfr").decode(), re.MULTILINE)
        if sorted(got) != [(name, address(n)) for n, name in enumerate(NAMES)]:
            raise Failed("kdig axfr: %d of %d records" % (len(got), len(NAMES)))
        names = write(lab, "queries", "".join("%s.test A\n" % name for name in NAMES))
        out = lab.run("dnsperf", "-m", "tcp", "-s", HOST, "-p", str(port), "-d", names, "-n", "2", "-c", "8", "-T", "2").decode()
        if not re.search(r"Queries lost: +0 ", out):
            raise Failed("dnsperf: %r" % out[-600:])


def gunicorn(lab, *options):
    """Processes that accept from one listener."""
    port = free_port()
    write(lab, "page.py", "def app(environ, start):\n    start('200 OK', [('Content-Length', '70000')])\n    return [b'x' * 70000]\n")
    with lab.server("gunicorn", "-w", "2", "-b", "%s:%d" % (HOST, port), *options, "page:app", port=port):
        out = lab.run("httperf", "--server", HOST, "--port", str(port), "--uri", "/", "--num-conns", "300", "--send-buffer=200000",
                      "--recv-buffer=200000").decode()
    if not re.search(r"2xx=300 ", out) or not re.search(r"Errors: total 0 ", out):
        raise Failed("httperf: %r" % out[-500:])


# --- disks and displays --------------------------------------------------------------------------


def tgt(lab):
    """iSCSI, written and read by libiscsi's tests."""
    port = free_port()
    image = write(lab, "disk", "")
    os.truncate(image, 64 << 20)
    control = ("tgtadm", "-C", str(port % 1000), "--lld", "iscsi")
    os.makedirs("/var/run/tgtd", exist_ok=True)
    with lab.server("tgtd", "-f", "-C", str(port % 1000), "--iscsi", "portal=%s:%d" % (HOST, port), port=port):
        time.sleep(0.5)
        lab.run(*control, "--op", "new", "--mode", "target", "--tid", "1", "-T", "iqn.2026-01.test:disk")
        lab.run(*control, "--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", image)
        lab.run(*control, "--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")
        disk = "iscsi://%s:%d/iqn.2026-01.test:disk/1" % (HOST, port)
        for test in ("Read10", "Write10", "Read16", "Write16"):
            out = lab.run("iscsi-test-cu", "--dataloss", "--test=SCSI.%s.*" % test, disk).decode()
            if not re.search(r"asserts +\d+ +\d+ +\d+ +0 ", out):
                raise Failed("iscsi-test-cu: %r" % out[-300:])


def qemu_nbd(lab):
    """Copies a disk image there and back."""
    port = free_port()
    data = big_file(lab)
    image, got = write(lab, "qemu-image", ""), os.path.join(lab.folder, "qemu-got")
    os.truncate(image, len(data))
    with lab.server("qemu-nbd", "-f", "raw", "-b", HOST, "-p", str(port), "-t", "-e", "4", image, port=port):
        at = "nbd://%s:%d" % (HOST, port)
        lab.run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", "big", at)
        lab.run("qemu-img", "convert", "-f", "raw", "-O", "raw", at, got)
    for path in (image, got):
        with open(path, "rb") as file:
            same("qemu-img", file.read(), data)


def x11(lab):
    """Requests without answers, and many answers one by one."""
    port = free_port()
    display = port - 6000
    with lab.server("Xvfb", ":%d" % display, "-ac", "-listen", "tcp", "-nolisten", "local", "-nolisten", "unix", "-screen", "0",
                    "800x600x24", port=port):
        out = lab.run("x11perf", "-display", "%s:%d" % (HOST, display), "-repeat", "1", "-time", "1", "-noop", "-prop", "-putimage500",
                      "-getimage100").decode()
    if len(re.findall(r"reps @ .*/sec", out)) != 4:
        raise Failed("x11perf: %r" % out[-500:])


# --- loads ---------------------------------------------------------------------------------------


def netpipe(lab, *options):
    """Messages of all sizes there and back."""
    port = free_port()
    words = ("NPtcp", "-P", str(port), "-u", "300000", *options)
    with lab.server(*words, port=port):
        lab.run(*words, "-h", HOST, "-o", "np.out")


def fio(lab):
    """The program's reader ends early after short reads, over kernel TCP, too; with few bytes at a time, seldom."""
    port = free_port()
    words = ("fio", "--name=job", "--ioengine=net", "--protocol=tcp", "--port=%d" % port, "--size=20m", "--bs=4k")
    with lab.server(*words, "--listen", "--rw=read", port=port) as server:
        lab.run(*words, "--hostname=" + HOST, "--rw=write")
        if server.wait(30) != 0:
            raise Failed("fio: exit code %d" % server.returncode)


def stress_ng(lab, *options):
    """Processes of one program, which check what they get."""
    lab.run("stress-ng", "--timeout", "30", "--verify", "--temp-path", lab.folder, *options)


def stress_sock(lab, *options):
    stress_ng(lab, "--sock", "2", "--sock-domain", "ipv4", "--sock-ops", "300", "--sock-port", str(free_port()), *options)


def stress_epoll(lab):
    stress_ng(lab, "--epoll", "1", "--epoll-domain", "ipv4", "--epoll-ops", "300", "--epoll-port", str(free_port()))


def stress_sockmany(lab):
    stress_ng(lab, "--sockmany", "1", "--sockmany-ops", "500", "--sockmany-port", str(free_port()))


ROWS = [
    ("Dante", "danted", [(dante,)]),
    ("twemproxy", "nutcracker", [(nutcracker,), (nutcracker, "-P", "16")]),
    ("Postfix' smtp-source", "smtp-source", [(postfix_sink, "-s", "10", "-l", "20000"), (postfix_sink, "-d", "-s", "2")]),
    ("syslog-ng", "syslog-ng", [(syslog_ng,)]),
    ("Gearman", "gearmand", [(gearman,)]),
    ("Knot and dnsperf", "knotd", [(knot,)]),
    ("gunicorn and httperf", "httperf", [(gunicorn,), (gunicorn, "-k", "gthread", "--threads", "4")]),
    ("tgt and libiscsi", "tgtd", [(tgt,)]),
    ("QEMU's NBD", "qemu-nbd", [(qemu_nbd,)]),
    ("Xvfb and x11perf", "Xvfb", [(x11,)]),
    ("NetPIPE", "NPtcp", [(netpipe,), (netpipe, "-i"), (netpipe, "-2")]),
    ("fio", "fio", [(fio,)]),
    ("stress-ng", "stress-ng", [(stress_sock,), (stress_sock, "--sock-opts", "random"), (stress_sock, "--sock-nodelay"),
                                (stress_epoll,), (stress_sockmany,)]),
]


def suite(folder, library, _options):
    """(new failures, share)."""
    return run_rows("Systems", ROWS, folder, library)
