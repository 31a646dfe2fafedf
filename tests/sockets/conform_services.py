# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Services other than the web, each with clients, both ends with the library: databases, queues, file servers,
remote calls, measuring tools, and servers that are started for each connection.

Programs that are not installed are left out.
"""
import contextlib
import os
import re
import shutil
import subprocess

from conform_programs import HOST, Failed, big_file, run_rows, same
from conform_servers import check_tree, tree
from lab import free_port


def write(lab, name, text):
    path = os.path.join(lab.folder, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


def python(lab, text, *words):
    return lab.run("/usr/bin/python3", "-c", text, *map(str, words))


# --- databases and queues ------------------------------------------------------------------------


@contextlib.contextmanager
def mariadb(lab):
    data = os.path.join(lab.folder, "mariadb")
    if not os.path.exists(data):
        subprocess.run(["mariadb-install-db", "--no-defaults", "--datadir=" + data, "--user=root", "--skip-test-db",
                        "--auth-root-authentication-method=normal"], check=True, capture_output=True)
    port = free_port()
    with lab.server("mariadbd", "--no-defaults", "--datadir=" + data, "--user=root", "--bind-address=" + HOST,
                    "--port=%d" % port, "--socket=" + os.path.join(lab.folder, "mariadb.sock"),
                    "--innodb-flush-log-at-trx-commit=0", port=port):
        at = ["--host=" + HOST, "--port=%d" % port, "--user=root"]
        lab.run("mariadb", "--no-defaults", *at, "-e", "drop database if exists sbtest; create database sbtest")
        yield port, at


def sysbench(lab, script, *options):
    with mariadb(lab) as (port, _):
        words = ["sysbench", script, "--mysql-host=" + HOST, "--mysql-port=%d" % port, "--mysql-user=root",
                 "--tables=1", "--table-size=1000", "--threads=4", "--time=1", *options]
        lab.run(*words, "prepare")
        out = lab.run(*words, "run").decode()
    if not re.search(r"transactions: +[1-9]", out):
        raise Failed("sysbench: %r" % out[-500:])


def mariadb_rows(lab):
    """Many rows in and out."""
    lines = b"".join(b"%d\t%d\n" % (n, n * n) for n in range(100_000))
    with mariadb(lab) as (_, at):
        lab.run("mariadb", "--no-defaults", *at, "sbtest", "-e", "create table numbers (n bigint, square bigint)")
        text = b"insert into numbers values " + b",".join(b"(%d,%d)" % (n, n * n) for n in range(100_000)) + b";"
        lab.run("mariadb", "--no-defaults", *at, "--max-allowed-packet=64M", "sbtest", stdin=text)
        same("mariadb", lab.run("mariadb", "--no-defaults", *at, "-N", "-B", "sbtest", "-e",
                                "select * from numbers order by n"), lines)


BEANS = r"""
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
f = s.makefile("rb")
jobs = [bytes([n % 251]) * (n * 7 % 9999) for n in range(2000)]
for job in jobs:
    s.sendall(b"put 0 0 60 %d\r\n%s\r\n" % (len(job), job))
    assert f.readline().startswith(b"INSERTED")
for job in jobs:
    s.sendall(b"reserve\r\n")
    word, number, count = f.readline().split()
    assert word == b"RESERVED" and f.read(int(count) + 2)[:-2] == job
    s.sendall(b"delete %s\r\n" % number)
    assert f.readline() == b"DELETED\r\n"
"""


def beanstalkd(lab):
    port = free_port()
    with lab.server("beanstalkd", "-l", HOST, "-p", str(port), port=port):
        python(lab, BEANS, port)


ZEROMQ = r"""
import sys, zmq
port, context = int(sys.argv[2]), zmq.Context()
socket = context.socket(zmq.REP if sys.argv[1] == "serve" else zmq.REQ)
many = [bytes([n % 251]) * (n * 17) for n in range(3000)]
if sys.argv[1] == "serve":
    socket.bind("tcp://127.0.0.1:%d" % port)
    while True:
        socket.send(socket.recv())
