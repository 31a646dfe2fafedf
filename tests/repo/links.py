#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Links of the documents lead to files of the tree, anchors to headings of theirs, and sources that they name exist."""

import posixpath
import re

import repo

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.M)
FENCE = re.compile(r"^( *)```.*?^\1```", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
# A source as the documents name it; CHANGELOG.md may name what is gone.
SOURCE = re.compile(r"(?<![\w/.-])(?:src|sim|tests|tools|bench|hw|cmake)/[\w./-]+\.(?:c|h|py|sh|v|vh|ini|cmake)\b")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def anchors(text):
    """As GitHub and mkdocs make them: letters, digits, - and _; blanks become -; doubles get a number."""
    found = {}
    for heading in HEADING.findall(FENCE.sub(blank, text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        if count:
            found["%s-%d" % (slug, count)] = 1
    return set(found)


def check(tree, _args):
    complaints = []
    names = set(tree.names)
    folders = {posixpath.dirname(name) for name in names}
    for name in tree.files(".md"):
        text = tree.text(name)
        shown = CODE.sub(blank, FENCE.sub(blank, text))
        for match in LINK.finditer(shown):
            target = text[match.start(1):match.end(1)]
            if re.match(r"[a-z]+:", target):
                continue
            line = text.count("\n", 0, match.start()) + 1
            path, _, anchor = target.partition("#")
            file = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if file not in names and file not in folders:
                complaints.append(f"{name}:{line}: {target}: there is no {file}")
            elif anchor and file.endswith(".md") and anchor not in anchors(tree.text(file)):
                complaints.append(f"{name}:{line}: {target}: {file} has no such heading")
        for match in SOURCE.finditer("" if name == "CHANGELOG.md" else text):
            if match.group() not in names:
                line = text.count("\n", 0, match.start()) + 1
                complaints.append(f"{name}:{line}: there is no {match.group()}")
    return complaints


CLEAN = {
    "README.md": "# A title\n[x](docs/a.md) [y](docs/a.md#two-words-1) [z](#a-title) [m](docs/man/x.1) [d](docs) [w](https://x.example/y)\n"
                 "```\n[no](link)\n```\n`[no](link)`\n",
    "docs/a.md": "## Two words\n## Two `words`\n[up](../README.md)\nsee `src/a.c`, build/src/b.c\n",
    "src/a.c": "",
    "CHANGELOG.md": "- `src/b.c` is gone\n",
    "docs/man/x.1": ".TH x 1\n",
}
PLANTS = [
    ("file", {"docs/b.md": "\n[x](c.md)\n"}, "docs/b.md:2: c.md: there is no docs/c.md"),
    ("picture", {"docs/b.md": "![x](pictures/c.svg)\n"}, "there is no docs/pictures/c.svg"),
    ("anchor", {"docs/b.md": "[x](a.md#three)\n"}, "docs/a.md has no such heading"),
    ("anchor in a fence", {"docs/b.md": "```\n# Three\n```\n[x](#three)\n"}, "docs/b.md has no such heading"),
    ("source", {"docs/b.md": "\nas in src/b/c.py.\n"}, "docs/b.md:2: there is no src/b/c.py"),
    ("own anchor", {"docs/b.md": "# One\n[x](#two)\n"}, "docs/b.md has no such heading"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS)
