#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Which folders may include which. Includes of the project are written relative to src/: "core/pipe.h", sim's "sim/...". Within
src/core, a file includes headers of its own layer and of those below."""

import re

import core_layers
import repo

PUBLIC = ["viaduct/", "mpp/", "shmem.h", "shmemx.h", "pshmem.h"]
BASE = ["base/"]
WIRE = BASE + ["wire/"]
CORE = WIRE + ["core/"]
HOST = CORE + ["host/", "port/bell.h", "port/driver.h", "port/slice.h"] + PUBLIC

# Folder: the beginnings of what its files may include. A folder that is not here may not exist.
ALLOWED = {
    "include": PUBLIC,
    "src/base": BASE,
    "src/progress": BASE + ["progress/"],
    "src/wire": WIRE,
    "src/core": CORE,
    "src/vfio": BASE + ["vfio/"],
    "src/model": BASE + ["vfio/", "model/"],
    "src/port": WIRE + ["core/port.h", "vfio/", "model/", "port/"],
    "src/tune": BASE + ["core/pipe.h", "core/port.h", "core/port_target.h", "port/driver.h", "vfio/pci.h", "tune/"],
    "src/card": BASE + ["card/", "vfio/pci.h"],
    "src/host": HOST,
    "src/sockets": CORE + ["host/", "sockets/"] + PUBLIC,
    "src/shmem": CORE + ["host/", "shmem/"] + PUBLIC,
    "src/ip": CORE + ["host/", "ip/"] + PUBLIC,
    "src/metrics": BASE + ["metrics/"],
    "src/daemon": CORE + ["host/", "metrics/", "daemon/"] + PUBLIC,
    "src/cli": BASE + ["card/", "host/control", "host/tuning.h", "cli/", "metrics/", "model/", "port/driver.h", "port/ivshmem/server.h", "progress/", "tune/", "vfio/"] + PUBLIC,
    "sim": CORE + ["sim/", "sockets/stream/", "shmem/", "host/client.h", "host/client_auto.h", "host/host_spin.h", "host/host_wait.h", "host/host_private.h", "host/attach_wire.h", "port/driver.h", "port/ofi/", "port/pex/", "vfio/plx_dma.h", "progress/",
            "model/pex/pex.h"] + PUBLIC,
    "examples": PUBLIC,
}
FREE = ("tests/", "bench/", "tools/")
MAP = "CONTRIBUTING.md"

# Within src/sockets: what the files of a folder may include of the others. An end of a connection, its sets, its fabric and
# how two ends meet know each other: an event at any of them may have to wake a sleeper at any other. The call in hooks that
# a lower folder needs is named with its header.
ENDS = ["process", "stream", "meet", "conn", "io", "epoll", "fabric"]
SOCKETS = {
    "process": ["process"],            # descriptors, locks, memory: nothing of connections
    "stream": ["stream", "process/os.h"], # pure but for the counter of the inline part: one direction, phases, edges
    "meet": ENDS,
    "conn": ENDS + ["hooks/hooks.h"],
    "io": ENDS + ["hooks/signals.h"],
    "epoll": ENDS + ["hooks/hooks.h"],
    "fabric": ENDS,
    "hooks": ENDS + ["hooks"],
}

OURS = {name.split("/")[1] for name in ALLOWED if "/" in name} | {"sim", "viaduct", "mpp", "shmem.h", "shmemx.h", "pshmem.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def folder_of(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "src" and len(parts) > 2 else parts[0]


def stem_of(target):
    return target.split("/")[-1].rsplit(".", 1)[0]


def check_core_file(name):
    """Every file of src/core has a layer, or is the interface."""
    if stem_of(name) in core_layers.LAYER_OF or (name.endswith(".h") and stem_of(name) in core_layers.PUBLIC):
        return []
    return [f"{name}:1: {stem_of(name)} is not in the table of tests/repo/core_layers.py"]


def check_core_include(name, number, target):
    """The interface includes nothing but itself; the pipe does not know the node."""
    own, other = stem_of(name), stem_of(target)
    if name.endswith(".h") and own in core_layers.PUBLIC:
        allowed = other in core_layers.PUBLIC
    elif own.startswith("pipe"):
        allowed = other.startswith("pipe")
    else:
        allowed = other in core_layers.PUBLIC or core_layers.LAYER_OF.get(other, 99) <= core_layers.LAYER_OF.get(own, 0)
    return [] if allowed else [f"{name}:{number}: {own} may not include {target}: it is in a higher layer"]


def check_sockets_include(name, number, target):
    folder = name.split("/")[2]
    allowed = SOCKETS.get(folder, [])
    if target.split("/")[1] in allowed or target.removeprefix("sockets/") in allowed:
        return []
    return [f"{name}:{number}: src/sockets/{folder} may not include {target}"]


def allowed_of(name, folder):
    """The streams between hosts of the simulator are the library's own sources behind a seam (sim/sockets/machine.h)."""
    return ALLOWED[folder] + (["sockets/"] if name.startswith("sim/sockets/") else [])


def check_circles(tree):
    """No header includes itself by way of others. Folders of src/ are ordered by the table above."""
    headers = set(tree.files(".h"))
    edges = {}
    for name in headers:
        targets = [match.group(2) for _, line in tree.lines(name) if (match := INCLUDE.match(line))]
        edges[name] = {path for target in targets for path in ("src/" + target, target, "include/" + target) if path in headers}
    circle = core_layers.find_circle(edges)
    return [f"{circle[0]}:1: headers include each other in a circle: {' > '.join(circle)}"] if circle else []


