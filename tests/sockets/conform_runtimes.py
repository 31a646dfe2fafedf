# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The network libraries of languages, each in both roles, both ends with the library: the event loops that most servers
of that language use. Languages that are not installed are left out.
"""
import os
import subprocess

from conform_programs import Failed, big_file, run_rows, same
from conform_services import talk, write
from lab import free_port, go_program

# --- Java ----------------------------------------------------------------------------------------

NETTY = r"""
import io.netty.bootstrap.*;
import io.netty.buffer.*;
import io.netty.channel.*;
import io.netty.channel.nio.*;
import io.netty.channel.socket.nio.*;
import java.util.concurrent.*;
public class Netty {
    static class Back extends ChannelInboundHandlerAdapter {
        public void channelRead(ChannelHandlerContext context, Object data) { context.write(data); }
        public void channelReadComplete(ChannelHandlerContext context) { context.flush(); }
        public void channelWritabilityChanged(ChannelHandlerContext context) {
            context.channel().config().setAutoRead(context.channel().isWritable());
        }
    }
    static class Talk extends SimpleChannelInboundHandler<ByteBuf> {
        final CompletableFuture<Void> done;
        int turn = -1, left = 0;
        Talk(CompletableFuture<Void> done) { this.done = done; }
        void next(ChannelHandlerContext context) {
            if (++turn == 42) { done.complete(null); context.close(); return; }
            byte[] data = new byte[left = 1 << turn % 21];
            for (int n = 0; n < left; n++) data[n] = (byte)((left - n) * 31 + turn);
            context.writeAndFlush(Unpooled.wrappedBuffer(data));
        }
        public void channelActive(ChannelHandlerContext context) { next(context); }
        protected void channelRead0(ChannelHandlerContext context, ByteBuf data) {
            while (data.isReadable())
                if (data.readByte() != (byte)(left-- * 31 + turn)) {
                    done.completeExceptionally(new Exception("other bytes came back"));
                    return;
                }
            if (left == 0) next(context);
        }
        public void channelInactive(ChannelHandlerContext context) {
            done.completeExceptionally(new Exception("ended at turn " + turn));
        }
    }
    public static void main(String[] args) throws Exception {
        NioEventLoopGroup loops = new NioEventLoopGroup(3);
        int port = Integer.parseInt(args[1]);
        if (args[0].equals("serve")) {
            new ServerBootstrap().group(loops).channel(NioServerSocketChannel.class).childHandler(
                new ChannelInitializer<Channel>() {
                    protected void initChannel(Channel channel) { channel.pipeline().addLast(new Back()); }
                }).bind("127.0.0.1", port).sync().channel().closeFuture().sync();
            return;
        }
        CompletableFuture<?>[] all = new CompletableFuture<?>[20];
        for (int n = 0; n < all.length; n++) {
            CompletableFuture<Void> done = new CompletableFuture<>();
            all[n] = done;
            new Bootstrap().group(loops).channel(NioSocketChannel.class).handler(new Talk(done)).connect("127.0.0.1", port).sync();
        }
        CompletableFuture.allOf(all).get(60, TimeUnit.SECONDS);
        loops.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }
}
"""
JARS = ["/usr/share/java/netty-%s.jar" % part for part in ("transport", "buffer", "common", "resolver")]


def compiled_java(lab, name, text, jars=()):
    """Words that run it."""
    path = write(lab, name + ".java", text)
    classes = ":".join([lab.folder, *jars])
    if not os.path.exists(os.path.join(lab.folder, name + ".class")):
        subprocess.run(["javac", "-cp", classes, "-d", lab.folder, path], check=True, capture_output=True)
    return "java", "-XX:TieredStopAtLevel=1", "-cp", classes, name


def both_roles(lab, *words):
    port = free_port()
    with lab.server(*words, "serve", str(port), port=port):
        lab.run(*words, "talk", str(port))


def netty(lab):
    both_roles(lab, *compiled_java(lab, "Netty", NETTY, JARS))


# Asynchronous channels: a thread that waits in epoll, one-shot, for all of them.
JAVA_ASYNC = r"""
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.util.concurrent.*;
public class Async {
    static void echo(AsynchronousSocketChannel channel, ByteBuffer data) {
        channel.read(data, null, new CompletionHandler<Integer, Void>() {
            public void completed(Integer count, Void none) {
                if (count < 0) { failed(null, null); return; }
                data.flip();
                back(channel, data);
            }
            public void failed(Throwable error, Void none) { try { channel.close(); } catch (Exception e) { } }
        });
    }
    static void back(AsynchronousSocketChannel channel, ByteBuffer data) {
        channel.write(data, null, new CompletionHandler<Integer, Void>() {
            public void completed(Integer count, Void none) {
                if (data.hasRemaining()) { back(channel, data); return; }
                data.clear();
                echo(channel, data);
            }
            public void failed(Throwable error, Void none) { try { channel.close(); } catch (Exception e) { } }
        });
    }
    static void talk(int port) throws Exception {
        AsynchronousSocketChannel channel = AsynchronousSocketChannel.open();
        channel.connect(new InetSocketAddress("127.0.0.1", port)).get();
        for (int turn = 0; turn < 60; turn++) {
            ByteBuffer data = ByteBuffer.allocate(1 << turn % 19), got = ByteBuffer.allocate(data.capacity());
            while (data.hasRemaining()) data.put((byte)(data.position() * 31 + turn));
            data.flip();
            Future<Integer> reads = channel.read(got);
            while (data.hasRemaining()) channel.write(data).get();
            while (true) {
                if (reads.get() < 0) throw new Exception("ended");
                if (!got.hasRemaining()) break;
                reads = channel.read(got);
            }
            got.flip();
            data.rewind();
            if (!got.equals(data)) throw new Exception("other bytes came back");
        }
        channel.close();
    }
    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]);
        if (args[0].equals("serve")) {
            AsynchronousServerSocketChannel listener = AsynchronousServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", port));
            while (true) echo(listener.accept().get(), ByteBuffer.allocateDirect(30000));
        }
        ExecutorService pool = Executors.newFixedThreadPool(8);
        Future<?>[] all = new Future<?>[8];
        for (int n = 0; n < all.length; n++) all[n] = pool.submit(() -> { talk(port); return null; });
        for (Future<?> one : all) one.get();
        System.exit(0);
    }
}
"""


def java_async(lab):
    both_roles(lab, *compiled_java(lab, "Async", JAVA_ASYNC))


# --- Rust and Go ---------------------------------------------------------------------------------

TOKIO_MANIFEST = """[package]
name = "echo"
version = "0.1.0"
edition = "2021"
[dependencies]
tokio = { version = "1", features = ["net", "io-util", "rt-multi-thread"] }
"""
TOKIO = r"""
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
type Any = Box<dyn std::error::Error + Send + Sync>;
async fn back(mut stream: TcpStream) -> std::io::Result<u64> {
    let (mut from, mut to) = stream.split();
    tokio::io::copy(&mut from, &mut to).await
}
async fn talk(port: u16, seed: usize) -> Result<(), Any> {
    let (mut from, mut to) = TcpStream::connect(("127.0.0.1", port)).await?.into_split();
    for turn in 0..63 {
        let data: Vec<u8> = (0..1usize << turn % 21).map(|n| (n * 31 + turn + seed) as u8).collect();
        let mut got = vec![0u8; data.len()];
        let copy = data.clone();
        let sender = tokio::spawn(async move { to.write_all(&copy).await.map(|_| to) });
        from.read_exact(&mut got).await?;
        to = sender.await??;
        if got != data { return Err("other bytes came back".into()); }
    }
    to.shutdown().await?;
    if from.read(&mut [0u8]).await? != 0 { return Err("no end".into()); }
    Ok(())
}
async fn run(role: String, port: u16) -> Result<(), Any> {
    if role == "serve" {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        loop { let (stream, _) = listener.accept().await?; tokio::spawn(back(stream)); }
    }
    let all: Vec<_> = (0..16).map(|seed| tokio::spawn(talk(port, seed))).collect();
    for one in all { one.await??; }
    Ok(())
}
fn main() -> Result<(), Any> {
    let words: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build()?;
    runtime.block_on(run(words[1].clone(), words[2].parse()?))
}
"""


def tokio(lab):
    top = os.path.join(lab.folder, "tokio")
    os.makedirs(os.path.join(top, "src"), exist_ok=True)
    write(lab, "tokio/Cargo.toml", TOKIO_MANIFEST)
    write(lab, "tokio/src/main.rs", TOKIO)
    built = subprocess.run(["cargo", "build", "-q", "--release", "--manifest-path", top + "/Cargo.toml"], check=False,
                           capture_output=True, text=True, env={**os.environ, "CARGO_TARGET_DIR": top + "/target"})
    if built.returncode != 0:
        raise Failed("cargo: %s" % built.stderr[-200:])
    both_roles(lab, top + "/target/release/echo")


def go(lab, who_serves):
    """A Go program makes its own system calls, so the kernel carries it: its peer is one with the library."""
    port = free_port()
    program, at = go_program(), "127.0.0.1:%d" % port
    if who_serves == "socat":
        with lab.server("socat", "TCP-LISTEN:%d,bind=127.0.0.1,reuseaddr,fork" % port, "EXEC:cat", port=port):
            lab.run(program, "talk", at, "30000000")
        return
    data = big_file(lab)
    with lab.server(program, "serve", at, port=port):
        same("socat", lab.run("socat", "-t", "30", "-", "TCP:" + at, stdin=data), data)


# --- Python --------------------------------------------------------------------------------------

TORNADO = r"""
import asyncio, os, sys
from tornado import httpclient, ioloop, web
class Echo(web.RequestHandler):
    def post(self):
        self.write(self.request.body)
