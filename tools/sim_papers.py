# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The published systems: their figures, and the run of the cost model that each is compared with."""
import math

NONE, MANY = math.nan, math.inf
HELD = "held out"  # the paper has a figure, and no parameter was fitted to it
FIT = "fitted"  # the same, but parameters were fitted to it
PREDICTED = "predicted"  # model only: no measurement exists
QUOTED = "quoted"  # paper only: background that the model does not cover
KIB, MIB = 1024, 1 << 20


class Row:
    """A figure. The model fits the paper if its value is from low to high. A claim is one that docs/costs.md states; outside it is broken."""

    def __init__(self, series, label, x, x_unit, unit, role, paper=NONE, low=0.0, high=0.0, model=NONE, is_range=False, claim=False):
        self.series, self.label, self.x, self.x_unit, self.unit, self.role = series, label, x, x_unit, unit, role
        self.paper, self.low, self.high, self.model, self.is_range, self.claim = paper, low, high, model, is_range, claim

    def has_bound(self):
        return self.role in (HELD, FIT)

    def fits(self):
        return not self.has_bound() or self.low <= self.model <= self.high

    def error(self):
        """In per cent; NaN if the paper or the model has no figure."""
        return NONE if self.paper == 0 else (self.model / self.paper - 1) * 100


class Report:
    """Rows in a fixed order: the same scenario gives the same rows. fitting: only fitted rows are needed; bounded: only rows with a bound."""

    def __init__(self, model, load, bounded, fitting, step):
        self.model, self.load, self.bounded, self.fitting, self.step, self.rows = model, load, bounded, fitting, step, []

    def wants(self, role):
        """True if rows of this role are needed: callers check this before a long computation."""
        return role == FIT or (not self.fitting and (not self.bounded or role == HELD))

    def add(self, *words, **figures):
        row = Row(*words, **figures)
        if not self.bounded or row.has_bound():
            self.rows.append(row)

    def within(self, bound, *words, paper, **figures):
        """low and high are the paper's figure minus and plus `bound` (0.03 for 3 %)."""
        self.add(*words, paper=paper, low=paper * (1 - bound), high=paper * (1 + bound), **figures)


# --- A: sockets over a PCIe switch (sim/paper/stream.c) -----------------------------------------

# iperf 2.0.5, MB/s by bytes a write: PCIe and TCP over fast Ethernet, whose capacity is outside the model.
COLUMN = {
    1: (0.06, 0.07), 2: (0.13, 0.13), 4: (0.26, 0.26), 8: (0.51, 0.53), 16: (1.02, 1.06), 32: (2.09, 2.11), 64: (4.12, 4.23),
    128: (8.21, 8.46), 256: (16.4, 11.2), 512: (32.9, 11.2), 1024: (64.7, 11.2), 2048: (132, 11.2), 4096: (230, 11.2), 8192: (376, 11.2),
    16384: (547, 11.2), 32768: (734, 11.2), 65536: (876, 11.2), 131072: (971, 11.2), 262144: (1025, 11.2), 524288: (1054, 11.2),
    1048576: (1071, 11.2), 2097152: (1080, 11.2), 4194304: (1084, 11.2),
}
A_FITTED = (64, 512, 4096, 16384, 65536, 262144, 1048576, 4194304)
A_STEPS = 5  # progress steps of a run


def a_bound(size):
    """The relative bound of a figure: below 64 B the paper gives two digits or less, and its value for one byte is not on the line of the others."""
    return 0.03 if size >= 8192 else 0.07 if size >= 64 else 0.15


def line_at(t0, rate, size):
    return size / (t0 + size / rate)


def line_through(rates, is_relative=False):
    """Fits size / (t0 + size / B) by least squares (Gauss-Newton) of absolute errors in MB/s, or of relative ones: t0 in us, B in MB/s."""
    t0, rate = 10.0, 1000.0
    for _ in range(50):
        tt = tr = rr = t = r = 0.0
        for size in rates:
            y = line_at(t0, rate, size)
            weight = 1 / rates[size] if is_relative else 1
            by_t0, by_rate, error = (weight * part for part in (-y * y / size, y * y / (rate * rate), rates[size] - y))
            tt += by_t0 * by_t0
            tr += by_t0 * by_rate
            rr += by_rate * by_rate
            t += by_t0 * error
            r += by_rate * error
        determinant = tt * rr - tr * tr
        t0 += (t * rr - r * tr) / determinant
        rate += (tt * r - tr * t) / determinant
    return t0, rate