def check_map(tree):
    """The map of folders in CONTRIBUTING.md names every folder of sources."""
    text = tree.text(MAP) or ""
    folders = {"/".join(name.split("/")[:2]) for name in tree.files(".c", ".h") if name.startswith("src/") and name.count("/") > 1}
    return [f"{MAP}:1: {folder} is not in its map of folders" for folder in sorted(folders) if f"`{folder}`" not in text]


def check(tree, _args):
    complaints = check_circles(tree) + check_map(tree)
    for name in tree.files(".c", ".h"):
        if name.startswith(FREE):
            continue
        folder = folder_of(name)
        if folder not in ALLOWED:
            complaints.append(f"{name}:1: folder {folder} is not in the table of tests/repo/includes.py")
            continue
        if folder == "src/core":
            complaints += check_core_file(name)
        for number, line in tree.lines(name):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, target = match.groups()
            ours = target.split("/")[0] in OURS
            if not ours and quote == '"':
                complaints.append(f'{name}:{number}: "{target}" is not relative to src/')
            elif ours and not target.startswith(tuple(allowed_of(name, folder))):
                complaints.append(f"{name}:{number}: {folder} may not include {target}")
            elif folder == "src/core" and target.startswith("core/"):
                complaints += check_core_include(name, number, target)
            elif folder == "src/sockets" and target.startswith("sockets/"):
                complaints += check_sockets_include(name, number, target)
    return complaints


CLEAN = {
    MAP: "`src/base`, `src/wire`, `src/core`, `src/port`, `src/host`, `src/cli`, `src/shmem`, `src/sockets`, `src/misc`\n",
    "include/viaduct/viaduct.h": "#include <stdint.h>\n",
    "src/core/pipe.c": '#include "core/pipe.h"\n#include <string.h>\n#include "wire/record.h"\n',
    "src/core/flow.h": '#include "core/way.h"\n',
    "src/core/flow_tx.c": '#include "core/flow.h"\n#include "core/node.h"\n',
    "src/core/node.h": '#include "core/port.h"\n',
    "src/core/node.c": '#include "core/channel.h"\n#include "core/node.h"\n',
    "src/port/emu/emu.c": '#include "port/emu/emu.h"\n#include "core/port.h"\n#include "base/log.h"\n',
    "src/cli/main.c": '#include "host/control.h"\n#include <viaduct/viaduct.h>\n',
    "sim/main.c": '#include "sim/world.h"\n#include "core/node.h"\n',
    "src/sockets/conn/conn.c": '#include "sockets/stream/phase.h"\n#include "sockets/hooks/hooks.h"\n',
    "tests/unit/test_any.c": '#include "helper.h"\n#include "sockets/stream/stream.h"\n',
}
PLANTS = [
    ("upwards", {"src/base/a.c": '#include "wire/record.h"\n'}, "src/base may not include wire/record.h"),
    ("core to host", {"src/core/way.h": '#  include <host/host.h>\n'}, "src/core may not include host/host.h"),
    ("port to core", {"src/port/a.c": '#include "core/node.h"\n'}, "src/port may not include core/node.h"),
    ("cli to host", {"src/cli/a.c": '#include "host/host.h"\n'}, "src/cli may not include host/host.h"),
    ("sim to sockets", {"sim/b.c": '#include "sockets/conn/side.h"\n'}, "sim may not include sockets/conn/side.h"),
    ("sim to host", {"sim/a.c": '#include "host/host.h"\n'}, "sim may not include host/host.h"),
    ("sideways", {"src/shmem/a.c": '#include "sockets/stream/stream.h"\n'}, "may not include sockets/stream/stream.h"),
    ("stream to conn", {"src/sockets/stream/a.c": '#include "sockets/conn/side.h"\n'}, "src/sockets/stream may not include sockets/conn/side.h"),
    ("io to hooks", {"src/sockets/io/a.c": '#include "sockets/hooks/hooks.h"\n'}, "src/sockets/io may not include sockets/hooks/hooks.h"),
    ("new folder of sockets", {"src/sockets/a/a.c": '#include "sockets/conn/side.h"\n'}, "src/sockets/a may not include"),
    ("public to private", {"include/viaduct/a.h": '#include "base/types.h"\n'}, "may not include base/types.h"),
    ("core to public", {"src/core/way.c": "#include <viaduct/viaduct.h>\n"}, "may not include viaduct/viaduct.h"),
    ("up a layer", {"src/core/flow_rx.c": '#include "core/op.h"\n'}, "src/core/flow_rx.c:1: flow_rx may not include core/op.h"),
    ("header up a layer", {"src/core/way.h": '#include "core/relay.h"\n'}, "way may not include core/relay.h"),
    ("private in the interface", {"src/core/node.h": '#include "core/layout.h"\n'}, "node may not include core/layout.h"),
    ("pipe to node", {"src/core/pipe.c": '#include "core/node.h"\n'}, "pipe may not include core/node.h"),
    ("no layer", {"src/core/more.c": "\n"}, "src/core/more.c:1: more is not in the table of tests/repo/core_layers.py"),
    ("circle", {"src/base/a.h": '#include "base/b.h"\n', "src/base/b.h": '#include "base/a.h"\n'}, "headers include each other in a circle"),
    ("not in the map", {"src/tune/a.c": "\n"}, "CONTRIBUTING.md:1: src/tune is not in its map of folders"),
    ("relative", {"src/wire/a.c": '#include "record.h"\n'}, "src/wire/a.c:1: \"record.h\" is not relative"),
    ("new folder", {"src/misc/a.c": "\n"}, "folder src/misc is not in the table"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS)