port = int(sys.argv[2])
async def serve():
    web.Application([("/", Echo)]).listen(port, "127.0.0.1", max_buffer_size=1 << 30)
    await asyncio.Event().wait()
async def one(client, size):
    data = os.urandom(size)
    got = await client.fetch("http://127.0.0.1:%d/" % port, method="POST", body=data)
    assert got.body == data
async def talk():
    client = httpclient.AsyncHTTPClient(max_clients=8)
    for n in range(22):
        await asyncio.gather(*[one(client, 1 << n) for _ in range(16)])
asyncio.run(serve() if sys.argv[1] == "serve" else talk())
"""


def tornado(lab):
    talk(lab, TORNADO)


GEVENT = r"""
from gevent import monkey
monkey.patch_all()
import os, sys, gevent, urllib.request
from gevent.pywsgi import WSGIServer
port = int(sys.argv[2])
def answer(environ, start):
    start("200 OK", [("Content-Type", "application/octet-stream")])
    return [environ["wsgi.input"].read()]
def talk(size):
    data = os.urandom(size)
    assert urllib.request.urlopen("http://127.0.0.1:%d/" % port, data).read() == data
if sys.argv[1] == "serve":
    WSGIServer(("127.0.0.1", port), answer, log=None).serve_forever()
for n in range(22):
    gevent.joinall([gevent.spawn(talk, 1 << n) for _ in range(16)], raise_error=True)