def a_line(report, rates):
    """The distance of the line from its points, where the paper's line is farthest, within the uncertainty of the points."""
    t0, rate = line_through(rates)
    series = "Line size/(t0 + size/B) through the column"
    report.within(0.1, series, "t0", NONE, "", "us", HELD, paper=14.49, model=t0, claim=True)
    report.within(0.1, series, "B", NONE, "", "MB/s", HELD, paper=1086.7, model=rate, claim=True)
    series, worst = "How far that line is off", 0.0
    for size in COLUMN:
        off = 100 * (line_at(t0, rate, size) / rates[size] - 1)
        worst = max(worst, abs(off)) if size >= 8192 else worst
        paper = {64: 6.8, 1024: 2.6, 4096: -2.5}.get(size)
        if paper is not None:
            report.add(series, "at a size", size, "B", "%", HELD, paper=paper, low=paper - 100 * a_bound(size),
                       high=paper + 100 * a_bound(size), model=off)
    report.add(series, "at most from 8 KiB", 8192, "B", "%", HELD, paper=1.3, high=1.3 + 100 * a_bound(8192), model=worst)


def a_doorbell(report):
    """The authors' proposal: no process polls for completion, and the receiver reports free buffers, so that two buffers can be used."""
    results = []
    for size in COLUMN:
        results += [(mode, size, report.model.send_request("stream", mode, size)) for mode in ("polling", "doorbell")]
        report.step(2 * A_STEPS)
    for mode, size, (rate, _) in results:
        report.add("Polling against doorbell", mode, size, "B", "MB/s", PREDICTED, model=rate / 1e6)
    for mode, size, (_, cpu) in results:
        report.add("Sender's processor time a write", mode, size, "B", "us", PREDICTED, model=cpu / 1e6)


def a_background(report):
    """The table that compares PCIe with Ethernet and InfiniBand."""
    payload, header = report.model.number("link slot-a", "mps"), report.model.number("pcie", "write_header")
    report.add("Background", "PCIe efficiency", NONE, "", "%", HELD, paper=93, low=93 * 0.97, high=93 * 1.03,
               model=100 * payload / (payload + header))
    report.add("Background", "PCIe latency", NONE, "", "us", HELD, paper=1, low=0.5, high=1.5, model=report.model.send_request("latency")[0] * 1e6)
    for label, unit, paper in (("Ethernet efficiency", "%", 86), ("Ethernet latency", "us", 20), ("InfiniBand effic.", "%", 88),
                               ("InfiniBand latency", "us", 1.5)):
        report.add("Background", label, NONE, "", unit, QUOTED, paper=paper)


def run_a(report):
    rates = {}
    for size, (paper, _) in COLUMN.items():
        role = FIT if size in A_FITTED else HELD
        if report.wants(role):
            rates[size] = report.model.send_request("stream", "polling", size)[0] / 1e6
            report.step(A_STEPS)
            report.within(a_bound(size), "Bandwidth over PCIe", "polling", size, "B", "MB/s", role, paper=paper, model=rates[size])
    if report.wants(HELD):
        a_line(report, rates)
        if report.wants(PREDICTED):
            a_doorbell(report)
            for size, (_, paper) in COLUMN.items():
                report.add("Bandwidth over Ethernet", "TCP", size, "B", "MB/s", QUOTED, paper=paper)
        a_background(report)


# --- B: OpenSHMEM over a ring of hosts without a switch (sim/paper/ring.c) -----------------------

HOSTS, THREADS = (3, 4, 5), (1, 2, 4, 8)
SIZES = [4 * KIB << i for i in range(9)]
# The fit uses three sizes: the smallest, the largest, and one between.
B_FITTED = (4 * KIB, 64 * KIB, MIB)
PUT, LATENCY, STEPS = 0, 1, 2  # indices into the answer of the model
(TAKE, INTERRUPT, COPY_IN, PORT, TRANSLATE, DMA, SCRATCHPAD, DOORBELL, HANDLER, SERVICE) = range(STEPS, STEPS + 10)  # sim/paper/ring.h
NO_BETTER_PERCENT = -5  # the gain of 8 threads that still counts as "no better than 4"


