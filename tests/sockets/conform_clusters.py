# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Programs of several servers that also talk to each other, each with clients, all with the library.

Programs that are not installed are left out.
"""
import contextlib
import glob
import os
import shutil

from conform_programs import HOST, Failed, run_rows
from conform_services import write
from lab import free_port

# Debian's JARs of ZooKeeper and of what it needs. It writes its log to standard error by slf4j-simple.
JARS = [jar for name in ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-all", "jline2", "commons-cli",
                         "snappy-java", "metrics-core")
        for jar in glob.glob("/usr/share/java/%s.jar" % name)]
MEMBERS = 3
NODES = 300


def zookeeper(lab):
    """Each server has connections to both others, for elections and for the log; blocking calls and selectors."""
    java = ["java", "-Xmx256m", "-cp", ":".join(JARS)]
    clients = [free_port() for _ in range(MEMBERS)]
    peers = "".join("server.%d=%s:%d:%d\n" % (i + 1, HOST, free_port(), free_port()) for i in range(MEMBERS))
    with contextlib.ExitStack() as servers:
        for i, port in enumerate(clients):
            data = os.path.join(lab.folder, "zookeeper-%d" % i)
            shutil.rmtree(data, ignore_errors=True)  # of the run over the other transport
            os.makedirs(data)
            write(lab, "zookeeper-%d/myid" % i, "%d" % (i + 1))
            config = write(lab, "zookeeper-%d.cfg" % i,
                           "tickTime=500\ninitLimit=20\nsyncLimit=20\ndataDir=%s\nclientPort=%d\nclientPortAddress=%s\n"
                           "admin.enableServer=false\n%s" % (data, port, HOST, peers))
            servers.enter_context(lab.server(*java, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config, port=port))
        # The client waits until the servers have elected a leader. It prints its results to standard error, too.
        commands = "".join("create -s /n data\n" for _ in range(NODES)) + "ls /\nquit\n"
        out = lab.run(*java, "org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-server",
                      ",".join("%s:%d" % (HOST, port) for port in clients), stdin=commands.encode()).decode()
    listing = [line for line in out.splitlines() if line.startswith("[n0")]
    if len(listing) != 1 or listing[0].count(",") != NODES:  # and /zookeeper
        raise Failed("ZooKeeper: %r" % out[-300:])


DASK = r"""
import os, hashlib
from distributed import Client, LocalCluster

def data_of(size):
    return os.urandom(size)

def digest(data):
    return hashlib.sha256(data).digest()

if __name__ == "__main__":
    with LocalCluster(n_workers=3, threads_per_worker=2, processes=True, dashboard_address=None, host="127.0.0.1") as cluster:
        with Client(cluster) as client:
            squares = client.map(lambda x: x * x, range(500))
            assert client.submit(sum, squares).result(60) == sum(x * x for x in range(500))
            datas = [client.submit(data_of, 1 << 16 << i % 9, pure=False) for i in range(27)]
            digests = client.gather(client.map(digest, datas))
            assert [digest(data) for data in client.gather(datas)] == digests
"""


def dask(lab):
    """Workers fetch data from each other; Tornado's and asyncio's loops in processes of several threads."""
    lab.run("/usr/bin/python3", write(lab, "dask_tasks.py", DASK))


ROWS = [
    ("ZooKeeper, three servers", "/usr/share/java/zookeeper.jar", [(zookeeper,)]),
    ("Dask", "/usr/lib/python3/dist-packages/distributed", [(dask,)]),
]


def suite(folder, library, _options):
    """(new failures, share)."""
    return run_rows("Clusters", ROWS, folder, library)
