# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Common servers, each with its own clients, both ends with the library: everything that works without the library has
to work with it. The contents of files and tables are compared with the sent data. Programs that are not installed are
left out.
"""
import contextlib
import filecmp
import os
import re
import shutil
import signal
import subprocess
import time

from conform_programs import HOST, Failed, big_file, nginx_config, run_rows, same
from lab import free_port

# Debian's PostgreSQL programs are not in PATH.
POSTGRES = sorted(os.path.join("/usr/lib/postgresql", name, "bin") for name in
                  (os.listdir("/usr/lib/postgresql") if os.path.isdir("/usr/lib/postgresql") else ()))
# PostgreSQL refuses to run as root.
NOBODY = {"user": "nobody"} if os.geteuid() == 0 else {}


# --- PostgreSQL ----------------------------------------------------------------------------------


def postgres_program(name):
    return os.path.join(POSTGRES[-1], name) if POSTGRES else name


@contextlib.contextmanager
def postgres(lab):
    """A server without a UNIX socket, with pgbench's tables; its port."""
    data = os.path.join(lab.folder, "postgres")
    if not os.path.exists(data):
        os.mkdir(data)
        if NOBODY:
            shutil.chown(data, **NOBODY)
        subprocess.run([postgres_program("initdb"), "-D", data, "-A", "trust", "-U", "bench", "-E", "UTF8", "--no-sync"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **NOBODY)
    port = free_port()
    with lab.server(postgres_program("postgres"), "-D", data, "-h", HOST, "-p", str(port), "-k", "", "-c", "fsync=off",
                    port=port, **NOBODY) as server:
        # The server listens before it is ready.
        while subprocess.run([postgres_program("pg_isready"), "-q", *bench_at(port)[:-1]], check=False).returncode == 1:
            time.sleep(0.02)
        lab.run(postgres_program("pgbench"), *bench_at(port), "-i", "-q")
        yield port
        # After SIGTERM the server would wait for its clients, even killed ones.
        server.send_signal(signal.SIGINT)


def bench_at(port):
    return ["-h", HOST, "-p", str(port), "-U", "bench", "postgres"]


def run_sql(lab, port, text, stdin=None):
    return lab.run(postgres_program("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", text, *bench_at(port),
                   stdin=stdin)


def pgbench(lab, *options):
    """Transactions, none of them failed; those that write leave the same sum in all tables."""
    with postgres(lab) as port:
        out = lab.run(postgres_program("pgbench"), *options, *bench_at(port)).decode()
        done = re.search(r"actually processed: (\d+)", out)
        if done is None or int(done.group(1)) == 0 or "failed transactions: 0 " not in out:
            raise Failed("pgbench: %r" % out[-300:])
        sums = run_sql(lab, port, "select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from "
                       "pgbench_branches), (select sum(tbalance) from pgbench_tellers), (select coalesce(sum(delta), 0) "
                       "from pgbench_history)").decode().strip().split("|")
        if len(set(sums)) != 1:
            raise Failed("pgbench: sums of the tables: %s" % sums)


def psql_copy(lab):
    """A table in and out by COPY."""
    lines = b"".join(b"%d\t%d\n" % (n, n * n) for n in range(300000))
    with postgres(lab) as port:
        run_sql(lab, port, "drop table if exists numbers; create table numbers (n bigint, square bigint)")
        run_sql(lab, port, "copy numbers from stdin", lines)
        same("psql", run_sql(lab, port, "copy numbers to stdout"), lines)


def psql_cancel(lab):
    """A time limit ends a query, and the connection continues."""
    with postgres(lab) as port:
        out = lab.run(postgres_program("psql"), "-X", "-q", "-A", "-t", *bench_at(port), stdin=b"set statement_timeout = 200;"
                      b"select pg_sleep(30); set statement_timeout = 0; select 6 * 7;")
        same("psql", out, b"42\n")


def pg_basebackup(lab):
    """Copies the whole cluster over one connection, and meanwhile its log over another."""
    with postgres(lab) as port:
        copy = os.path.join(lab.folder, "copy")
        lab.run(postgres_program("pg_basebackup"), "-D", copy, "-X", "stream", "-c", "fast", "--no-sync",
                *bench_at(port)[:-1])
        try:
            lab.run(postgres_program("pg_verifybackup"), copy)
        finally:
            shutil.rmtree(copy)


# --- memcached, mosquitto ------------------------------------------------------------------------


def memcached(lab, client, *options):
    """Its protocol's tests, or load that verifies what it gets."""
    port = free_port()
    more = ("-u", "nobody") if NOBODY else ()
    with lab.server("memcached", "-l", HOST, "-p", str(port), "-t", "2", *more, port=port):
        where = ("-h", HOST, "-p", str(port)) if client == "memccapable" else ("-s", "%s:%d" % (HOST, port))
        out = lab.run(client, *where, *options).decode()
    if client == "memcaslap" and not re.search(r"TPS: [1-9]", out):
        raise Failed("memcaslap: %r" % out[-300:])


def mosquitto(lab, *options):
    """A subscriber gets every published line, in order."""
    port = free_port()
    config = os.path.join(lab.folder, "mosquitto.conf")
    with open(config, "w", encoding="ascii") as file:
        file.write("listener %d %s\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n%s" %
                   (port, HOST, "user nobody\n" if NOBODY else ""))
    lines = b"".join(b"message %d\n" % n for n in range(5000))
    at = ("-h", HOST, "-p", str(port), "-t", "lines", *options)
    with lab.server("mosquitto", "-c", config, port=port):
        # A persistent session, so that the subscriber gets all lines, even those published before it connects.
        session = ("-c", "-i", "reader", "-W", "30")
        with contextlib.suppress(Failed):
            lab.run("mosquitto_sub", *at, "-c", "-i", "reader", "-E")
        lab.run("mosquitto_pub", *at, "-l", stdin=lines)
        same("mosquitto", lab.run("mosquitto_sub", *at, *session, "-C", "5000"), lines)


# --- proxies, load -------------------------------------------------------------------------------


def haproxy(lab, mode, *options):
    """A file through it."""
    data = big_file(lab)
    ports = (free_port(), free_port())
    front = free_port()
    config = os.path.join(lab.folder, "haproxy.cfg")
    with open(config, "w", encoding="ascii") as file:
        file.write("global\n nbthread 2\n"
                   "defaults\n mode %s\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n%s"
                   "frontend f\n bind %s:%d\n default_backend b\nbackend b\n server s %s:%d\n"
                   % (mode, "".join(" option %s\n" % word for word in options), HOST, front, HOST, ports[0]))
    with lab.server("nginx", "-c", nginx_config(lab, ports), port=ports[0]), \
            lab.server("haproxy", "-f", config, "-db", port=front):
        url = "http://%s:%d/big" % (HOST, front)
        same("haproxy", lab.run("curl", "-sS", *[url] * 4), data * 4)


def ab(lab, *options):
    big_file(lab)
    with open(os.path.join(lab.folder, "small"), "wb") as file:
        file.write(b"x" * 1000)
    ports = (free_port(), free_port())
    with lab.server("nginx", "-c", nginx_config(lab, ports), port=ports[0]):
        out = lab.run("ab", "-q", *options, "http://%s:%d/small" % (HOST, ports[0])).decode()
    if not re.search(r"^Failed requests: +0$", out, re.MULTILINE) or "Non-2xx" in out:
        raise Failed("ab: %r" % out[-300:])


# --- files ---------------------------------------------------------------------------------------


def tree(lab):
    """A folder of big and small files."""
    top = os.path.join(lab.folder, "tree")
    if not os.path.exists(top):
        os.makedirs(os.path.join(top, "small"))
        for n in range(300):
            with open(os.path.join(top, "small", str(n)), "wb") as file:
                file.write(os.urandom(n * 17))
        with open(os.path.join(top, "big"), "wb") as file:
            file.write(os.urandom(16 << 20))
    return top


def check_tree(name, copy, top):
    for folder in ("", "small"):
        left, right = os.path.join(copy, folder), os.path.join(top, folder)
        names = [entry for entry in os.listdir(right) if os.path.isfile(os.path.join(right, entry))]
        if filecmp.cmpfiles(left, right, names, shallow=False)[0] != names:
            raise Failed("%s: files differ" % name)


def rsync(lab, *options):
    """To the daemon and back."""
    top = tree(lab)
    port = free_port()
    there, back = (os.path.join(lab.folder, name) for name in ("there", "back"))
    os.makedirs(there)
    config = os.path.join(lab.folder, "rsyncd.conf")
    with open(config, "w", encoding="ascii") as file:
        file.write("use chroot = no\naddress = %s\n[there]\n path = %s\n read only = no\n%s" %
                   (HOST, there, " uid = root\n gid = root\n" if NOBODY else ""))
    try:
        with lab.server("rsync", "--daemon", "--no-detach", "--config", config, "--port", str(port), port=port):
            url = "rsync://%s:%d/there/" % (HOST, port)
            lab.run("rsync", "-a", *options, top + "/", url)
            check_tree("rsync", there, top)
            lab.run("rsync", "-a", *options, url, back)
            check_tree("rsync", back, top)
    finally:
        for folder in (there, back):
            shutil.rmtree(folder, ignore_errors=True)


def git(lab):
    """Clone from a daemon, and push to it."""
    port = free_port()
    top = os.path.join(lab.folder, "git")
    os.makedirs(top)
    env = ("env", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a", "GIT_COMMITTER_NAME=a",
           "GIT_COMMITTER_EMAIL=a@a", "git", "-c", "safe.directory=*")
    try:
        lab.run(*env, "init", "-q", "--bare", "git/repo")
        with lab.server("git", "daemon", "--reuseaddr", "--export-all", "--enable=receive-pack", "--base-path=" + top,
                        "--listen=" + HOST, "--port=%d" % port, top, port=port):
            url = "git://%s:%d/repo" % (HOST, port)
            for name in ("one", "two"):
                lab.run(*env, "clone", "-q", url, "git/" + name)
            shutil.copytree(tree(lab), top + "/one/tree")
            lab.run(*env, "-C", "git/one", "add", ".")
            lab.run(*env, "-C", "git/one", "commit", "-q", "-m", "tree")
            lab.run(*env, "-C", "git/one", "push", "-q", "origin", "HEAD:refs/heads/new")
            lab.run(*env, "-C", "git/two", "fetch", "-q", "origin", "new")
            lab.run(*env, "-C", "git/two", "checkout", "-q", "FETCH_HEAD")
            check_tree("git", top + "/two/tree", tree(lab))
    finally:
        shutil.rmtree(top)


def ssh(lab, way):
    """A file through a shell, by sftp, and through a forwarded port."""
    data = big_file(lab)
    port = free_port()
    os.makedirs("/run/sshd", exist_ok=True)
    keys = os.path.join(lab.folder, "keys")
    if not os.path.exists(keys):
        os.mkdir(keys, 0o700)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(keys, name)], check=True)
    options = [word for option in ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR",
                                   "IdentitiesOnly=yes", "IdentityFile=" + keys + "/user", "BatchMode=yes")
               for word in ("-o", option)]
    with lab.server("/usr/sbin/sshd", "-D", "-f", "/dev/null", "-h", keys + "/host", "-o", "ListenAddress=%s:%d" % (HOST, port),
                    "-o", "AuthorizedKeysFile=" + keys + "/user.pub", "-o", "StrictModes=no", "-o", "UsePAM=no",
                    "-o", "PidFile=none", "-o", "PermitRootLogin=yes", "-o", "Subsystem=sftp internal-sftp", port=port):
        if way == "sftp":
            lab.run("scp", "-P", str(port), *options, "%s:%s/big" % (HOST, lab.folder), "got")
            with open(os.path.join(lab.folder, "got"), "rb") as file:
                same("scp", file.read(), data)
        else:
            same("ssh", lab.run("ssh", "-p", str(port), *options, HOST, "cat", stdin=data), data)


