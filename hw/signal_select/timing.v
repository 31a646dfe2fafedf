// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
// The selector alone, with nothing that looks like an output: what a proof takes for a claim. The claims are in timing.vh.
module timing #(parameter DEAD = 16, SETTLE = 5000, DEBOUNCE = 100) (
    input clk, input por_n, input [2:0] dip_role, input use_eeprom, input [2:0] eeprom_role, input slot_reset_n, input remote_reset_n
);
    signal_select #(.DEAD(DEAD), .SETTLE(SETTLE), .DEBOUNCE(DEBOUNCE)) dut(
        .clk(clk), .por_n(por_n), .dip_role(dip_role), .use_eeprom(use_eeprom), .eeprom_role(eeprom_role), .slot_reset_n(slot_reset_n),
        .remote_reset_n(remote_reset_n), .clock_enable(), .kill(), .clock_to(), .switch_reset_n(), .remote_reset_n_out(),
        .slot_reset_n_out(), .refused());
endmodule