def mb_per_s(size, ps):
    return size / ps * 1e6


def more(after, before):
    return (after[LATENCY] / before[LATENCY] - 1) * 100


class Ring:
    def __init__(self, report):
        self.report, self.runs = report, {}

    def role(self, size):
        return FIT if size in B_FITTED else HELD

    def run(self, hosts, threads, size, senders=None, window=None, times=1):
        model = self.report.model
        puts = model.whole("ring", "fit_puts" if self.report.fitting else "puts") * times
        return model.send_request("ring", hosts, threads, senders or hosts, window or model.whole("ring", "window"), puts, size)

    def run_size(self, size):
        """With more threads an operation waits longer in the queues, so the measurement must last longer."""
        for hosts in HOSTS:
            for threads in THREADS:
                self.runs[hosts, threads, size] = self.run(hosts, threads, size, times=1 if self.report.fitting else threads)
                self.report.step(hosts * threads)

    def gained(self, hosts, size, before, after):
        """The gain of throughput by more threads, relative to the throughput before."""
        return self.runs[hosts, before, size][PUT] / self.runs[hosts, after, size][PUT] - 1

    def bandwidth(self):
        """Section 5.1: one transfer thread, all hosts put; it does not give the number of hosts."""
        raw = 0.0
        for size in (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB):
            role = FIT if size == MIB else HELD if size > MIB else PREDICTED
            if self.report.wants(role):
                model = mb_per_s(size, self.report.model.send_request("raw", size)[0])
                raw = model if size == MIB else raw
                self.report.add("bandwidth", "DMA alone", size, "B", "MB/s", role, paper=6000 if size >= MIB else NONE, low=6000, high=MANY,
                                model=model)
        for hosts in (3, 5) if self.report.wants(HELD) else ():
            put, series = mb_per_s(MIB, self.run(hosts, 1, MIB)[PUT]), "bandwidth of a put, 1 thread, all hosts putting"
            self.report.add(series, f"{hosts} hosts", MIB, "B", "MB/s", HELD, paper=4750, low=4500, high=5000, model=put, is_range=True)
            self.report.add(series, f"{hosts} hosts, of raw", MIB, "B", "%", HELD, paper=82.5, low=80, high=85, model=100 * put / raw,
                            is_range=True)

    def host_steps(self, sizes):
        for threads in THREADS:
            low, high = 22, 36 if threads == 1 else 34
            for hosts in HOSTS[:-1]:
                for size in sizes:
                    if self.report.wants(self.role(size)):
                        label = f"{hosts}-{hosts + 1} hosts, {threads} thread{'s' if threads > 1 else ''}"
                        self.report.add("latency: a host more", label, size, "B", "%", self.role(size), paper=(low + high) / 2, low=low,
                                        high=high, model=more(self.runs[hosts + 1, threads, size], self.runs[hosts, threads, size]), is_range=True)

    def thread_steps(self, sizes):
        for after, before, low, high in ((2, 1, -45, -38), (4, 2, -25, -12), (8, 4, NO_BETTER_PERCENT, MANY)):
            paper = NONE if high == MANY else (low + high) / 2
            for hosts in HOSTS:
                for size in sizes:
                    role = HELD if high == MANY else self.role(size)
                    if self.report.wants(role):
                        self.report.add(f"latency: {after} threads for {before}", f"{hosts} hosts", size, "B", "%", role, paper=paper, low=low,
                                        high=high, model=more(self.runs[hosts, after, size], self.runs[hosts, before, size]), is_range=True)

    def throughput(self):
        """"Throughput rises strongly from 1 to 2 threads, little after": by its own ranges of latency the first step adds 61 to 82 %, the
        second 14 to 33 %. "The gain from threads shrinks as hosts are added": in MB/s, from 1 thread to 4."""
        for hosts in HOSTS:
            for size in SIZES:
                self.report.add("throughput: what 2 threads add, to what 4 do", f"{hosts} hosts", size, "B", "times", HELD, low=1.8, high=MANY,
                                model=self.gained(hosts, size, 1, 2) / self.gained(hosts, size, 2, 4))
        for hosts in HOSTS[:-1]:
            for size in SIZES:
                before, after = (self.gained(h, size, 1, 4) / self.runs[h, 1, size][PUT] for h in (hosts, hosts + 1))
                self.report.add("throughput gained by 4 threads: a host more", f"{hosts}-{hosts + 1} hosts", size, "B", "times", HELD, high=1,
                                model=after / before)

    def overheads(self):
        """"Scratchpads and interrupts are the largest overheads" of those in its breakdown, with next to no data: one put at a time."""
        step = self.run(3, 1, SIZES[0], senders=1, window=1)
        largest = step[SCRATCHPAD] + step[DOORBELL] + step[HANDLER] + step[SERVICE]
        self.report.add("overheads", "scratchpads and interrupts to the next", SIZES[0], "B", "times", HELD, low=1, high=MANY,
                        model=largest / max(step[TRANSLATE], step[INTERRUPT], step[DMA]))

    def curves(self):
        for series, unit in (("latency", "us"), ("throughput of a host", "MB/s")):
            for (hosts, threads, size), result in sorted(self.runs.items()):
                self.report.add(series, f"{hosts} hosts, {threads} thread{'s' if threads > 1 else ''}", size, "B", unit, PREDICTED,
                                model=result[LATENCY] / 1e6 if unit == "us" else mb_per_s(size, result[PUT]))