socket.connect("tcp://127.0.0.1:%d" % port)
for data in many:
    socket.send(data)
    assert socket.recv() == data
pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
pull.bind("tcp://127.0.0.1:0")
push.connect(pull.getsockopt(zmq.LAST_ENDPOINT).decode())
for data in many[:900]:
    push.send(data)
assert [pull.recv() for _ in range(900)] == many[:900]
context.destroy(0)
"""


def talk(lab, text):
    """One text is the server and the client."""
    port = free_port()
    with lab.server("/usr/bin/python3", "-c", text, "serve", str(port), port=port):
        python(lab, text, "talk", port)


GRPC = r"""
import sys
from concurrent import futures
import grpc
class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/echo/one":
            return grpc.unary_unary_rpc_method_handler(lambda data, context: data)
        return grpc.stream_stream_rpc_method_handler(lambda many, context: many)
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
if sys.argv[1] == "serve":
    server = grpc.server(futures.ThreadPoolExecutor(4), options=options)
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port("127.0.0.1:" + sys.argv[2])
    server.start()
    server.wait_for_termination()
with grpc.insecure_channel("127.0.0.1:" + sys.argv[2], options=options) as channel:
    one = channel.unary_unary("/echo/one")
    for n in range(1000):
        data = bytes([n % 251]) * (1 << n % 22 if n < 50 else n)
        assert one(data, wait_for_ready=True) == data
    many = [bytes([n % 251]) * (n * 37) for n in range(1000)]
    assert list(channel.stream_stream("/echo/many")(iter(many))) == many
