# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Web servers, proxies and application servers, each with clients, both ends with the library. Each
test ends with a comparison of all sent data. Programs that are not installed are left out.
"""
import contextlib
import hashlib
import os
import re
import subprocess

from conform_programs import HOST, Failed, big_file, nginx_config, run_rows, same
from lab import free_port


def write(lab, name, text):
    path = os.path.join(lab.folder, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


def url(port, path="big"):
    return "http://%s:%d/%s" % (HOST, port, path)


@contextlib.contextmanager
def origin(lab):
    """Starts a server behind the proxies, with a big file and a small one. Returns its port."""
    big_file(lab)
    write(lab, "small", "x" * 1000)
    ports = (free_port(), free_port())
    with lab.server("nginx", "-c", nginx_config(lab, ports), port=ports[0]):
        yield ports[0]


def fetch(lab, port, *options):
    """Loads the big file several times over one connection, and by another client."""
    data = big_file(lab)
    same("curl", lab.run("curl", "-sS", *options, *[url(port)] * 3), data * 3)


def load(lab, port):
    """Loads the small file many times, over persistent connections, and over one connection each."""
    for options in (("-k", "-n", "10000", "-c", "16"), ("-n", "1000", "-c", "4")):
        out = lab.run("ab", "-q", *options, url(port, "small")).decode()
        if not re.search(r"^Failed requests: +0$", out, re.MULTILINE) or "Non-2xx" in out:
            raise Failed("ab: %r" % out[-300:])


def h2load(lab, port):
    out = lab.run("h2load", "-n", "5000", "-c", "8", "-m", "16", "-t", "2", url(port, "small")).decode()
    if "5000 succeeded, 0 failed" not in out:
        raise Failed("h2load: %r" % out[-400:])


# --- servers -------------------------------------------------------------------------------------


def apache(lab, kind):
    """Apache with processes (prefork) or threads (event)."""
    port = free_port()
    write(lab, "small", "x" * 1000)
    config = write(lab, "apache.conf", "ServerRoot /usr/lib/apache2\nDefaultRuntimeDir %s\nPidFile %s/apache.pid\n"
                   "LoadModule mpm_%s_module modules/mod_mpm_%s.so\nLoadModule authz_core_module modules/mod_authz_core.so\n"
                   "ServerName test\nListen %s:%d\nErrorLog %s/apache.log\nUser nobody\nGroup nogroup\nDocumentRoot %s\n"
                   "MaxKeepAliveRequests 0\n"
                   % (lab.folder, lab.folder, kind, kind, HOST, port, lab.folder, lab.folder))
    big_file(lab)
    # Apache ends its whole process group.
    with lab.server("apache2", "-f", config, "-DFOREGROUND", port=port, start_new_session=True):
        fetch(lab, port)
        load(lab, port)


def lighttpd(lab):
    port = free_port()
    write(lab, "small", "x" * 1000)
    config = write(lab, "lighttpd.conf", 'server.document-root = "%s"\nserver.bind = "%s"\nserver.port = %d\n'
                   "server.max-keep-alive-requests = 100000\n" % (lab.folder, HOST, port))
    big_file(lab)
    with lab.server("lighttpd", "-D", "-f", config, port=port):
        fetch(lab, port)
        load(lab, port)


ECHO_RU = "run ->(env) { [200, { 'content-type' => 'application/octet-stream' }, [env['rack.input'].read]] }\n"


def post(lab, port, path="", *options):
    """All sizes, there and back."""
    for size in (1, 1000, 100_000, 10_000_000):
        data = os.urandom(size)
        same("curl", lab.run("curl", "-sS", "-H", "Expect:", "-H", "Content-Type: application/octet-stream",
                             "--data-binary", "@-", *options, url(port, path), stdin=data), data)


def puma(lab, *options):
    port = free_port()
    config = write(lab, "echo.ru", ECHO_RU)
    with lab.server("puma", "-b", "tcp://%s:%d" % (HOST, port), *options, config, port=port):
        post(lab, port)


def php(lab):
    """By FastCGI over TCP, behind nginx."""
    port, front = free_port(), free_port()
    write(lab, "echo.php", "<?php echo file_get_contents('php://input');\n")
    config = write(lab, "fpm.conf", "[global]\nerror_log = %s/fpm.log\ndaemonize = no\n[www]\nuser = nobody\n"
                   "group = nogroup\nlisten = %s:%d\npm = static\npm.max_children = 2\n"
                   "php_admin_value[post_max_size] = 64M\n" % (lab.folder, HOST, port))
    with open(nginx_config(lab, (front, free_port())), encoding="ascii") as file:
        text = file.read().replace("root %s;" % lab.folder, "root %s; client_max_body_size 64m; location / { "
                                   "include /etc/nginx/fastcgi_params; fastcgi_pass %s:%d; fastcgi_keep_conn on; "
                                   "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }"
                                   % (lab.folder, HOST, port), 1)
    with lab.server("php-fpm8.2", "-F", "-y", config, port=port), \
            lab.server("nginx", "-c", write(lab, "php.conf", text), port=front):
        post(lab, front, "echo.php")


# --- proxies -------------------------------------------------------------------------------------


def squid(lab):
    port = free_port()
    config = write(lab, "squid.conf", "http_port %s:%d\nhttp_access allow all\npid_filename none\naccess_log none\n"
                   "cache_log /dev/null\nshutdown_lifetime 0 seconds\ncache_effective_user nobody\n"
                   "cache_effective_group nogroup\nnetdb_filename none\npinger_enable off\n" % (HOST, port))
    with origin(lab) as behind, lab.server("squid", "-N", "-f", config, port=port):
        fetch(lab, behind, "-x", "%s:%d" % (HOST, port))
        fetch(lab, behind, "-x", "%s:%d" % (HOST, port), "--proxytunnel")


def varnish(lab):
    port = free_port()
    with origin(lab) as behind, \
            lab.server("varnishd", "-F", "-a", "%s:%d" % (HOST, port), "-b", "%s:%d" % (HOST, behind), "-j", "none",
                       "-n", os.path.join(lab.folder, "varnish"), "-s", "malloc,200m", "-T", "none", port=port):
        fetch(lab, port)
        load(lab, port)


def tinyproxy(lab):
    port = free_port()
    config = write(lab, "tinyproxy.conf", "Port %d\nListen %s\nTimeout 60\nMaxClients 20\n" % (port, HOST))
    with origin(lab) as behind, lab.server("tinyproxy", "-d", "-c", config, port=port):
        fetch(lab, behind, "-x", "%s:%d" % (HOST, port))


def nghttpx(lab):
    """HTTP/2 (by h2load) and HTTP/1.1 (by curl) in front."""
    port = free_port()
    with origin(lab) as behind, lab.server("nghttpx", "--conf=/dev/null", "--workers=2", "--no-ocsp",
                                           "--frontend=%s,%d;no-tls" % (HOST, port),
                                           "--backend=%s,%d" % (HOST, behind), port=port):
        fetch(lab, port)
        h2load(lab, port)


def stunnel(lab):
    """TLS in front, plain behind."""
    port = free_port()
    key = os.path.join(lab.folder, "tls.pem")
    if not os.path.exists(key):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", key + ".crt",
                        "-subj", "/CN=test", "-days", "2"], check=True, capture_output=True)
    with origin(lab) as behind:
        config = write(lab, "stunnel.conf", "foreground = yes\npid =\nsyslog = no\n[web]\naccept = %s:%d\nconnect = %s:%d\n"
                       "cert = %s.crt\nkey = %s\n" % (HOST, port, HOST, behind, key, key))
        with lab.server("stunnel", config, port=port):
            data = big_file(lab)
            same("curl", lab.run("curl", "-sSk", *["https://%s:%d/big" % (HOST, port)] * 2), data * 2)


def aria2(lab):
    """One file by several connections."""
    got = os.path.join(lab.folder, "aria")
    with origin(lab) as port:
        data = big_file(lab)
        lab.run("aria2c", "-q", "--no-conf", "-x", "4", "-s", "4", "-k", "1M", "-o", "aria", "--allow-overwrite=true",
                "--file-allocation=none", url(port))
    with open(got, "rb") as file:
        same("aria2c", file.read(), data)
    os.unlink(got)


def wget(lab):
    with origin(lab) as port:
        data = big_file(lab)
        same("wget", lab.run("wget", "-q", "-O", "-", *[url(port)] * 3), data * 3)


def siege(lab):
    """Many threads, each with blocking calls."""
    settings = write(lab, "siege.conf", "connection = keep-alive\nlogging = false\nverbose = false\nprotocol = HTTP/1.1\n")
    with origin(lab) as port:
        out = lab.run("env", "HOME=" + lab.folder, "siege", "-R", settings, "-b", "-c", "16", "-r", "300", "-j",
                      url(port, "small")).decode()
    if not re.search(r'"transactions":\s+4800\b', out) or not re.search(r'"failed_transactions":\s+0\b', out):
        raise Failed("siege: %r" % out[-300:])


def h2o(lab):
    """HTTP/2 without TLS, and HTTP/1.1."""
    port = free_port()
    config = write(lab, "h2o.conf", "listen:\n  host: %s\n  port: %d\nnum-threads: 2\n%shosts:\n  default:\n    paths:\n"
                   "      /:\n        file.dir: %s\n" % (HOST, port, "user: root\n" if os.geteuid() == 0 else "", lab.folder))
    write(lab, "small", "x" * 1000)
    with lab.server("h2o", "-c", config, port=port):
        fetch(lab, port)
        load(lab, port)
        h2load(lab, port)


def caddy(lab):
    """A Go program, which makes its own system calls."""
    port = free_port()
    write(lab, "small", "x" * 1000)
    with lab.server("env", "HOME=" + lab.folder, "caddy", "file-server", "--listen", "%s:%d" % (HOST, port), "--root", lab.folder,
                    port=port):
        fetch(lab, port)
        load(lab, port)


def microsocks(lab):
    """A thread for each connection, which poll()s both ends."""
    port = free_port()
    with origin(lab) as behind, lab.server("microsocks", "-i", HOST, "-p", str(port), port=port):
        fetch(lab, behind, "--socks5", "%s:%d" % (HOST, port))


CHROMIUM_PAGE = """<html><body><script>
const hex = bytes => Array.from(new Uint8Array(bytes), byte => byte.toString(16).padStart(2, '0')).join('');
const digest = async () => hex(await crypto.subtle.digest('SHA-256', await (await fetch('big?' + Math.random())).arrayBuffer()));
Promise.all(Array.from({length: 4}, digest)).then(digests => { document.body.textContent = 'digests ' + digests; });
</script></body></html>
"""


def chromium(lab):
    """Several processes with seccomp filters; one has the connections, and libevent's epoll set."""
    write(lab, "page.html", CHROMIUM_PAGE)
    with origin(lab) as port:
        with open(os.path.join(lab.folder, "big"), "rb") as file:
            expected = ",".join([hashlib.sha256(file.read()).hexdigest()] * 4)
        # As root, Chromium runs without its sandbox of namespaces only.
        out = lab.run("chromium", "--headless", *(["--no-sandbox"] if os.geteuid() == 0 else []), "--disable-gpu",
                      "--user-data-dir=" + os.path.join(lab.folder, "chromium"), "--virtual-time-budget=60000",
                      "--dump-dom", url(port, "page.html")).decode()
    if "digests " + expected not in out:
        raise Failed("chromium: %r" % out[-300:])


ROWS = [
    ("Apache", "apache2", [(apache, "event"), (apache, "prefork")]),
    ("lighttpd", "lighttpd", [(lighttpd,)]),
    ("Puma", "puma", [(puma, "-t", "4:4"), (puma, "-w", "2")]),
    ("PHP", "php-fpm8.2", [(php,)]),
    ("Squid", "squid", [(squid,)]),
    ("Varnish", "varnishd", [(varnish,)]),
    ("Tinyproxy", "tinyproxy", [(tinyproxy,)]),
    ("nghttpx and h2load", "nghttpx", [(nghttpx,)]),
    ("stunnel", "stunnel", [(stunnel,)]),
    ("aria2", "aria2c", [(aria2,)]),
    ("wget", "wget", [(wget,)]),
    ("siege", "siege", [(siege,)]),
    ("h2o and h2load", "h2o", [(h2o,)]),
    ("Caddy (Go)", "caddy", [(caddy,)]),
    ("microsocks", "microsocks", [(microsocks,)]),
    ("Chromium", "chromium", [(chromium,)]),
]


def suite(folder, library, _options):
    """(new failures, share)."""
    return run_rows("Web", ROWS, folder, library)
