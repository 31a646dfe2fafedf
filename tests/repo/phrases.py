#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""No phrase that readers from other projects did not understand. Each has its reason, and what to write instead.
Words of our own are in docs/glossary.md."""

import re

import repo

# A phrase is refused in every file; `texts` everywhere but in the checks of this folder, whose plants contain some.
EVERYWHERE = [
    (r"do(?:es)? not please", "say what is wrong: 'fail validation'"),
    (r"is no friend", "name the threat: 'a hostile writer may have erased it'"),
    (r"times sooner", "'59 times faster'"),
    (r"makes? way for it", "name the act: 'yields the CPU'"),
    (r"means? no good", "name the threat: 'a hostile peer'"),
    (r"looks on", "'checks', 'runs too'"),
    (r"all the same(?=[.:;])", "'nevertheless'; it also reads as 'all equal'"),
]
TEXTS = [
    (r"who waits(?! for (?:whom|which))", "name the actor: the reader, the writer, a thread that waits"),
    (r"somebody|anybody|someone|anyone", "name the actor: another process, another user, a peer"),
    (r"whoever", "name the actor: 'a process that', 'each host that'"),
    (r"is rung|are rung|be rung", "active voice, and who does it: 'the writer wakes the reader'"),
    (r"for good", "'permanently', 'from then on'; it also reads as 'for a good purpose'"),
    (r"'s affair", "'is up to the launcher', 'the driver defines it'"),
    (r"believe it", "name the rule: 'accepted after three answers'"),
    (r"the end of all", "'the full close', 'the end of the run'"),
    (r"as far as (?:was|is) known", "'recorded'; say who knows it"),
    (r"is sooner|are sooner", "'is faster', 'is earlier'"),
    (r"heeds?|heeded", "'handle', 'obey', 'follow'"),
    (r"has seen enough", "'the reader closed the pipe'"),
    (r"it does not matter who", "name the actors that may do it"),
    (r"everybody|everyone", "name the actors: 'all hosts', 'all PEs', 'every thread'"),
    (r"(?:for|of|by|from) who [a-z]+s", "name the actor: 'for a peer that connects', 'by the thread that sends'"),
    (r"what (?:it|they) (?:said|says?) of (?:itself|themselves)", "name the thing: 'its entry in the directory'"),
    (r"takes? it all the same|waits? all the same|goes? all the same", "'nevertheless'"),
    (r"in vain", "say what did not happen: 'finds nothing', 'without an answer', 'waits forever'"),
    (r"hears? of", "'receives', 'learns of', 'notices'; say by which message or call"),
    (r"tells? of|told of", "'reports', 'announces', 'logs', 'notifies'; say to whom"),
    (r"(?:is|are|was|were|be|has|have) told(?! apart)", "'gets the answer', 'is reported', 'is notified'; say by what"),
    (r"no news", "'nothing has changed', 'no message has arrived'"),
    (r"what (?:came|comes|became|becomes?) of", "name the thing: 'the result of', 'the new state of'"),
    (r"thrown away|throws? away", "'discarded', 'freed', 'closed'"),
    (r"get rid of", "'send', 'free', 'close'; say which"),
    (r"past (?:any|the|a) library", "'by system calls, which the library does not see'"),
    (r"none the worse", "say what still works: 'host 0 serves the next peer'"),
    (r"has no heart", "'sends no heartbeats'"),
    (r"shown out", "'refused', 'closed'"),
    (r"hangs? (?:a|the|its) note", "'posts a note'"),
    (r"for ever", "'forever', or the event that ends it: 'until the peer closes'"),
    (r"so (?:many|much|long|often)(?! (?:that|as|after|ago))|(?:this|that) (?:many|much)",
     "name the constant, the parameter or the number: '`count` hosts', 'waits for PATIENCE_NS'"),
    (r"(?:goes|go|went) by", "'goes through the kernel', 'is sent in frames', 'is copied by DMA', 'obeys the greater number'"),
    (r"of no use", "say what fails: 'an engine that refuses', 'does not support it'"),
    (r"what there (?:is|was)", "name the things: 'the part that was made', 'half of the limit'"),
    (r"(?:is|are|was|were|been) (?:not |no longer )?heard(?: of| any more)?|heard of", "name the messages: 'its frames arrive', 'its requests wait'"),
    (r"(?:know|knows|knew) nothing of", "say what it lacks: 'can not see', 'does not depend on', 'the segment does not exist there'"),
    (r"nothing tells", "name the reporter: 'the kernel does not report when'"),
    (r"anew", "'again', 'restarts', 'another'; say what is new"),
    (r"(?:asks?|asked|asking) the kernel", "'queries the kernel', 'polls'; say by which call"),
    (r"lets? go of", "'releases', 'closes', 'frees'"),
]
# Refused everywhere but in the change log of old days.
REWRITTEN = [
    # Not the user of that name.
    (r"(?<![.\"',=:])(?<![=:] )(?<!ser )nobody(?!\")", "name the actor: 'no thread', 'no process', 'no host'"),
    (r"(?:looks?|looked|looking) (?:again|at it)", "'checks', 'polls', 'loads', 'reads'; say what"),
    (r"looks? at (?:the|a|all|each|one|its) (?:word|words|links?|hosts?|credits?|ports?)", "'polls', 'loads', 'reads', 'checks'"),
    (r"next look|last look|the look", "'the next poll', 'the last check', 'the load of ...'"),
]
REWRITTEN_PLACES = re.compile(r"(?!CHANGELOG|LICENSES/)")
# Where `texts` are refused.
PLACES = re.compile(r"(?!LICENSES/|tests/repo/)")
SUFFIXES = (".md", ".c", ".h", ".in", ".py", ".sh", ".txt", ".1", ".3", ".5", ".7", ".8", ".conf", ".cpp")
SELF = "tests/repo/phrases.py"  # the check itself has to say the phrases


def compiled(phrase):
    return re.compile(rf"(?<![\w-])(?:{phrase})(?![\w-])")


EVERYWHERE_RE, TEXTS_RE, REWRITTEN_RE = ([(compiled(phrase), reason) for phrase, reason in table] for table in (EVERYWHERE, TEXTS, REWRITTEN))
# One scan for all phrases: most files contain none, and a scan for each phrase takes 15 times as long.
ANY_RE = compiled("|".join(f"(?:{phrase})" for phrase, _ in EVERYWHERE + TEXTS + REWRITTEN))


def refused_in(name):
    return (EVERYWHERE_RE + (TEXTS_RE if PLACES.match(name) else []) +
            (REWRITTEN_RE if REWRITTEN_PLACES.match(name) else []))


def unwrapped(text):
    """The text with line ends and comment stars as spaces, each as long as before, so that a phrase over two lines is
    found, and its place is that of its first word."""
    text = re.sub(r"\n([ \t]*)(\*|#)?(?=[ \t])", lambda m: " " * len(m.group()), text)
    return re.sub(r"[\n\t]", " ", text)


def check(tree, _args):
    complaints = []
    for name in tree.files(*SUFFIXES):
        text = tree.text(name)
        if text is None or name == SELF:
            continue
        flat = re.sub(r"  +", lambda m: " " + "\0" * (len(m.group()) - 1), unwrapped(text))
        # Runs of blanks count as one: their rest is left out, with a table back to the places in the file.
        short, places = flat.replace("\0", ""), None
        lower = short.lower()
        if not ANY_RE.search(lower):
            continue
        for phrase, reason in refused_in(name):
            for match in phrase.finditer(lower):
                if short[match.start():match.end()].isupper():
                    continue  # the name of a constant
                places = places or [i for i, char in enumerate(flat) if char != "\0"]
                line = text.count("\n", 0, places[match.start()]) + 1
                complaints.append(f"{name}:{line}: '{short[match.start():match.end()]}': {reason} (docs/glossary.md)")
    return complaints


LICENCE = f"/* {repo.SPDX} */\n"
CLEAN = {
    "docs/a.md": "The writer wakes the reader. `viaduct shmem` shows who waits for whom. It waits for so long that it is late.\n",
    "tests/unit/a.c": LICENCE + "/* run as user nobody */\nchar *self = \"nobody\";\n",
}
PLANTS = [
    ("everywhere", {"src/core/a.c": LICENCE + "/* its writer is no friend */\n"}, "src/core/a.c:2: 'is no friend'"),
    ("in texts", {"docs/b.md": "x\n\nWhoever comes first.\n"}, "docs/b.md:3: 'Whoever'"),
    ("over two lines", {"docs/b.md": "x\nso who\nwaits is woken\n"}, "docs/b.md:2: 'who waits'"),
    ("over a comment's lines", {"src/cli/b.c": LICENCE + "/*\n * this is the end\n * of all.\n */\n"},
     "src/cli/b.c:3: 'the end of all'"),
    ("in sources", {"src/sockets/b.h": LICENCE + "/* whoever sleeps */\n"}, "src/sockets/b.h:2: 'whoever'"),
    ("rewritten folders", {"src/core/c.h": LICENCE + "/* Nobody sleeps */\n"}, "src/core/c.h:2: 'Nobody'"),
    ("tests", {"tests/unit/b.c": LICENCE + "/* somebody listens */\n"}, "tests/unit/b.c:2: 'somebody'"),
    ("simulator", {"sim/b.c": LICENCE + "/* the next look */\n"}, "sim/b.c:2: 'next look'"),
    ("people", {"docs/b.md": "everybody waits\n"}, "docs/b.md:1: 'everybody'"),
    ("no actor", {"docs/b.md": "room for who connects\n"}, "docs/b.md:1: 'for who connects'"),
    ("looks", {"sim/b.c": LICENCE + "/* The thread looks at all links. */\n"}, "sim/b.c:2: 'looks at all links'"),
    ("reported", {"docs/b.md": "the program is told of an error\n"}, "docs/b.md:1: 'is told'"),
    ("nothing found", {"sim/b.c": LICENCE + "/* it polls in vain */\n"}, "sim/b.c:2: 'in vain'"),
    ("forever", {"docs/b.md": "it waits for ever\n"}, "docs/b.md:1: 'for ever'"),
    ("a constant", {"src/core/c.h": LICENCE + "/* waits so long */\n#define WAIT_NS 5\n"}, "src/core/c.h:2: 'so long'"),
    ("a number", {"sim/b.c": LICENCE + "/* Drops that many\n * bytes. */\n"}, "sim/b.c:2: 'that many'"),
    ("a query", {"src/core/c.h": LICENCE + "/* asks the\n * kernel anew */\n"}, "src/core/c.h:2: 'asks the kernel'"),
    ("a way", {"docs/b.md": "bytes go by the kernel\n"}, "docs/b.md:1: 'go by'"),
    ("readme", {"README.md": "# x\nfor good\n"}, "README.md:2: 'for good'"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS)