"""


def grpc(lab):
    talk(lab, GRPC)


def zeromq(lab):
    talk(lab, ZEROMQ)


# --- files ---------------------------------------------------------------------------------------


def vsftpd(lab, *options):
    """Up and down, one connection for each file; many small ones."""
    top = os.path.join(lab.folder, "ftp")
    os.makedirs(os.path.join(top, "in"), exist_ok=True)
    os.chmod(os.path.join(top, "in"), 0o777)
    port = free_port()
    config = write(lab, "vsftpd.conf", "listen=YES\nlisten_address=%s\nlisten_port=%d\nbackground=NO\nanonymous_enable=YES\n"
                   "no_anon_password=YES\nanon_root=%s\nwrite_enable=YES\nanon_upload_enable=YES\n"
                   "anon_other_write_enable=YES\nanon_mkdir_write_enable=YES\nanon_world_readable_only=NO\n"
                   "secure_chroot_dir=%s\nftp_username=ftp\n%s"
                   % (HOST, port, top, top, "".join("%s\n" % option for option in options)))
    data = big_file(lab)
    with lab.server("vsftpd", config, port=port):
        url = "ftp://%s:%d/in/" % (HOST, port)
        try:
            lab.run("curl", "-sS", "-T", "-", url + "big", stdin=data)
            same("curl", lab.run("curl", "-sS", *[url + "big"] * 2), data * 2)
            lab.run("lftp", "-c", "set net:max-retries 1; open ftp://%s:%d/in; get big -o %s/ftp-big; rm big"
                    % (HOST, port, lab.folder))
            with open(os.path.join(lab.folder, "ftp-big"), "rb") as file:
                same("lftp", file.read(), data)
        finally:
            shutil.rmtree(top)
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(lab.folder, "ftp-big"))


def samba(lab):
    port = free_port()
    top = os.path.join(lab.folder, "samba")
    os.makedirs(top, exist_ok=True)
    os.chmod(top, 0o777)
    paths = "".join("%s = %s\n" % (name, top) for name in
                    ("private dir", "lock directory", "state directory", "cache directory", "pid directory", "ncalrpc dir"))
    config = write(lab, "smb.conf", "[global]\nbind interfaces only = yes\ninterfaces = %s\nsmb ports = %d\n%smap to guest = "
                   "bad user\nlog file = /dev/null\ndisable spoolss = yes\n[there]\npath = %s\nguest ok = yes\n"
                   "read only = no\nforce user = root\n" % (HOST, port, paths, top))
    data = big_file(lab)
    try:
        with lab.server("smbd", "-F", "--no-process-group", "-s", config, port=port, start_new_session=True):
            lab.run("smbclient", "//%s/there" % HOST, "-p", str(port), "-N", "-s", config, "-c",
                    "put big up; get up smb-got; " + "ls; " * 50)
        with open(os.path.join(lab.folder, "smb-got"), "rb") as file:
            same("smbclient", file.read(), data)
    finally:
        shutil.rmtree(top)


def subversion(lab, *options):
    """Committed by one working copy, checked out by another."""
    port = free_port()
    top = os.path.join(lab.folder, "svn")
    os.mkdir(top)
    svn = ("svn", "-q", "--non-interactive", "--config-dir", top + "/config")
    try:
        lab.run("svnadmin", "create", top + "/repo")
        write(lab, "svn/repo/conf/svnserve.conf", "[general]\nanon-access = write\n")
        with lab.server("svnserve", "-d", "--foreground", "--listen-host", HOST, "--listen-port", str(port), "-r", top, *options,
                        port=port):
            url = "svn://%s:%d/repo" % (HOST, port)
            lab.run(*svn, "import", tree(lab), url, "-m", "all of it")
            for name in ("one", "two"):
                lab.run(*svn, "checkout", url, top + "/" + name)
            write(lab, "svn/one/more", "more" * 1000)
            lab.run(*svn, "add", top + "/one/more")
            lab.run(*svn, "commit", top + "/one", "-m", "one more")
            lab.run(*svn, "update", top + "/two")
            check_tree("svn", top + "/two", top + "/one")
            check_tree("svn", top + "/two", tree(lab))
    finally:
        shutil.rmtree(top)


def nbdkit(lab, *options):
    """Copies a disk image there and back: many requests are under way on each connection."""
    port = free_port()
    data = big_file(lab)
    image, got = write(lab, "image", ""), os.path.join(lab.folder, "nbd-got")
    os.truncate(image, len(data))
    with lab.server("nbdkit", "-f", "-i", HOST, "-p", str(port), "file", image, port=port):
        at = "nbd://%s:%d" % (HOST, port)
        lab.run("nbdcopy", *options, "big", at)
        lab.run("nbdcopy", *options, at, got)
    for path in (image, got):
        with open(path, "rb") as file:
            same("nbdcopy", file.read(), data)


def ffmpeg(lab):
    """Sends a film from one program to another."""
    port = free_port()
    at = "tcp://%s:%d" % (HOST, port)
    quiet = ("ffmpeg", "-v", "error", "-nostdin", "-y")
    source = ("-f", "lavfi", "-i", "testsrc=size=320x240:rate=25:duration=10", "-pix_fmt", "rgb24", "-f", "rawvideo")
    lab.run(*quiet, *source, "film")
    with lab.server(*quiet, *source, at + "?listen=1", port=port):
        lab.run(*quiet, "-f", "rawvideo", "-pixel_format", "rgb24", "-video_size", "320x240", "-i", at, "-f", "rawvideo", "film-got")
    with open(os.path.join(lab.folder, "film"), "rb") as film, open(os.path.join(lab.folder, "film-got"), "rb") as got:
        same("ffmpeg", got.read(), film.read())


# --- remote work ---------------------------------------------------------------------------------


def distcc(lab):
    """The object files must equal those of a local compiler."""
    port = free_port()
    text = "".join("int f%d(int x) { return x * %d; }\n" % (n, n) for n in range(300))
    write(lab, "dist.c", text)
    lab.run("gcc", "-c", "dist.c", "-o", "here.o")
    with lab.server("distccd", "--no-detach", "--daemon", "--listen", HOST, "-p", str(port), "-a", HOST, "--user", "nobody",
                    "-j", "2", "--enable-tcp-insecure", port=port):
        for _ in range(4):
            lab.run("env", "DISTCC_HOSTS=%s:%d" % (HOST, port), "DISTCC_FALLBACK=0", "DISTCC_DIR=" + lab.folder, "distcc",
                    "gcc", "-c", "dist.c", "-o", "there.o")
            with open(os.path.join(lab.folder, "here.o"), "rb") as here, \
                    open(os.path.join(lab.folder, "there.o"), "rb") as there:
                same("distcc", there.read(), here.read())


def gdbserver(lab):
    port = free_port()
    with lab.server("gdbserver", "--once", "%s:%d" % (HOST, port), "/bin/true", port=port):
        out = lab.run("gdb", "-nx", "-batch", "-ex", "target remote %s:%d" % (HOST, port), "-ex", "break _exit", "-ex",
                      "continue", "-ex", "info registers", "-ex", "continue").decode(errors="replace")
    if "exited normally" not in out:
        raise Failed("gdb: %r" % out[-300:])


MPI = r"""
from mpi4py import MPI
world = MPI.COMM_WORLD
me, peer = world.rank, 1 - world.rank
for power in range(23):
    for turn in range(20):
        data = bytearray([(me + turn) % 256]) * (1 << power)
        got = bytearray(1 << power)
        world.Sendrecv(data, peer, recvbuf=got, source=peer)
        assert got == bytearray([(peer + turn) % 256]) * (1 << power)
        world.Barrier()