def run_b(report):
    ring = Ring(report)
    if report.fitting:
        ring.bandwidth()
        for size in B_FITTED:
            ring.run_size(size)
            ring.host_steps([size])
            ring.thread_steps([size])
        return
    for size in SIZES:
        ring.run_size(size)
    ring.bandwidth()
    ring.host_steps(SIZES)
    ring.thread_steps(SIZES)
    ring.throughput()
    ring.overheads()
    if report.wants(PREDICTED):
        ring.curves()


# --- C: a device in a slot, and in an expansion box behind two adapter cards and a cable ----------

C_SIZES = (1000, 4000, 10000, 20000, 50000, 100000, 200000, 300000, 400000, 500000, 600000, 800000, 900000, 1000000)
DEVICES = ("local", "optical-x16", "copper-x16", "optical-x8", "copper-x8")
WAYS = ((1, "host to device"), (0, "device to host"))


def run_c(report):
    """A call copies: the host stores to a doorbell, the engine fetches its command, moves the data, and writes a word that the host polls."""
    model, rates = report.model, {}
    launch, notice = model.whole("copy", "launch"), model.whole("copy", "notice")
    for device in DEVICES:
        model.between("host", device)
        for size in C_SIZES:
            for to_device, _ in WAYS:
                rates[to_device, device, size] = size * 1e6 / model.engine("gpu", to_device, 0, size, launch, notice)[0]
    # 98.5 % at 0.9 to 1 MB; up to 400 kB the slot's advantage is larger than that.
    for to_device, way in WAYS:
        for size in (100000, 200000, 400000, 900000, 1000000):
            end = size >= 900000
            report.add("x16 card against local slot", way, size / 1000, "kB", "%", HELD, paper=98.5 if end else NONE, low=97.8 if end else 0,
                       high=99.2 if end else 98.1, model=100 * rates[to_device, "optical-x16", size] / rates[to_device, "local", size])
    # "The same at every size": the size where they differ most.
    for lanes in ("x16", "x8"):
        for to_device, way in WAYS:
            worst, where = 1.0, C_SIZES[0]
            for size in C_SIZES:
                ratio = rates[to_device, f"optical-{lanes}", size] / rates[to_device, f"copper-{lanes}", size]
                if abs(ratio - 1) > abs(worst - 1):
                    worst, where = ratio, size
            report.within(0.01, "Optical card against copper card", f"{lanes}, {way}", where / 1000, "kB", "%", HELD, paper=100, model=100 * worst)
    for to_device, way in WAYS:
        for size in C_SIZES:
            for device in DEVICES:
                report.add(way.capitalize(), device, size / 1000, "kB", "MB/s", PREDICTED, model=rates[to_device, device, size])


