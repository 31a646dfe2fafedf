# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Servers of names, directories and mail, each with clients, both ends with the library.

Programs that are not installed are left out.
"""
import os
import re
import shutil
import time

from conform_programs import HOST, Failed, run_rows
from conform_services import python, write
from lab import free_port

# Names of the records of a zone.
NAMES = ["host%04d" % n for n in range(3000)]


def address(n):
    return "10.1.%d.%d" % (n // 250, n % 250 + 1)


def dig(lab, port, *words):
    return lab.run("dig", "@" + HOST, "-p", str(port), "+tcp", "+tries=1", *words).decode()


def check_names(lab, port):
    """Several questions on one connection, and one per connection. The server listens before it has read its zone."""
    deadline = time.monotonic() + 15
    while dig(lab, port, "+short", NAMES[0] + ".test") == "" and time.monotonic() < deadline:
        time.sleep(0.05)
    some = range(0, len(NAMES), 100)
    for batch in ([list(some)] + [[n] for n in list(some)[:10]]):
        out = dig(lab, port, "+short", "+keepopen", *["%s.test" % NAMES[n] for n in batch]).split()
        if sorted(out) != sorted(address(n) for n in batch):
            raise Failed("dig: %r" % out[:10])


def dnsmasq(lab):
    """A process for each connection."""
    port = free_port()
    hosts = write(lab, "dns-hosts", "".join("%s %s.test\n" % (address(n), name) for n, name in enumerate(NAMES)))
    user = ("--user=root",) if os.geteuid() == 0 else ()
    with lab.server("dnsmasq", "-k", "-C", "/dev/null", "-p", str(port), "-a", HOST, "--bind-interfaces", "--no-resolv",
                    "--no-hosts", "--addn-hosts=" + hosts, "--pid-file", *user, port=port):
        check_names(lab, port)


def named(lab):
    """A server on libuv; a whole zone in one answer."""
    port = free_port()
    zone = write(lab, "zone", "$TTL 60\n@ SOA ns root 1 60 60 60 60\n@ NS ns\nns A 127.0.0.1\n" +
                 "".join("%s A %s\n" % (name, address(n)) for n, name in enumerate(NAMES)))
    config = write(lab, "named.conf", 'options { directory "%s"; listen-on port %d { %s; }; listen-on-v6 { none; }; recursion '
                   'no; pid-file none; session-keyfile none; allow-transfer { any; }; dnssec-validation no; managed-keys-directory '
                   '"%s"; };\ncontrols { };\nzone "test" { type primary; file "%s"; };\n'
                   % (lab.folder, port, HOST, lab.folder, zone))
    with lab.server("named", "-f", "-c", config, "-n", "2", "-S", "1000", port=port):
        check_names(lab, port)
        for _ in range(3):
            got = re.findall(r"^(host\d+)\.test\.\s.*\sA\s+(\S+)$", dig(lab, port, "axfr", "test"), re.MULTILINE)
            if got != [(name, address(n)) for n, name in enumerate(NAMES)]:
                raise Failed("dig axfr: %d of %d records" % (len(got), len(NAMES)))


def openldap(lab):
    """Threads, and one of them that waits for all connections."""
    port = free_port()
    top = os.path.join(lab.folder, "ldap")
    os.mkdir(top)
    config = write(lab, "slapd.conf", "include /etc/ldap/schema/core.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n"
                   "pidfile %s/pid\nsizelimit unlimited\ndatabase mdb\nmaxsize 100000000\nsuffix dc=test\nrootdn cn=me,dc=test\n"
                   "rootpw me\ndirectory %s\ndbnosync\n" % (top, top))
    at = ["-x", "-H", "ldap://%s:%d" % (HOST, port), "-D", "cn=me,dc=test", "-w", "me"]
    people = "".join("dn: cn=%s,dc=test\nobjectClass: person\nsn: %d\ndescription: %s\n\n" % (name, n, "x" * n)
                     for n, name in enumerate(NAMES[:500]) if n > 0)
    try:
        with lab.server("slapd", "-d", "0", "-f", config, "-h", "ldap://%s:%d" % (HOST, port), port=port):
            lab.run("ldapadd", *at, stdin=("dn: dc=test\nobjectClass: dcObject\nobjectClass: organization\no: test\n\n" +
                                           people).encode())
            for _ in range(5):
                out = lab.run("ldapsearch", *at, "-LLL", "-o", "ldif-wrap=no", "-b", "dc=test", "(objectClass=person)", "sn",
                              "description").decode()
                got = re.findall(r"^sn: (\d+)\ndescription: (x+)$", out, re.MULTILINE)
                if sorted((int(n), len(text)) for n, text in got) != [(n, n) for n in range(1, 500)]:
                    raise Failed("ldapsearch: %d entries" % len(got))
    finally:
        shutil.rmtree(top)


MAIL = r"""
import imaplib, poplib, sys
many = [b"Subject: %d\r\n\r\n" % n + (b"x" * 70 + b"\r\n") * (n * 20) for n in range(60)]
imap = imaplib.IMAP4("127.0.0.1", int(sys.argv[1]))
imap.login("me", "me")
for text in many:
    assert imap.append("INBOX", None, None, text)[0] == "OK"