"""


MPI_C = r"""
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    int me;
    static char data[1 << 22], got[1 << 22], want[1 << 22];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    for (int turn = 0; turn < 230; turn++) {
        int bytes = 1 << turn % 23;
        memset(data, me + turn, bytes);
        memset(want, 1 - me + turn, bytes);
        MPI_Sendrecv(data, bytes, MPI_CHAR, 1 - me, 0, got, bytes, MPI_CHAR, 1 - me, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (memcmp(got, want, bytes) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
"""


def open_mpi(lab):
    lab.run("env", "OMPI_MCA_rmaps_base_oversubscribe=1", "mpirun", "--allow-run-as-root", "-n", "2", "--mca", "btl",
            "tcp,self", "--mca", "pml", "ob1", "--mca", "btl_tcp_if_include", "lo", "/usr/bin/python3", "-c", MPI)


def mpich(lab):
    """Its UCX by TCP."""
    text = write(lab, "ring.c", MPI_C)
    subprocess.run(["mpicc.mpich", "-O1", "-o", os.path.join(lab.folder, "ring"), text], check=True, capture_output=True)
    lab.run("mpiexec.mpich", "-n", "2", "-genv", "UCX_TLS", "tcp", "-genv", "UCX_NET_DEVICES", "lo", "-genv", "MPIR_CVAR_NOLOCAL",
            "1", "./ring")


# --- measuring -----------------------------------------------------------------------------------


def nuttcp(lab, *options):
    control, port = free_port(), free_port()
    with lab.server("nuttcp", "-S", "--nofork", "-P", str(control), port=control):
        out = lab.run("nuttcp", "-P", str(control), "-p", str(port), "-T1", *options, HOST).decode()
    if not re.search(r" [1-9][\d.]* Mbps", out):
        raise Failed("nuttcp: %r" % out[-200:])


def qperf(lab, *tests):
    port = free_port()
    with lab.server("qperf", "-lp", str(port), port=port):
        out = lab.run("qperf", "-lp", str(port), HOST, "-t", "1", *tests).decode()
    if out.count(" = ") < len(tests):
        raise Failed("qperf: %r" % out[-200:])


def ucx(lab, test, *options):
    port = free_port()
    words = ("env", "UCX_TLS=tcp", "UCX_NET_DEVICES=lo", "ucx_perftest", "-p", str(port))
    with lab.server(*words, port=port):
        lab.run(*words, HOST, "-t", test, *options)


def libfabric(lab, *options):
    """libfabric's own pingpong, with its provider for TCP."""
    port = free_port()
    words = ("env", "FI_TCP_IFACE=lo", "fi_pingpong", "-p", "tcp", "-e", "msg", "-I", "100", "-c")
    with lab.server(*words, "-B", str(port), port=port):
        lab.run(*words, "-P", str(port), *options, HOST)


# --- servers that are started for each connection ------------------------------------------------


def through(lab, port):
    """All input bytes must be in the output."""
    data = big_file(lab)
    for _ in range(2):
        same("socat", lab.run("socat", "-t", "30", "-", "TCP:%s:%d" % (HOST, port), stdin=data), data)


def socat(lab, what):
    port = free_port()
    with lab.server("socat", "TCP-LISTEN:%d,bind=%s,fork,reuseaddr" % (port, HOST), what, port=port):
        through(lab, port)


def xinetd(lab):
    port = free_port()
    config = write(lab, "xinetd.conf", "service echo\n{\n type = UNLISTED\n socket_type = stream\n protocol = tcp\n bind = %s\n"
                   " port = %d\n wait = no\n user = root\n server = /bin/cat\n instances = 10\n cps = 1000 1\n}\n" % (HOST, port))
    with lab.server("xinetd", "-dontfork", "-f", config, "-filelog", "/dev/null", "-pidfile",
                    os.path.join(lab.folder, "xinetd.pid"), port=port):
        through(lab, port)


def socket_activate(lab):
    port = free_port()
    with lab.server("systemd-socket-activate", "-l", "%s:%d" % (HOST, port), "-a", "--inetd", "/bin/cat", port=port):
        through(lab, port)


def ncat(lab, who_sends):
    """One direction: netcat writes all its bytes before it reads."""
    data = big_file(lab)
    port = free_port()
    server = ["< big ncat --send-only", "> nc-got ncat --recv-only"]
    client = ["--recv-only", "--send-only"]
    at = who_sends == "client"
    with lab.server("sh", "-c", "exec %s -l %s %d" % (server[at], HOST, port), port=port) as process:
        out = lab.run("ncat", client[at], HOST, str(port), stdin=data if at else None)
        process.wait(30)
    if at:
        with open(os.path.join(lab.folder, "nc-got"), "rb") as file:
            out = file.read()
    same("ncat", out, data)


def netcat(lab):
    """ncat as a pipe between two shells."""
    data = big_file(lab)
    port = free_port()
    with lab.server("sh", "-c", "exec nc -N -l %s %d < big > nc-got" % (HOST, port), port=port) as server:
        same("nc", lab.run("nc", "-N", HOST, str(port), stdin=data), data)
        server.wait(30)
    with open(os.path.join(lab.folder, "nc-got"), "rb") as file:
        same("nc", file.read(), data)


def dbus(lab):
    port = free_port()
    config = write(lab, "dbus.conf", "<busconfig><type>session</type><listen>tcp:host=%s,port=%d,family=ipv4</listen>"
                   "<auth>ANONYMOUS</auth><allow_anonymous/><policy context='default'><allow send_destination='*' "
                   "eavesdrop='true'/><allow eavesdrop='true'/><allow own='*'/></policy></busconfig>" % (HOST, port))
    with lab.server("dbus-daemon", "--config-file=" + config, "--nofork", "--nopidfile", port=port):
        for _ in range(20):
            out = lab.run("dbus-send", "--bus=tcp:host=%s,port=%d,family=ipv4" % (HOST, port), "--print-reply",
                          "--dest=org.freedesktop.DBus", "/", "org.freedesktop.DBus.ListNames").decode()
            if "org.freedesktop.DBus" not in out:
                raise Failed("dbus: %r" % out)


# --- languages -----------------------------------------------------------------------------------

PERL = r"""
use IO::Select; use IO::Socket::INET; use strict;
my ($role, $port) = @ARGV;
if ($role eq "serve") {
    my $listener = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $port, Listen => 20, ReuseAddr => 1) or die;
    my $select = IO::Select->new($listener);
    while (1) {
        for my $one ($select->can_read) {
            if ($one == $listener) { $select->add(scalar $listener->accept); next }
            if (sysread($one, my $data, 65536)) { my $at = 0; $at += syswrite($one, $data, length($data) - $at, $at) while $at < length $data }
            else { $select->remove($one); close $one }
        }
    }
}
my @sockets = map { IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $port) or die } 1 .. 5;
for my $n (0 .. 17) {
    for my $socket (@sockets) {
        my $data = chr(65 + $n) x (1 << $n); my $got = "";
        $socket->autoflush(1); print $socket $data;
        while (length $got < length $data) { read($socket, $got, length($data) - length $got, length $got) or die }
        die "other bytes" if $got ne $data;
    }
}
"""

RUBY = r"""
require 'socket'
role, port = ARGV
if role == 'serve'
  server = TCPServer.new('127.0.0.1', port.to_i)
  loop { Thread.new(server.accept) { |s| IO.copy_stream(s, s) rescue nil; s.close } }
end
(1..4).map { |k| Thread.new {
  socket = TCPSocket.new('127.0.0.1', port.to_i)
  18.times { |n| data = k.to_s * (1 << n); socket.write(data); raise 'other bytes' if socket.read(data.size) != data }
  socket.puts 'a line'; raise 'a line' if socket.gets != "a line\n"
  socket.close } }.each(&:join)
"""


TCL = r"""
lassign $argv role port
proc accept {s a p} { fconfigure $s -translation binary -blocking 0 -buffering none; fileevent $s readable [list echo $s] }
proc echo {s} { set d [read $s 65536]; if {[eof $s]} { close $s } else { puts -nonewline $s $d } }
if {$role eq "serve"} { socket -server accept -myaddr 127.0.0.1 $port; vwait forever }
for {set n 0} {$n < 17} {incr n} {
    set s [socket 127.0.0.1 $port]; fconfigure $s -translation binary -buffering none
    for {set k 0} {$k < 10} {incr k} {
        set d [string repeat [format %c [expr 65 + $k]] [expr 1 << $n]]
        puts -nonewline $s $d
        if {[read $s [string length $d]] ne $d} { error "other bytes" }
    }
    close $s
}
"""

ERLANG = r"""
-module(echo).
-export([run/1]).
run([serve, P]) -> {ok, L} = gen_tcp:listen(port(P), [binary, {active, once}, {ip, {127,0,0,1}}, {backlog, 50}]), accept(L);
run([talk, P]) -> Me = self(),
    [spawn_link(fun() -> talk(port(P)), Me ! done end) || _ <- lists:seq(1, 8)],
    [receive done -> ok end || _ <- lists:seq(1, 8)], halt(0).
port(P) -> list_to_integer(atom_to_list(P)).
accept(L) -> {ok, S} = gen_tcp:accept(L), P = spawn(fun() -> receive go -> echo(S) end end),
    ok = gen_tcp:controlling_process(S, P), P ! go, accept(L).
echo(S) -> receive {tcp, S, D} -> ok = gen_tcp:send(S, D), inet:setopts(S, [{active, once}]), echo(S); {tcp_closed, S} -> ok end.
talk(P) -> {ok, S} = gen_tcp:connect({127,0,0,1}, P, [binary, {active, false}]),
    [begin D = binary:copy(<<N>>, 1 bsl (N rem 18)), ok = gen_tcp:send(S, D), {ok, D} = gen_tcp:recv(S, byte_size(D)) end
     || N <- lists:seq(0, 200)], gen_tcp:close(S).
"""

TWISTED = r"""
import sys
from twisted.internet import endpoints, protocol, reactor
class Echo(protocol.Protocol):
    def dataReceived(self, data):
        self.transport.write(data)
class Talk(protocol.Protocol):
    left, n, got, want = 20, 0, b"", b""
    def connectionMade(self):
        self.dataReceived(b"")
    def dataReceived(self, data):
        self.got += data
        if len(self.got) < len(self.want):
            return
        assert self.got == self.want
        self.want, self.got, self.n = bytes([self.n]) * (1 << self.n), b"", self.n + 1
        if self.n < 20:
            self.transport.write(self.want)
            return
        self.transport.loseConnection()
        Talk.left -= 1
        if Talk.left == 0:
            reactor.stop()
port = int(sys.argv[2])
if sys.argv[1] == "serve":
    factory = protocol.Factory()
    factory.protocol = Echo
    reactor.listenTCP(port, factory, interface="127.0.0.1")
else:
    for _ in range(20):
        endpoints.connectProtocol(endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port), Talk())
reactor.run()
"""


def twisted(lab):
    talk(lab, TWISTED)


def tcl(lab):
    port = free_port()
    path = write(lab, "echo.tcl", TCL)
    with lab.server("tclsh", path, "serve", str(port), port=port):
        lab.run("tclsh", path, "talk", str(port))


def erlang(lab):
    port = free_port()
    write(lab, "echo.erl", ERLANG)
    lab.run("erlc", "echo.erl")
    words = ("erl", "-noshell", "-s", "echo", "run")
    with lab.server(*words, "serve", str(port), port=port):
        lab.run(*words, "talk", str(port))


def script(lab, program):
    port = free_port()
    text = {"perl": PERL, "ruby": RUBY}[program]
    with lab.server(program, "-e", text, "serve", str(port), port=port):
        lab.run(program, "-e", text, "talk", str(port))


ROWS = [
    ("MariaDB", "mariadbd", [(sysbench, "oltp_read_write"), (sysbench, "oltp_point_select", "--db-ps-mode=disable"),
                             (mariadb_rows,)]),
    ("gRPC", "/usr/bin/python3", [(grpc,)]),
    ("ZeroMQ", "/usr/bin/python3", [(zeromq,)]),
    ("beanstalkd", "beanstalkd", [(beanstalkd,)]),
    ("vsftpd and lftp", "vsftpd", [(vsftpd,), (vsftpd, "seccomp_sandbox=NO", "isolate_network=NO")]),
    ("Samba", "smbd", [(samba,)]),
    ("Subversion", "svnserve", [(subversion,), (subversion, "--threads")]),
    ("nbdkit and nbdcopy", "nbdcopy", [(nbdkit,), (nbdkit, "--connections=1", "--requests=1")]),
    ("FFmpeg", "ffmpeg", [(ffmpeg,)]),
    ("distcc", "distccd", [(distcc,)]),
    ("gdbserver", "gdbserver", [(gdbserver,)]),
    ("Open MPI, btl tcp", "mpirun", [(open_mpi,)]),
    ("MPICH, UCX tcp", "mpicc.mpich", [(mpich,)]),
    ("libfabric", "fi_pingpong", [(libfabric,)]),
    ("UCX", "ucx_perftest", [(ucx, "tag_lat", "-n", "1000"), (ucx, "tag_bw", "-s", "1000000", "-n", "500")]),
    ("nuttcp", "nuttcp", [(nuttcp,), (nuttcp, "-r")]),
    ("qperf", "qperf", [(qperf, "tcp_bw", "tcp_lat")]),
    ("socat", "socat", [(socat, "EXEC:cat"), (socat, "EXEC:cat,nofork")]),
    ("xinetd", "xinetd", [(xinetd,)]),
    ("systemd-socket-activate", "systemd-socket-activate", [(socket_activate,)]),
    ("netcat", "nc", [(netcat,)]),
    ("ncat", "ncat", [(ncat, "server"), (ncat, "client")]),
    ("D-Bus", "dbus-daemon", [(dbus,)]),
    ("Erlang", "erlc", [(erlang,)]),
    ("Tcl", "tclsh", [(tcl,)]),
    ("Twisted", "/usr/bin/python3", [(twisted,)]),
    ("Perl", "perl", [(script, "perl")]),
    ("Ruby", "ruby", [(script, "ruby")]),
]


def suite(folder, library, _options):
    """(new failures, share)."""
    return run_rows("Services", ROWS, folder, library)