# --- D: the Sockets Direct Protocol, buffered and without copies (sim/paper/sdp.c) ----------------

CONNECTIONS = range(1, 9)
STATED_AT = 8
D_STEPS = 6  # of two runs


def run_d(report):
    model = report.model
    buffered, zero_copy = ({count: (0.0, 0.0, 0.0) for count in CONNECTIONS} for _ in range(2))
    for count in CONNECTIONS:
        if count == STATED_AT or report.wants(PREDICTED):
            buffered[count] = model.send_request("sdp", count, 0)
        if report.wants(HELD):
            zero_copy[count] = model.send_request("sdp", count, 1)
            report.step(D_STEPS)
    for label, results, paper, stated_role in (("buffered", buffered, 630, FIT), ("zero copy", zero_copy, 1360, HELD)):
        for count in CONNECTIONS:
            role = stated_role if count == STATED_AT else PREDICTED
            if report.wants(role):
                report.within(0.05, "bandwidth", label, count, "conn.", "MB/s", role, paper=paper if count == STATED_AT else NONE,
                              model=results[count][0] / 1e6)
    if report.wants(HELD):
        def cpu(results, count):
            return (results[count][1] + results[count][2]) / 2
        report.within(0.2, "bandwidth, zero copy against buffered", "more by", STATED_AT, "conn.", "times", HELD, paper=1360 / 630,
                      model=zero_copy[STATED_AT][0] / buffered[STATED_AT][0], claim=True)
        report.add("CPU, buffered against zero copy", "less by", STATED_AT, "conn.", "times", HELD, paper=10, low=8, high=12,  # "about tenfold"
                   model=cpu(buffered, STATED_AT) / cpu(zero_copy, STATED_AT))
        for label, results in (("buffered", buffered), ("zero copy", zero_copy)):
            for count in CONNECTIONS:
                report.add("CPU of a host", label, count, "conn.", "%", PREDICTED, model=cpu(results, count))


# --- E: a core's stores into a device's BAR against the device's DMA engine -----------------------

COMBINED, UNCACHED, ENGINE = "write-combined", "uncached", "DMA"
SUSTAINED = 1 << 18
E_SIZES = [8 << i for i in range(16)]
# "Sustained" is above 64 KB write-combined, above 512 B uncached.
E_RATES = (
    (COMBINED, 64, 2490, HELD, 0.03), (COMBINED, 65536, 665, HELD, 0.05), (COMBINED, SUSTAINED, 665, FIT, 0.03),
    (UNCACHED, 32, 1182, FIT, 0.03), (UNCACHED, 512, 60, HELD, 0.10), (UNCACHED, SUSTAINED, 60, FIT, 0.03),
)


def run_e(report):
    """Measures time as the paper does: rdtscp before and after, its own cost subtracted. No fence separates the lines, because the paper says
    that pipelining may happen implicitly."""
    model, series = report.model, "Rate by size"

    def rate(way, size):
        """MB/s of one transfer that begins on idle links."""
        if way != ENGINE:
            return size * 1e6 / model.send_request("store", int(way == COMBINED), size)[0]
        return size * 1e6 / model.engine("kintex", 1, 1, size, model.whole("method", "describe"), model.whole("method", "notice"))[0]

    def predict(label, way, left_out=()):
        for size in E_SIZES:
            if (way, size) not in left_out:
                report.add(series, label, size, "B", "MB/s", PREDICTED, model=rate(way, size))

    def best(way):
        """The size of the best rate, the largest of those that differ by less than 0.1 %."""
        size_best, rate_best = 0, 0.0
        for size in E_SIZES:
            value = rate(way, size)
            size_best = size if value >= rate_best * 0.999 else size_best
            rate_best = max(value, rate_best)
        return size_best

    def crossover(way):
        """The smallest multiple of 64 bytes at which DMA is as fast as stores."""
        return next((size for size in range(64, 32768 + 1, 64) if rate(ENGINE, size) >= rate(way, size)), MANY)

    model.between("xeon", "kintex")
    for way, size, paper, role, bound in E_RATES:
        if report.wants(role):
            report.within(bound, series, way, size, "B", "MB/s", role, paper=paper, model=rate(way, size))
    if report.wants(PREDICTED):
        for way in (COMBINED, UNCACHED, ENGINE):
            predict(way, way, [(way, size) for way, size, *_ in E_RATES])
        # The authors' proposals: an endpoint that is not the limit, and a link of the next generation.
        model.change("device kintex drain=0")
        predict("no drain", COMBINED)
        model.change("link slot generation=3")
        predict("no drain, Gen3", COMBINED)
        report.load()
        model.between("xeon", "kintex")
    if report.wants(HELD):
        link = [model.whole("link slot", key) for key in ("generation", "lanes")]
        usable = 64e6 / model.send_request("tlp", *link, 64, model.whole("pcie", "write_header"))[0]
        for label, unit, paper, value, bound, claim in (("usable at 64 B", "MB/s", 2880, usable, 0.02, True),
                                                        ("best write-combined", "B", 64, best(COMBINED), 0, False),
                                                        ("DMA is faster from", "B", 4096, crossover(COMBINED), 0.15, True)):
            report.within(bound, "Limits and thresholds", label, NONE, "", unit, HELD, paper=paper, model=value, claim=claim)


