# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Message brokers, messaging libraries and stores, each with clients, both ends with the library.

The data that a client gets are compared with the sent data. Some servers are Go programs, which make their own system
calls: their connections stay with the kernel. Programs that are not installed are left out.
"""
import os
import shutil

from conform_programs import HOST, Failed, run_rows, same
from conform_servers import run_sql, bench_at, postgres, postgres_program
from conform_services import python, write
from lab import free_port

# --- brokers -------------------------------------------------------------------------------------

AMQP = r"""
import sys, pika
connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(sys.argv[1]), heartbeat=0,
                                                               connection_attempts=30, retry_delay=1))
channel = connection.channel()
channel.queue_declare("lines")
channel.confirm_delivery()
many = [bytes([n % 251]) * (n * 37) for n in range(1000)]
for data in many:
    channel.basic_publish("", "lines", data)
got = []
for method, _, data in channel.consume("lines", auto_ack=False):
    got.append(data)
    channel.basic_ack(method.delivery_tag)
    if len(got) == len(many):
        break
assert got == many
connection.close()
"""


def rabbitmq(lab):
    """Its scheduler threads wait in one set, for one connection each time."""
    names, port = free_port(), free_port()
    top = os.path.join(lab.folder, "rabbit")
    config = write(lab, "rabbitmq.conf", "listeners.tcp.1 = %s:%d\n" % (HOST, port))
    environment = ("env", "HOME=" + top, "ERL_EPMD_PORT=%d" % names, "RABBITMQ_NODENAME=conform@localhost",
                   "RABBITMQ_MNESIA_BASE=" + top, "RABBITMQ_LOG_BASE=" + top, "RABBITMQ_DIST_PORT=%d" % free_port(),
                   "RABBITMQ_CONFIG_FILE=" + config, "RABBITMQ_ENABLED_PLUGINS_FILE=" + top + "/plugins")
    os.mkdir(top)
    try:
        with lab.server("epmd", "-address", HOST, "-port", str(names), port=names), \
                lab.server(*environment, "/usr/lib/rabbitmq/bin/rabbitmq-server", port=port, seconds=240):
            python(lab, AMQP, port)
    finally:
        shutil.rmtree(top)


NATS = r"""
import socket, sys
def connect():
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    f = s.makefile("rb")
    assert f.readline().startswith(b"INFO ")
    s.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
    assert f.readline() == b"PONG\r\n"
    return s, f
(reader, lines), (writer, _) = connect(), connect()
reader.sendall(b"SUB lines 1\r\nPING\r\n")
assert lines.readline() == b"PONG\r\n"
for n in range(2000):
    data = bytes([n % 251]) * (n * 17)
    writer.sendall(b"PUB lines %d\r\n%s\r\n" % (len(data), data))
    assert lines.readline() == b"MSG lines 1 %d\r\n" % len(data)
    assert lines.read(len(data) + 2)[:-2] == data
"""


def nats(lab):
    port = free_port()
    with lab.server("nats-server", "-a", HOST, "-p", str(port), port=port):
        python(lab, NATS, port)


# --- libraries -----------------------------------------------------------------------------------


def nngcat(lab):
    """Requests and their answers, each by a connection of its own."""
    port = free_port()
    at = "tcp://%s:%d" % (HOST, port)
    data = os.urandom(900_000)
    with open(os.path.join(lab.folder, "nng"), "wb") as file:
        file.write(data)
    with lab.server("nngcat", "--rep", "--listen", at, "--file", "nng", port=port):
        for _ in range(10):
            same("nngcat", lab.run("nngcat", "--req", "--dial", at, "--data", "x" * 1000, "--raw"), data)


def nanocat(lab):
    """As nngcat, for the older library nanomsg."""
    port = free_port()
    at = "tcp://%s:%d" % (HOST, port)
    data = os.urandom(900_000)
    with open(os.path.join(lab.folder, "nano"), "wb") as file:
        file.write(data)
    with lab.server("nanocat", "--rep", "--bind", at, "--file", "nano", port=port):
        for _ in range(10):
            same("nanocat", lab.run("nanocat", "--req", "--connect", at, "--data", "x" * 1000, "--raw"), data)


# --- stores --------------------------------------------------------------------------------------


def etcd(lab):
    """Uses etcd's gateway for JSON."""
    port, peers = free_port(), free_port()
    data = os.path.join(lab.folder, "etcd")
    url = "http://%s:%d" % (HOST, port)
    try:
        with lab.server("etcd", "--data-dir", data, "--listen-client-urls", url, "--advertise-client-urls", url,
                        "--listen-peer-urls", "http://%s:%d" % (HOST, peers), port=port):
            for n in range(50):
                key, value = "a%03d" % n, "abcd" * (n * 999)
                lab.run("curl", "-sSf", "-H", "Expect:", "--data-binary", "@-", url + "/v3/kv/put",
                        stdin=('{"key":"%s","value":"%s"}' % (key, value)).encode())
                got = lab.run("curl", "-sSf", "-d", '{"key":"%s"}' % key, url + "/v3/kv/range").decode()
                if value not in got:
                    raise Failed("etcd: %r" % got[-200:])
    finally:
        shutil.rmtree(data, ignore_errors=True)


def pgbouncer(lab, mode):
    """pgbouncer in front of PostgreSQL, in one thread: its connections to the server stay open when those of its
    clients end."""
    port = free_port()
    with postgres(lab) as behind:
        config = write(lab, "pgbouncer.ini", "[databases]\npostgres = host=%s port=%d user=bench\n[pgbouncer]\nlisten_addr = "
                       "%s\nlisten_port = %d\nauth_type = any\npool_mode = %s\nunix_socket_dir =\nadmin_users = bench\n"
                       "ignore_startup_parameters = extra_float_digits\n" % (HOST, behind, HOST, port, mode))
        with lab.server("pgbouncer", "-q", *(("-u", "nobody") if os.geteuid() == 0 else ()), config, port=port):
            lines = b"".join(b"%d\t%d\n" % (n, n * n) for n in range(100_000))
            run_sql(lab, port, "drop table if exists bounced; create table bounced (n bigint, square bigint)")
            run_sql(lab, port, "copy bounced from stdin", lines)
            same("psql", run_sql(lab, port, "copy bounced to stdout"), lines)
            for options in (("-S", "-c", "8", "-j", "2"), ("-S", "-C", "-c", "4")):
                out = lab.run(postgres_program("pgbench"), "-n", "-T", "1", *options, *bench_at(port)).decode()
                if "failed transactions: 0 " not in out:
                    raise Failed("pgbench: %r" % out[-300:])


ROWS = [
    ("RabbitMQ", "/usr/lib/rabbitmq/bin/rabbitmq-server", [(rabbitmq,)]),
    ("NATS (Go)", "nats-server", [(nats,)]),
    ("nng", "nngcat", [(nngcat,)]),
    ("nanomsg", "nanocat", [(nanocat,)]),
    ("etcd (Go)", "etcd", [(etcd,)]),
    ("PgBouncer", "pgbouncer", [(pgbouncer, "session"), (pgbouncer, "transaction")]),
]


def suite(folder, library, _options):
    """(new failures, share)."""
    return run_rows("Queues", ROWS, folder, library)
