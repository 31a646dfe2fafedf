#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Metrics: as text, by viaduct metrics --listen and by viaductd --metrics; read by a parser of the format, compared
with the status; clients that are slow or hostile."""
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import time
import unittest

import cli

DASHBOARD = os.path.join(os.path.dirname(os.path.dirname(cli.HERE)), "packaging", "grafana-dashboard.json")
SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (-?[0-9.eE+]+|NaN)$')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


def parse(text):
    """{(name, labels): value}. Refuses what Prometheus refuses: samples apart from their family, doubles, no HELP or
    TYPE."""
    found, family, kinds, ended = {}, None, {}, set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            ended.add(family)
            family = line.split(" ", 3)[2]
            assert family not in kinds and family not in ended, line
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family and kind in ("gauge", "counter"), line
            assert (kind == "counter") == name.endswith("_total"), line
            kinds[name] = kind
        else:
            match = SAMPLE.match(line)
            assert match, line
            assert match.group(1) == family and family in kinds, line
            key = (match.group(1), tuple(sorted(LABEL.findall(match.group(2) or ""))))
            assert key not in found, line
            found[key] = float(match.group(3))
    return found


def value(found, name, **labels):
    got = [v for (n, l), v in found.items() if n == name and labels.items() <= dict(l).items()]
    assert len(got) == 1, (name, labels, got)
    return got[0]


def free_port(host="127.0.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def fetch(port, path="/metrics", method="GET", host="127.0.0.1"):
    connection = http.client.HTTPConnection(host, port, timeout=cli.HANG_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Metrics(cli.Case):
    def test_the_text_is_what_the_status_says(self):
        self.good("up", "--ring", "3")
        self.good("cut", "1", "2")
        self.kill(3)

        def read():
            return parse(self.good("metrics"))

        # Host 1 has a route through host 3 until it notices that this daemon has exited.
        self.assertTrue(cli.wait_for(lambda: value(read(), "viaduct_route_hops", host="1", to="2") == -1))
        found, status = read(), self.status()
        self.assertEqual(value(found, "viaduct_host_up", host="1"), 1)
        self.assertEqual(value(found, "viaduct_host_up", host="3"), 0)
        self.assertEqual(value(found, "viaduct_link_cut", host="1", peer="2"), 1)
        self.assertEqual(value(found, "viaduct_link_up", host="1", peer="2"), 0)
        link = next(l for l in status["links"] if (l["a"], l["b"]) == (1, 2))
        self.assertEqual(value(found, "viaduct_link_sent_bytes_total", host="1", peer="2"), link["bytes_ab"])
        self.assertGreater(value(found, "viaduct_host_uptime_seconds", host="1"), 0)
        self.good("down")

    def test_viaduct_metrics_serves_until_it_is_ended(self):
        self.good("up", "--ring", "2")
        port = free_port()
        with self.start("metrics", "--listen", "127.0.0.1:%d" % port) as process:
            self.assertEqual(process.stdout.readline(), "serves http://127.0.0.1:%d/metrics\n" % port)
            code, kind, text = fetch(port)
            self.assertEqual((code, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
            self.assertEqual(value(parse(text), "viaduct_host_up", host="2"), 1)
            self.assertEqual(fetch(port, "/")[0], 200)
            self.assertEqual(fetch(port, "/other")[0], 404)
            self.assertEqual(fetch(port, method="POST")[0], 405)
            self.assertEqual(fetch(port, method="HEAD")[::2], (200, ""))
            self.bad("metrics", "--listen", "127.0.0.1:%d" % port, expected="Address already in use")
            # Without a fabric there are no samples, and the server continues.
            self.good("down")
            self.assertEqual(fetch(port)[0], 503)
            self.good("up", "--ring", "2")
            self.assertEqual(fetch(port)[0], 200)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=cli.HANG_S), 0)
        self.down()

    def test_only_servers_load_the_http_library(self):
        """The library needs eight others, and loading them would delay the start of every command and daemon."""
        def has_loaded_it(pid):
            with open("/proc/%d/maps" % pid, encoding="utf-8") as maps:
                return "libmicrohttpd" in maps.read()

        self.good("up", "--ring", "2")
        self.assertFalse(has_loaded_it(self.pid(1)))
        with self.start("metrics", "--listen", "127.0.0.1:%d" % free_port()) as process:
            self.assertRegex(process.stdout.readline(), "^serves ")
            self.assertTrue(has_loaded_it(process.pid))
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=cli.HANG_S), 0)
        self.down()

    def test_waiting_requests_do_not_delay_the_end_of_the_server(self):
        self.good("up", "--ring", "2")
        port = free_port()
        with self.start("metrics", "--listen", "127.0.0.1:%d" % port) as process:
            process.stdout.readline()
            os.kill(self.pid(2), signal.SIGSTOP)  # each answer takes a second, because host 2 does not answer
            busy = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
            for connection in busy:
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assertEqual(busy[0].recv(12), b"HTTP/1.1 200")
            process.send_signal(signal.SIGTERM)
            started = time.monotonic()
            self.assertEqual(process.wait(timeout=cli.HANG_S), 0)
            self.assertLess(time.monotonic() - started, 5)
            for connection in busy:
                connection.close()
        os.kill(self.pid(2), signal.SIGCONT)
        self.good("down")

    def test_wrong_addresses(self):
        for address in ("", "127.0.0.1", "localhost:80", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", "[::1:80", ":80"):
            self.bad("metrics", "--listen", address, expected="'%s'" % address)


class Daemon(cli.Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.rundir, 0o700)
        self.port = free_port()

    def daemon(self, *words):
        process = subprocess.Popen([os.path.join(cli.BIN, "viaductd"), "--foreground", *words], env=self.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_an_option_and_a_key_of_the_file(self):
        file = os.path.join(self.folder, "host.conf")
        with open(file, "w", encoding="utf-8") as conf:
            conf.write("[host]\nid = 7\nrundir = %s\nmetrics = 127.0.0.1:%d\n" % (self.rundir, self.port))
        for words in (["--host", "7", "--rundir", self.rundir, "--metrics", "127.0.0.1:%d" % self.port], ["--config", file]):
            process = self.daemon(*words)
            self.assertTrue(cli.wait_for(lambda: is_open(self.port)))
            found = parse(fetch(self.port)[2])
            self.assertEqual(value(found, "viaduct_host_up", host="7"), 1)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=cli.HANG_S), 0)
        check = subprocess.run([os.path.join(cli.BIN, "viaductd"), "--check", "--config", file], env=self.env, text=True,
                               capture_output=True, check=True)
        self.assertRegex(check.stdout, r"metrics += 127\.0\.0\.1:%d" % self.port)

    def test_a_wrong_or_taken_address_is_an_error_at_the_start(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            process = self.daemon("--host", "7", "--rundir", self.rundir, "--metrics", "127.0.0.1:%d" % port)
            self.assertIn("metrics at 127.0.0.1:%d: listen: Address already in use" % port, process.communicate(timeout=60)[1])
            self.assertEqual(process.returncode, 1)
        process = self.daemon("--host", "7", "--rundir", self.rundir, "--metrics", "here:1")
        self.assertIn("--metrics 'here:1'", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 2)

    def test_clients_that_are_slow_or_hostile_stop_nothing(self):
        process = self.daemon("--host", "7", "--rundir", self.rundir, "--metrics", "127.0.0.1:%d" % self.port)
        self.assertTrue(cli.wait_for(lambda: is_open(self.port)))
        # The server still answers after half a request, garbage, and an endless head.
        idle = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(8)]
        for number, text in enumerate([b"GET /met", b"\0\xff" * 500, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000, b"POST / HTTP/1.1\r\n"
                                       b"Content-Length: 99999999999999999999\r\n\r\n"]):
            try:
                idle[number].sendall(text)
            except OSError:
                pass
        self.assertEqual(fetch(self.port)[0], 200)
        # The server ends the oldest connections beyond its limit, and the daemon answers on its control socket.
        more = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(40)]
        self.assertEqual(fetch(self.port)[0], 200)
        env = {**self.env, "VIADUCT_RUNDIR": self.rundir}
        started = time.monotonic()
        subprocess.run([self.viaduct, "status", "--rundir", self.rundir], env=env, capture_output=True, check=False)
        self.assertLess(time.monotonic() - started, cli.HANG_S)
        for connection in idle + more:
            connection.close()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=cli.HANG_S), 0)

    def is_ended(self, connection):
        connection.settimeout(cli.HANG_S)
        try:
            return connection.recv(1) == b""
        except ConnectionError:
            return True

    def count_open(self, connections):
        """Of connections without an answer."""
        return len(connections) - len(select.select(connections, [], [], 0.1)[0])

    def test_half_open_connections_keep_no_client_out(self):
        process = self.daemon("--host", "7", "--rundir", self.rundir, "--metrics", "127.0.0.1:%d" % self.port)
        self.assertTrue(cli.wait_for(lambda: is_open(self.port)))
        # A client that is stuck, or hostile, has sent half a request on each connection.
        half = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(12)]
        for connection in half:
            connection.sendall(b"GET /met")
        for _ in range(20):
            self.assertEqual(fetch(self.port)[0], 200)
        self.assertTrue(self.is_ended(half[0]))
        # An answer that the client does not read ends in the same way.
        deaf = [socket.socket() for _ in range(12)]
        for connection in deaf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", self.port))
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 300)
        for _ in range(20):
            self.assertEqual(fetch(self.port)[0], 200)
        for connection in half + deaf:
            connection.close()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=cli.HANG_S), 0)

    def test_one_address_does_not_take_all_connections(self):
        process = self.daemon("--host", "7", "--rundir", self.rundir, "--metrics", "127.0.0.1:%d" % self.port)
        self.assertTrue(cli.wait_for(lambda: is_open(self.port)))
        others = [socket.create_connection(("127.0.0.1", self.port), source_address=("127.0.0.%d" % (10 + i), 0)) for i in range(20)]
        taken = [socket.create_connection(("127.0.0.1", self.port), source_address=("127.0.0.9", 0)) for _ in range(40)]
        # The server ends connections beyond this client's share, the oldest first, and none of other clients.
        for connection in taken[:-12]:
            self.assertTrue(self.is_ended(connection))
        self.assertEqual(self.count_open(taken[-12:] + others), 32)
        # Beyond the limit of all addresses it ends the oldest one of all.
        self.assertEqual(fetch(self.port)[0], 200)
        self.assertTrue(self.is_ended(others[0]))
        self.assertEqual(self.count_open(taken[-12:] + others[1:]), 31)
        for connection in others + taken:
            connection.close()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=cli.HANG_S), 0)

    def test_requests_do_not_delay_the_end_of_the_daemon(self):
        process = self.daemon("--host", "7", "--rundir", self.rundir, "--metrics", "127.0.0.1:%d" % self.port)
        self.assertTrue(cli.wait_for(lambda: is_open(self.port)))
        busy = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(10)]
        for connection in busy:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 200)
        for connection in busy:
            self.assertEqual(connection.recv(12), b"HTTP/1.1 200")
        process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        err = process.communicate(timeout=cli.HANG_S)[1]
        # The daemon would wait up to 2 s for the answer of each host.
        self.assertLess(time.monotonic() - started, 5)
        self.assertEqual(process.returncode, 0)
        self.assertNotIn("metrics:", err)
        for connection in busy:
            connection.close()


class Dashboard(unittest.TestCase):
    def test_the_dashboard_uses_existing_metrics(self):
        """Each metric in a query of the dashboard is one that the source writes."""
        with open(DASHBOARD, encoding="utf-8") as file:
            dashboard = json.load(file)
        with open(os.path.join(os.path.dirname(os.path.dirname(cli.HERE)), "src", "metrics", "text.c"), encoding="utf-8") as file:
            known = set(re.findall(r'"(viaduct_\w+)"', file.read())) | {"viaduct_host_up", "viaduct_host_info"}
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        self.assertGreater(len(queries), 5)
        for query in queries:
            for name in re.findall(r"viaduct_\w+", query):
                self.assertIn(name, known)


if __name__ == "__main__":
    cli.main()