# --- null models: no simulation, at most as many parameters as the model of the paper ------------
# Each returns its value of a figure, or None if it has none.


def null_a(row):
    """A line through the figures that A is fitted on."""
    t0, rate = line_through({size: COLUMN[size][0] for size in A_FITTED}, is_relative=True)
    if row.series.startswith("Bandwidth"):
        return line_at(t0, rate, row.x)
    return {"t0": t0, "B": rate, "at most from 8 KiB": 0, "at a size": 0}.get(row.label)


def null_b(row):
    """Latency is hosts x g(threads)."""
    g = [1, 0.585, 0.585 * 0.815, 0.585 * 0.815]  # the middles of the paper's own ranges
    if row.series == "latency: a host more":
        return 100 / 3 if row.label.startswith("3-4") else 25
    for i, name in enumerate(("2 threads for 1", "4 threads for 2", "8 threads for 4")):
        if row.series == f"latency: {name}":
            return (g[i + 1] / g[i] - 1) * 100
    if row.series.startswith("throughput: what 2"):
        return (g[0] / g[1] - 1) / (g[1] / g[2] - 1)
    return 0.8 if row.series.startswith("throughput gained") else None


def null_c(_row):
    return 100  # no difference between slot and box


def null_d(row):
    return {"MB/s": 630, "times": 1}[row.unit]  # one bandwidth for all


def null_e(row):
    """A constant rate for each kind of store."""
    if row.label == "write-combined":
        return 665
    return (1182 if row.x <= 32 else 60) if row.label == "uncached" else None


# letter: (null model, its parameters)
NULLS = {"A": (null_a, 2), "B": (null_b, 3), "C": (null_c, 0), "D": (null_d, 1), "E": (null_e, 3)}


def passes_null(letter, row):
    value = NULLS[letter][0](row)
    return value is not None and row.low <= value <= row.high


def is_no_evidence(letter, row):
    """True for a figure that fits, but that the null model fits as well."""
    return row.role == HELD and row.fits() and passes_null(letter, row)


# letter: (title, kind of scenario, its function, progress steps of all its computations, about one per 3 ms)
PAPERS = {
    "A": ("Sockets over a PCIe switch (2019): PEX8749 with NT ports, PEX8732 x8 adapters, i5-3470", "stream", run_a, 3 * len(COLUMN) * A_STEPS),
    "B": ("OpenSHMEM over a switchless PCIe NTB ring (2023)", "ring", run_b, len(SIZES) * sum(HOSTS) * sum(THREADS)),
    "C": ("Adapter cards with on-board optics (2018): a device in a slot and in an expansion box", "copy", run_c, 0),
    "D": ("Zero-copy Sockets Direct Protocol (2005)", "sdp", run_d, len(CONNECTIONS) * D_STEPS),
    "E": ("Write-combined programmed I/O (2015): Xeon E5-2650 v2, Kintex-7, Gen2 x8", "stores", run_e, 0),
}