imap.select("INBOX")
other = imaplib.IMAP4("127.0.0.1", int(sys.argv[1]))
other.login("me", "me")
other.select("INBOX")
for client in (imap, other):
    got = [part[1] for part in client.fetch("1:*", "(RFC822)")[1] if isinstance(part, tuple)]
    assert got == many
    client.logout()
pop = poplib.POP3("127.0.0.1", int(sys.argv[2]))
pop.user("me")
pop.pass_("me")
for n, text in enumerate(many):
    assert b"\r\n".join(pop.retr(n + 1)[1]) + b"\r\n" == text
pop.quit()
"""


def dovecot(lab):
    """One process talks until it knows the user, then it hands the connection to another by SCM_RIGHTS."""
    imap, pop = free_port(), free_port()
    top = os.path.join(lab.folder, "dovecot")
    os.mkdir(top)
    if os.geteuid() == 0:  # dovecot started by root does not keep the mail of user nobody
        shutil.chown(top, "nobody")
    keep = "LD_PRELOAD VIADUCT_SOCKETS_STATS VIADUCT_SOCKETS_AFTER"
    config = write(lab, "dovecot.conf", "base_dir = %s/run\nstate_dir = %s\nlog_path = %s/log\nprotocols = imap pop3\nssl = no\n"
                   "listen = %s\nimport_environment = %s\ndisable_plaintext_auth = no\nmail_location = mdbox:%s/mail\n"
                   "mail_uid = nobody\nmail_gid = nogroup\nfirst_valid_uid = 1\ndefault_login_user = nobody\ndefault_internal_user = nobody\n"
                   "default_internal_group = nogroup\nauth_mechanisms = plain login\n"
                   "passdb {\n driver = static\n args = password=me\n}\nuserdb {\n driver = static\n args = home=%s/home\n}\n"
                   "service imap-login {\n chroot =\n inet_listener imap {\n port = %d\n }\n inet_listener imaps {\n port = 0\n }\n}\n"
                   "service pop3-login {\n chroot =\n inet_listener pop3 {\n port = %d\n }\n inet_listener pop3s {\n port = 0\n }\n}\n"
                   "service anvil {\n chroot =\n}\nservice stats {\n chroot =\n}\n"
                   % (top, top, top, HOST, keep, top, top, imap, pop))
    try:
        with lab.server("dovecot", "-F", "-c", config, port=imap):
            python(lab, MAIL, imap, pop)
    finally:
        shutil.rmtree(top)


ROWS = [
    ("dnsmasq", "dnsmasq", [(dnsmasq,)]),
    ("BIND", "named", [(named,)]),
    ("OpenLDAP", "slapd", [(openldap,)]),
    ("Dovecot", "dovecot", [(dovecot,)]),
]


def suite(folder, library, _options):
    """(new failures, share)."""
    return run_rows("Names, mail", ROWS, folder, library)
