# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Tests in cocotb: what a card does, step by step, with clocks that a model in Python makes and measures. The expected output of each role is read
from the text of 'viaduct card roles' (ROLES), not from the Verilog that the selector includes."""

import os
import random
import re

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer, ValueChange
from cocotb.utils import get_sim_time

DEAD, SETTLE, DEBOUNCE = 16, 50, 10
PERIODS_PS = [9800, 10200, 10060]  # slot, remote, card: Gen3's 100 MHz, apart so that edges drift past each other
CLK_PS = 10000
SHORTEST_PS = min(PERIODS_PS) // 2 - 60
SOURCES = {"slot": 0, "remote": 1, "card": 2}
DESTINATIONS = {"switch": 1, "remote": 2, "slot": 4, "slots": 4}
# Synchronisers, debouncing, a dead time that has begun and one more, settling.
LIMIT = 8 + DEBOUNCE + 2 * (DEAD + 2) + SETTLE + 4


def read_roles(text):
    """by DIP positions 1 to 3: (source of RESET, its destinations, source of CLOCK, its destinations)"""
    roles = {}
    for dip, rest in re.findall(r"DIP +(1 .*?)\n(.*?)(?=\n  \S|\Z)", text, re.S):
        straps = sum(1 << int(number) - 1 for number, state in re.findall(r"(\d) (on|off)", dip) if state == "on" and number != "4")
        entry = []
        for signal in ("RESET", "CLOCK"):
            source, to = re.search(r"%s +from (\w+) to ([\w, ]+)" % signal, rest).groups()
            entry += [SOURCES[source], sum(DESTINATIONS[word] for word in to.split(", "))]
        roles[straps] = tuple(entry)
    return roles


with open(os.environ["ROLES"], encoding="utf-8") as table:
    ROLES = read_roles(table.read())


class Bench:
    def __init__(self, dut):
        self.dut, self.running, self.wrong, self.excused = dut, [True] * 3, [], False
        self.levels = 0

    async def source(self, number):
        while True:
            await Timer(PERIODS_PS[number] // 2, "ps")
            if self.running[number]:
                self.levels ^= 1 << number
                self.dut.sources.value = self.levels

    async def watch_output(self):
        """no pulse and no gap shorter than half a period of the fastest source; kill may end a pulse of a clock that stands still"""
        last = -10 ** 9
        while True:
            await ValueChange(self.dut.out)
            now = get_sim_time("ps")
            if now - last < SHORTEST_PS and not self.excused and int(self.dut.kill.value) == 0:
                self.wrong.append("a pulse of %d ps at %d" % (now - last, now))
            last = now

    async def watch_gates(self):
        while True:
            await ValueChange(self.dut.open)
            if bin(int(self.dut.open.value)).count("1") > 1:
                self.wrong.append("two gates at %d" % get_sim_time("ps"))

    async def start(self, role=0):
        dut = self.dut
        dut.por_n.value = dut.use_eeprom.value = dut.sources.value = 0
        dut.eeprom_role.value = 3  # no role
        dut.dip_role.value = role
        dut.slot_reset_n.value = dut.remote_reset_n.value = 1
        cocotb.start_soon(Clock(dut.clk, CLK_PS, "ps").start())
        await ClockCycles(dut.clk, 4)
        dut.por_n.value = 1
        for number in range(3):
            cocotb.start_soon(self.source(number))
        cocotb.start_soon(self.watch_output())
        cocotb.start_soon(self.watch_gates())

    def resets(self):
        return int(self.dut.switch_n.value) | int(self.dut.remote_n.value) << 1 | int(self.dut.slot_n.value) << 2

    async def settle(self):
        await ClockCycles(self.dut.clk, LIMIT)

    def check_role(self, role):
        if role not in ROLES:
            assert int(self.dut.refused.value) == 1 and self.resets() == 0 and int(self.dut.enable.value) == 0, role
            return
        _, reset_to, clock_from, clock_to = ROLES[role]
        found = (self.resets(), int(self.dut.enable.value), int(self.dut.clock_to.value))
        assert found == (reset_to, 1 << clock_from, clock_to), (role, found)

    def check_quiet(self):
        assert not self.wrong, self.wrong


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def each_role_is_as_the_table_has_it(dut):
    bench = Bench(dut)
    await bench.start()
    assert len(ROLES) == 6
    for role in [*range(8), 0, 7, 1, 6, 2, 5]:
        dut.dip_role.value = role
        await bench.settle()
        bench.check_role(role)
    bench.check_quiet()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def the_eeprom_has_the_last_word(dut):
    bench = Bench(dut)
    await bench.start(role=0)
    dut.eeprom_role.value = 5
    dut.use_eeprom.value = 1
    await bench.settle()
    bench.check_role(5)
    dut.dip_role.value = 3
    await bench.settle()
    bench.check_role(5)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_follows_its_source_and_ends_late(dut):
    """on within four cycles of its source's fall, and until SETTLE cycles after its rise; other sources do nothing"""
    bench = Bench(dut)
    await bench.start()
    for role, (reset_from, reset_to, _, _) in ROLES.items():
        dut.dip_role.value = role
        await bench.settle()
        for number, pin in enumerate((dut.slot_reset_n, dut.remote_reset_n)):
            pin.value = 0
            await ClockCycles(dut.clk, 5)
            assert bench.resets() == (0 if number == reset_from else reset_to), (role, number)
            pin.value = 1
            await ClockCycles(dut.clk, SETTLE)
            assert bench.resets() == (0 if number == reset_from else reset_to), (role, number)
            await bench.settle()
            bench.check_role(role)
    bench.check_quiet()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def what_bounces_is_no_strap(dut):
    bench = Bench(dut)
    await bench.start(role=0)
    await bench.settle()
    random.seed(19)
    for _ in range(40):
        dut.dip_role.value = 1
        await ClockCycles(dut.clk, random.randint(1, DEBOUNCE - 3))
        dut.dip_role.value = 0
        await ClockCycles(dut.clk, random.randint(1, DEBOUNCE - 3))
        assert int(dut.enable.value) == 1 << ROLES[0][2]
    await bench.settle()
    bench.check_role(0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_clock_that_stands_still_is_left(dut):
    """in either level; RESET ends on the new clock, and again on the old one when it runs"""
    bench = Bench(dut)
    await bench.start()
    from_slot = next(role for role in ROLES if ROLES[role][2] == SOURCES["slot"])
    from_card = next(role for role in ROLES if ROLES[role][2] == SOURCES["card"])
    for level in (0, 1, 0, 1):
        dut.dip_role.value = from_slot
        await bench.settle()
        bench.check_role(from_slot)
        while bench.levels & 1 != level:
            await ValueChange(dut.sources)
        bench.running[0], bench.excused = False, True
        dut.dip_role.value = from_card
        await bench.settle()
        bench.check_role(from_card)
        first = get_sim_time("ps")
        await RisingEdge(dut.out)
        await RisingEdge(dut.out)
        assert get_sim_time("ps") - first <= 2 * PERIODS_PS[2] + 100, "the new clock does not come through"
        bench.running[0], bench.excused = True, False
        await ClockCycles(dut.clk, 4)
    bench.check_quiet()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def power_may_fail_at_any_time(dut):
    bench = Bench(dut)
    await bench.start(role=4)
    random.seed(20)
    for _ in range(30):
        await ClockCycles(dut.clk, random.randint(1, LIMIT))
        dut.por_n.value = 0
        bench.excused = True  # power-on kills the multiplexer at once
        await ClockCycles(dut.clk, 2)
        assert bench.resets() == 0 and int(dut.enable.value) == 0
        dut.por_n.value = 1
        await ClockCycles(dut.clk, 4)
        bench.excused = False
    await bench.settle()
    bench.check_role(4)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def straps_may_change_at_any_time(dut):
    bench = Bench(dut)
    await bench.start()
    random.seed(21)
    for _ in range(60):
        dut.dip_role.value = role = random.randrange(8)
        await ClockCycles(dut.clk, random.randint(DEBOUNCE, LIMIT))
    dut.dip_role.value = role
    await bench.settle()
    bench.check_role(role)
    bench.check_quiet()
