// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
// The selector and a model of the multiplexer that it drives, for tests in Python (test_select.py).
`timescale 1ns/1ps
module top #(parameter DEAD = 16, SETTLE = 50, DEBOUNCE = 10, RISING = 0) (
    input clk, input por_n, input [2:0] dip_role, input use_eeprom, input [2:0] eeprom_role, input slot_reset_n, input remote_reset_n,
    input [2:0] sources, output [2:0] enable, output [2:0] open, output [2:0] clock_to, output kill, output out,
    output switch_n, output remote_n, output slot_n, output refused
);
    signal_select #(.DEAD(DEAD), .SETTLE(SETTLE), .DEBOUNCE(DEBOUNCE)) dut(
        .clk(clk), .por_n(por_n), .dip_role(dip_role), .use_eeprom(use_eeprom), .eeprom_role(eeprom_role), .slot_reset_n(slot_reset_n),
        .remote_reset_n(remote_reset_n), .clock_enable(enable), .kill(kill), .clock_to(clock_to), .switch_reset_n(switch_n),
        .remote_reset_n_out(remote_n), .slot_reset_n_out(slot_n), .refused(refused));
    clock_mux #(.RISING(RISING)) mux(.sources(sources), .enable(enable), .kill(kill), .open(open), .out(out));
endmodule