# --- languages -----------------------------------------------------------------------------------

PYTHON_ECHO = r"""
import asyncio, os, sys
if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.install()
port = int(sys.argv[3])
async def serve(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def talk(size, count):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        data = os.urandom(size)
        writer.write(data)
        if await reader.readexactly(size) != data:
            sys.exit("other bytes came back")
    writer.close()
    await writer.wait_closed()
async def main():
    if sys.argv[2] == "serve":
        async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
            await server.serve_forever()
    else:
        await asyncio.gather(*[talk(1 << n, 1 << (20 - n)) for n in range(8, 20)])
asyncio.run(main())
"""


def python(lab, loop):
    port = free_port()
    words = ("/usr/bin/python3", "-c", PYTHON_ECHO, loop)
    with lab.server(*words, "serve", str(port), port=port):
        lab.run(*words, "talk", str(port))


NODE_SERVE = r"""
const http = require('http');
http.createServer((request, response) => request.pipe(response)).listen(+process.argv[1], '127.0.0.1');
"""
NODE_TALK = r"""
const http = require('http'), crypto = require('crypto');
const agent = new http.Agent({keepAlive: true});
const one = size => new Promise((resolve, reject) => {
  const data = crypto.randomBytes(size), parts = [];
  http.request({port: +process.argv[1], host: '127.0.0.1', method: 'POST', agent}, response => {
    response.on('data', part => parts.push(part));
    response.on('end', () => Buffer.concat(parts).equals(data) ? resolve() : reject(new Error('other bytes')));
  }).on('error', reject).end(data);
});
(async () => {
  for (let n = 0; n < 22; n++)
    await Promise.all(Array.from({length: 20}, () => one(1 << n)));
  agent.destroy();
})().catch(error => { console.error(error); process.exit(1); });
"""


