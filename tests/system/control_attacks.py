# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""What a user without rights does to a control socket; a program that test_daemon_hostile_user.py runs as another
user."""
import array
import contextlib
import json
import os
import socket
import sys
import threading
import time

PATH = sys.argv[1]
STATUS = b'{"cmd":"status"}\n'
# More clients than a daemon accepts of one user, and enough to use up what it holds for all users.
CLIENTS = 60


def connect():
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(60)
    sock.connect(PATH)
    return sock


def line_of(sock):
    data = b""
    while not data.endswith(b"\n"):
        piece = sock.recv(65536)
        if not piece:
            break
        data += piece
    return data.decode()


def send_request(line):
    with connect() as sock:
        sock.sendall(line)
        return line_of(sock)


def malformed():
    lines = [b"\n", b"{\n", b"null\n", b"[]\n", b"{}\n", b"7\n", b'"status"\n', b"\0\0\0\n", b"\xff\xfe\n", b"[" * 4000 + b"\n", b'{"cmd":' * 500 + b"\n",
             b"x" * 4096, b'{"cmd":"' + b"y" * 4000 + b'"}\n', b'{"cmd":7}\n', b'{"cmd":null}\n', b'{"cmd":"\\u0000"}\n', b'{"cmd":"STATUS"}\n',
             b'{"cmd":"status","cmd":"stop"}\n', b'{"cmd":"status","host":1.5}\n', b'{"cmd":"status","host":-1}\n',
             b'{"cmd":"status","host":65536}\n', b'{"cmd":"status","host":9223372036854775807}\n', b'{"cmd":"status","host":1e300}\n',
             b'{"cmd":"status","host":[]}\n', b'{"cmd":"directory","first":-1}\n', b'{"cmd":"directory","first":9223372036854775807}\n',
             b'{"cmd":"directory","count":0}\n', b'{"cmd":"directory","count":-9223372036854775808}\n', b'{"cmd":"directory","first":{}}\n',
             b'{"cmd":"' + "\u00e9".encode() * 60 + b'"}\n', b'{"cmd":"directory","host":2,"x":"' + b"z" * 3900 + b'"}\n']
    for line in lines:
        print(send_request(line).strip())


def rights():
    for words in ({"cmd": "cut", "peer": 2}, {"cmd": "mend", "peer": 2}, {"cmd": "cut", "peer": 2, "link": 0}, {"cmd": "stop"}, {"cmd": "reload"},
                  {"cmd": "measure"}, {"cmd": "stop", "host": 1}, {"cmd": "measured", "peer": 2, "carrier": "kernel", "small": 1, "medium": 1, "stream": 1}):
        print(send_request(json.dumps(words).encode() + b"\n").strip())


def elsewhere():
    print(send_request(b'{"cmd":"stop","host":2}\n').strip())


def descriptors():
    """Sends as many descriptors as a message may have, again and again; a socket whose other end is in the same
    message; and the control socket itself."""
    with connect() as sock:
        for number in range(50):
            ours = [os.open("/dev/null", os.O_RDONLY) for _ in range(250)]
            a, b = socket.socketpair()
            ours += [a.fileno(), b.fileno(), sock.fileno()]
            sock.sendmsg([STATUS if number % 2 else b" "], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", ours))])
            for fd in ours[:250]:
                os.close(fd)
            a.close()
            b.close()
            if number % 2:
                line_of(sock)
    print("answered")


def leave():
    """Closes in the middle of a request, of an answer, and while another host's answer is awaited."""
    for number in range(300):
        with connect() as sock:
            sock.sendall((STATUS * 200, b'{"cmd":"sta', b'{"cmd":"directory","host":2}\n' * 100, b'{"cmd":"status","host":2}\n')[number % 4])
            sock.settimeout(0.01)
            if number % 3 == 0:
                with contextlib.suppress(OSError):
                    sock.recv(7)
            elif number % 3 == 1:
                sock.shutdown(socket.SHUT_WR)
    print("left")


def drips():
    with connect() as sock:
        for byte in STATUS:
            sock.send(bytes([byte]))
            time.sleep(0.005)
        begin = line_of(sock)
        # A client that has shut its output down is answered.
        sock.sendall(STATUS)
        sock.shutdown(socket.SHUT_WR)
        print("answered" if begin.startswith("{") and line_of(sock).startswith("{") else "not answered")


def hold():
    socks = []
    for number in range(CLIENTS):
        sock = connect()
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.send((STATUS * 240, b'{"cmd":"stat', b"", b'{"cmd":"directory","host":2}\n' * 140)[number % 4])
        socks.append(sock)
    print("begins", flush=True)
    time.sleep(3600)


def pipeline():
    """As many requests as the daemon reads at once. Prints how long their answers take, in microseconds."""
    with connect() as sock:
        begin = time.monotonic()
        sock.sendall(STATUS * 240)
        answers = 0
        while answers < 240:
            piece = sock.recv(1 << 20)
            if not piece:
                break
            answers += piece.count(b"\n")
        print(answers, round(1e6 * (time.monotonic() - begin)))


def hogs():
    """As many clients as a user may have, each with requests that wait at any time."""
    socks = [connect() for _ in range(8)]
    for sock in socks:
        sock.setblocking(False)
    print("begins", flush=True)
    while True:
        for sock in socks:
            with contextlib.suppress(BlockingIOError):
                sock.send(STATUS * 50)
            with contextlib.suppress(BlockingIOError):
                sock.recv(1 << 22)


def others():
    """Requests to host 2 from as many clients as a user may have, one after another."""
    def client():
        with connect() as sock:
            while True:
                sock.sendall(b'{"cmd":"status","host":2}\n')
                line_of(sock)
    print("begins", flush=True)
    for _ in range(8):
        threading.Thread(target=client, daemon=True).start()
    time.sleep(3600)


def flood():
    print("begins", flush=True)
    while True:
        with contextlib.suppress(OSError), connect() as sock:
            sock.sendall((STATUS * 240, b'{"cmd":"directory"}\n' * 200)[os.getpid() % 2])
            while sock.recv(1 << 20):
                sock.sendall(STATUS * 100)


globals()[sys.argv[2]]()
