# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Programs whose calls are difficult for the preload library: each function measures one over a way (measure.py), as a rate per second.

missing() says why one can not be measured here. Packages: python3-grpcio, puma, default-jdk-headless, openmpi-bin and
libopenmpi-dev (tools/packages.txt, bench rows).
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

import measure

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable

GRPC = """
import grpc, sys, time
from concurrent import futures
class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda data, context: data)
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
if sys.argv[1] == "serve":
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Handler()], options=options)
    server.add_insecure_port(sys.argv[2]); server.start(); server.wait_for_termination()
data = bytes(1 << 20)
with grpc.insecure_channel(sys.argv[2], options=options) as channel:
    call = channel.unary_unary("/a/b")
    for i in range(20): call(data)
    begin = time.monotonic(); count = 0
    while time.monotonic() - begin < float(sys.argv[3]):
        assert len(call(data)) == len(data); count += 1
    print(count / (time.monotonic() - begin))
"""

JAVA = """
import java.net.*; import java.nio.*; import java.nio.channels.*;
public class Echo {
    static final int BYTES = 32 << 20;
    static void move(AsynchronousSocketChannel c, ByteBuffer b, boolean out) throws Exception {
        while (b.hasRemaining()) if ((out ? c.write(b) : c.read(b)).get() < 0) throw new Exception("end");
    }
    public static void main(String[] args) throws Exception {
        var address = new InetSocketAddress(args[1], Integer.parseInt(args[2]));
        var buffer = ByteBuffer.allocateDirect(BYTES);
        if (args[0].equals("serve")) {
            var c = AsynchronousServerSocketChannel.open().bind(address).accept().get();
            while (true) { buffer.clear(); move(c, buffer, false); buffer.flip(); move(c, buffer, true); }
        }
        var c = AsynchronousSocketChannel.open(); c.connect(address).get();
        var back = ByteBuffer.allocateDirect(BYTES);
        long begin = 0; int count = -2;
        for (; count <= 0 || System.nanoTime() - begin < Double.parseDouble(args[3]) * 1e9; count++) {
            if (count == 0) begin = System.nanoTime();
            buffer.clear(); back.clear();
            var sends = new Thread(() -> { try { move(c, buffer, true); } catch (Exception e) { System.exit(1); } });
            sends.start(); move(c, back, false); sends.join();
        }
        System.out.println(count * 1e9 / (System.nanoTime() - begin));
        System.exit(0);
    }
}
"""

MPI = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank, last = atoi(argv[1]) - 1, going = 1;
    double seconds = atof(argv[2]), begin = 0;
    long count = -100;
    char *data = calloc(1, (size_t)last + 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (; going; count++) {
        if (count == 0) begin = MPI_Wtime();
        data[last] = (char)(count < 0 || MPI_Wtime() - begin < seconds);
        if (rank == 0) {
            MPI_Send(data, last + 1, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            going = data[last];
            MPI_Recv(data, last + 1, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(data, last + 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            going = data[last];
            MPI_Send(data, last + 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        }
    }
    if (rank == 0) printf("%f\\n", (double)count / (MPI_Wtime() - begin));
    MPI_Finalize();
    return 0;
}
"""

VISITS = """
import socket, sys, time
begin = time.monotonic()
for i in range(1100):
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as c:
        c.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n")
        got = b""
        while data := c.recv(65536): got += data
        assert got.endswith(b"hello"), got
print(1100 / (time.monotonic() - begin))
"""


def missing(program):
    """The reason why a program can not be measured here; None if it can."""
    if program == "grpc":
        found = subprocess.run([PYTHON, "-c", "import grpc"], capture_output=True, check=False).returncode == 0
        return None if found else "python3-grpcio is not installed"
    for name in {"java": ("java", "javac"), "mpi": ("mpirun", "mpicc"), "puma": ("puma",)}[program]:
        if shutil.which(name) is None:
            return name + " is not installed"
    return None


def rate(out):
    return float(out.split()[-1])


def grpc(way, seconds):
    port = measure.free_port(way.address)
    at = "%s:%d" % (way.address, port)
    with measure.server(way, [PYTHON, "-c", GRPC, "serve", at], port):
        return rate(measure.client(way, [PYTHON, "-c", GRPC, "call", at, str(seconds)]))


def java(way, seconds):
    port = measure.free_port(way.address)
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "Echo.java")
        with open(source, "w", encoding="ascii") as file:
            file.write(JAVA)
        subprocess.run(["javac", "-d", folder, source], check=True)
        words = ["java", "-XX:MaxDirectMemorySize=256m", "-cp", folder, "Echo"]
        with measure.server(way, [*words, "serve", way.address, str(port)], port):
            return rate(measure.client(way, [*words, "talk", way.address, str(port), str(seconds)]))


def mpi(way, size, seconds):
    """Open MPI over its TCP BTL, which polls without waiting: round trips."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "pingpong.c")
        with open(source, "w", encoding="ascii") as file:
            file.write(MPI)
        subprocess.run(["mpicc", "-O2", "-o", source[:-2], source], check=True)
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return rate(measure.client(way, [
            "mpirun", *root, "--oversubscribe", "-np", "2", "--mca", "pml", "ob1", "--mca", "btl", "self,tcp",
            "--mca", "btl_tcp_if_include", "lo", source[:-2], str(size), str(seconds)]))


def puma(way):
    """1,100 connections with a request each, one after the other."""
    port = measure.free_port(way.address)
    with tempfile.TemporaryDirectory() as folder:
        rackup = os.path.join(folder, "config.ru")
        with open(rackup, "w", encoding="ascii") as file:
            file.write("run lambda { |env| [200, {'content-type' => 'text/plain'}, ['hello']] }\n")
        with measure.server(way, ["puma", "-q", "-b", "tcp://%s:%d" % (way.address, port), rackup], port, cwd=folder):
            time.sleep(0.2)  # the server listens before it is ready
            return rate(measure.client(way, [PYTHON, "-c", VISITS, way.address, str(port)]))