"""


def gevent(lab):
    """libev."""
    talk(lab, GEVENT)


# --- Node.js -------------------------------------------------------------------------------------

NODE_CLUSTER = r"""
const cluster = require('cluster'), http2 = require('http2'), net = require('net'), crypto = require('crypto');
const [role, port] = [process.argv[1], +process.argv[2]];
const answer = stream => { stream.respond({':status': 200}); stream.pipe(stream); };
function serve() {
  if (cluster.isPrimary) { cluster.fork(); cluster.fork(); }
  else http2.createServer().on('stream', answer).listen(port, '127.0.0.1');
  process.on('SIGTERM', () => process.exit(0));
}
const one = (session, size) => new Promise((resolve, reject) => {
  const data = crypto.randomBytes(size), parts = [], stream = session.request({':method': 'POST', ':path': '/'});
  stream.on('data', part => parts.push(part)).on('error', reject);
  stream.on('end', () => Buffer.concat(parts).equals(data) ? resolve() : reject(new Error('other bytes')));
  stream.end(data);
});
async function talk() {
  const sessions = Array.from({length: 6}, () => http2.connect('http://127.0.0.1:' + port));
  for (let n = 0; n < 21; n++)
    await Promise.all(sessions.flatMap(session => Array.from({length: 8}, () => one(session, 1 << n))));
  sessions.forEach(session => session.close());
}
role === 'serve' ? serve() : talk().catch(error => { console.error(error); process.exit(1); });
"""


def node_cluster(lab):
    """HTTP/2; one process accepts and hands each connection to another by SCM_RIGHTS."""
    both_roles(lab, "node", "-e", NODE_CLUSTER)


ROWS = [
    ("Netty", JARS[0], [(netty,)]),
    ("Java, asynchronous", "javac", [(java_async,)]),
    ("tokio", "cargo", [(tokio,)]),
    ("Go and socat", "go", [(go, "socat"), (go, "echo.go")]),
    ("Tornado", "/usr/bin/python3", [(tornado,)]),
    ("gevent", "/usr/bin/python3", [(gevent,)]),
    ("Node.js, cluster", "node", [(node_cluster,)]),
]


def suite(folder, library, _options):
    """(new failures, share)."""
    return run_rows("Runtimes", ROWS, folder, library)
