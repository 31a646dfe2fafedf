# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The layers of src/core, from the lowest up. A file uses its own layer and those below; includes.py checks the
headers, symbols.py the calls. Calls within a layer are free, but have no circle."""

# The interface: the calls of a node, and those of a port.
PUBLIC = ["node", "port"]

LAYERS = [
    ["pipe", "pipe_inline", "port_target", "layout"],
    ["way", "dma", "send", "arm"],
    ["segment", "apply"],
    ["flow", "flow_tx", "flow_rx"],
    ["op", "outgoing", "answer", "barrier", "ops"],
    ["relay", "link", "lsdb", "lsa", "route", "greet", "control_pipe"],
    ["channel", "node"],
]

LAYER_OF = {name: number for number, layer in enumerate(LAYERS, 1) for name in layer}


def find_circle(edges):
    """A circle in {from: {to}} as a list that ends as it begins, or None."""
    done = set()

    def walk(node, path):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        for other in sorted(edges.get(node, ())):
            circle = walk(other, [*path, node])
            if circle:
                return circle
        done.add(node)
        return None

    for start in sorted(edges):
        circle = walk(start, [])
        if circle:
            return circle
    return None
