# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Debian's source packages, by apt-get, into a folder of the caller's: the machine's own lists stay as they are."""
import os
import re
import subprocess


def source_lists(parts):
    """Writes apt's sources of this machine for source packages; sources that have none fail without an error."""
    os.makedirs(parts)
    for folder in ("/etc/apt", "/etc/apt/sources.list.d"):
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if name.endswith((".sources", ".list")):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    text = re.sub(r"^Types:.*$", "Types: deb-src", file.read(), flags=re.MULTILINE)
                with open(os.path.join(parts, name), "w", encoding="utf-8") as file:
                    file.write(re.sub(r"^deb\s", "deb-src ", text, flags=re.MULTILINE))


def fetch(folder, package, program):
    """(the unpacked source of the package that installed `program`, None), or (None, the reason for a failure). If an
    update has replaced that version in the archive, the newest one."""
    apt = os.path.join(folder, "apt")
    parts = os.path.join(folder, "parts")
    os.makedirs(os.path.join(apt, "partial"))
    source_lists(parts)
    options = {"Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": parts, "Dir::State::lists": apt,
               "Dir::Cache::pkgcache": "", "Dir::Cache::srcpkgcache": "", "APT::Sandbox::User": "root"}
    words = ["apt-get", "-qq", *[word for pair in options.items() for word in ("-o", "%s=%s" % pair)]]
    version = subprocess.run(["dpkg-query", "-W", "-f", "${source:Version}", program], capture_output=True, text=True,
                             check=False).stdout

    def get(*more):
        done = subprocess.run([*words, *more], cwd=folder, capture_output=True, text=True, check=False, timeout=600)
        return None if done.returncode == 0 else "apt-get %s: %s" % (more[0], done.stderr.strip()[-300:])

    why = get("update")
    if why is None and get("source", "--only-source", "%s=%s" % (package, version)) is not None:
        why = get("source", "--only-source", package)
    if why is not None:
        return None, why
    trees = [name for name in os.listdir(folder) if name.startswith(package + "-") and
             os.path.isdir(os.path.join(folder, name))]
    if len(trees) != 1:
        return None, "apt-get source: no tree"
    return os.path.join(folder, trees[0]), None