def node(lab):
    port = free_port()
    with lab.server("node", "-e", NODE_SERVE, str(port), port=port):
        lab.run("node", "-e", NODE_TALK, str(port))


JAVA_ECHO = r"""
import com.sun.net.httpserver.HttpServer;
import java.net.*;
import java.net.http.*;
import java.util.*;
public class Echo {
    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]);
        if (args[0].equals("serve")) {
            HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
            server.createContext("/", exchange -> {
                byte[] data = exchange.getRequestBody().readAllBytes();
                exchange.sendResponseHeaders(200, data.length == 0 ? -1 : data.length);
                exchange.getResponseBody().write(data);
                exchange.close();
            });
            server.start();
            return;
        }
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        for (int n = 0; n < 400; n++) {
            byte[] data = new byte[1 << n % 22];
            new Random(n).nextBytes(data);
            HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/"))
                .POST(HttpRequest.BodyPublishers.ofByteArray(data)).build();
            byte[] got = client.send(request, HttpResponse.BodyHandlers.ofByteArray()).body();
            if (!Arrays.equals(got, data)) throw new Exception("other bytes came back");
        }
        System.exit(0);
    }
}
"""


def java(lab):
    source = os.path.join(lab.folder, "Echo.java")
    with open(source, "w", encoding="ascii") as file:
        file.write(JAVA_ECHO)
    port = free_port()
    with lab.server("java", source, "serve", str(port), port=port):
        lab.run("java", source, "talk", str(port))


