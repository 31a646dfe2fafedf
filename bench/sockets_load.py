# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Shared by the benchmarks of whole systems: CPU time of processes, CSV, and plots."""
import csv
import json
import os
import resource
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402


class Used:
    """CPU time of the processes that were started and waited for inside the block: `seconds`."""

    def __enter__(self):
        self._before = self._now()
        self.seconds = 0.0
        return self

    def __exit__(self, *_args):
        self.seconds = self._now() - self._before

    @classmethod
    def _now(cls):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime


def bytes_name(size):
    """65536 -> 64K."""
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor and size % factor == 0:
            return "%d%s" % (size // factor, unit)
    return str(size)


def numbers(text):
    return [int(word) for word in text.split(",")]


def options_for_files(parser):
    """The options that keep() reads."""
    for name in ("--json", "--csv", "--plot"):
        parser.add_argument(name)


def keep(options, results, head, rows, draw):
    """Writes the files that the options name: results as JSON, head and rows as CSV, and a plot by draw(path)."""
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows(rows)
    if options.plot:
        draw(options.plot)


def plot(path, title, panels, log=True):
    """panels: (label of x, label of y, {line's name: [(x, y), ...]}), side by side; to a PNG file."""
    try:
        import matplotlib  # only here: tables need no plots
    except ImportError as error:
        raise measure.Failure("matplotlib: import for %s: %s; run tools/install-packages (it is of Debian's "
                              "/usr/bin/python3)" % (path, error)) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, len(panels), figsize=(7 * len(panels), 5), squeeze=False)
    for axis, (x_label, y_label, lines) in zip(axes[0], panels):
        for name, points in lines.items():
            axis.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3,
                      label=name)
        if log:
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
        axis.set_xlabel(x_label)
        axis.set_ylabel(y_label)
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(fontsize=8)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