ROWS = [
    ("PostgreSQL", postgres_program("postgres"), [
        (pgbench, "-S", "-T", "1"), (pgbench, "-S", "-c", "8", "-j", "2", "-T", "1"), (pgbench, "-c", "4", "-T", "1"),
        (pgbench, "-c", "4", "-M", "prepared", "-T", "1"), (pgbench, "-S", "-C", "-c", "4", "-T", "1"),
        (psql_copy,), (psql_cancel,), (pg_basebackup,)]),
    ("memcached", "memcached", [(memcached, "memccapable"), (memcached, "memcaslap", "-t", "2s", "-v", "0.5"),
                                (memcached, "memcaslap", "-t", "2s", "-B", "-T", "2", "-c", "16")]),
    ("mosquitto", "mosquitto", [(mosquitto, "-q", "1"), (mosquitto, "-q", "2")]),
    ("haproxy", "haproxy", [(haproxy, "tcp"), (haproxy, "http"), (haproxy, "tcp", "splice-auto")]),
    ("ab and nginx", "ab", [(ab, "-n", "2000", "-c", "8"), (ab, "-k", "-n", "20000", "-c", "16")]),
    ("rsync", "rsync", [(rsync,), (rsync, "-z"), (rsync, "--bwlimit=50M")]),
    ("git", "git", [(git,)]),
    ("ssh", "/usr/sbin/sshd", [(ssh, "shell"), (ssh, "sftp")]),
    ("Python", "/usr/bin/python3", [(python, "asyncio"), (python, "uvloop")]),
    ("Node.js", "node", [(node,)]),
    ("Java", "java", [(java,)]),
]


def suite(folder, library, _options):
    """(new failures, share)."""
    return run_rows("Servers", ROWS, folder, library)
