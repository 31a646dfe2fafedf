// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
// Selects RESET and CLOCK of an adapter card by its role. It runs on the card's own oscillator, so that it gets on when a selected
// clock has stopped. Clocks do not pass through it: it drives the enables of a clock multiplexer chip (clock_mux.v models one), one at a
// time, with DEAD cycles of none between two. kill ends an enable whose clock has stopped, in the second half of these.
// Signals: bit 0 slot, bit 1 remote, bit 2 card (sources); bit 0 switch, bit 1 remote, bit 2 slot (destinations).
// role_table is generated from src/card/table.c: 'viaduct card roles --verilog'.
module signal_select #(
    parameter DEAD = 16,     // cycles without a clock; each half longer than two cycles of any source
    parameter SETTLE = 5000, // of the new clock before RESET ends: 100 us at 50 MHz, which is PERST# low, too (CEM)
    parameter DEBOUNCE = 100  // cycles for which a strap or a source of RESET stays the same
) (
    input clk, input por_n,
    input [2:0] dip_role, input use_eeprom, input [2:0] eeprom_role,
    input slot_reset_n, input remote_reset_n,
    output reg [2:0] clock_enable, output reg kill,
    output reg [2:0] clock_to,
    output switch_reset_n, output remote_reset_n_out, output slot_reset_n_out,
    output refused
);
    `include "role_table.vh"

    localparam OFF = 2'd0, HOLD = 2'd1, RUN = 2'd2;
    reg [1:0] state;
    reg [15:0] count;
    reg [2:0] role;

    // Two flip-flops each: straps and resets have no clock of ours.
    reg [4:0] sync0, sync1, steady;
    reg [15:0] same;
    wire [2:0] strap = use_eeprom ? eeprom_role : dip_role;
    always @(posedge clk) begin
        if (!por_n) begin
            sync0 <= 0; sync1 <= 0; steady <= 0; same <= 0;
        end else begin
            sync0 <= {remote_reset_n, slot_reset_n, strap};
            sync1 <= sync0;
            same <= sync1 != sync0 ? 0 : same < DEBOUNCE ? same + 1 : same;
            if (same == DEBOUNCE) steady <= sync1;
        end
    end

    wire [10:0] entry = role_table(role);
    wire [1:0] reset_from = entry[1:0];
    wire [2:0] reset_to = entry[4:2];
    wire [1:0] clock_from = entry[6:5];
    assign refused = entry[10];
    // A card that is its own source of RESET has it at power-on only. A source that falls is taken at once, and one that rises when it is steady.
    wire source_n = reset_from == 0 ? steady[3] & sync1[3] : reset_from == 1 ? steady[4] & sync1[4] : 1'b1;
    wire changes = steady[2:0] != role;

    always @(posedge clk) begin
        if (!por_n) begin
            state <= OFF; count <= 0; role <= 0; clock_enable <= 0; clock_to <= 0; kill <= 1;
        end else case (state)
            OFF: begin
                clock_enable <= 0; clock_to <= 0;
                kill <= count >= DEAD / 2 && count < DEAD;
                count <= count + 1;
                if (count < DEAD) role <= role;
                else if (changes) begin role <= steady[2:0]; count <= 0; end
                else if (refused) count <= DEAD;
                else begin
                    state <= HOLD; count <= 0;
                    clock_enable <= 3'b001 << clock_from; clock_to <= entry[9:7];
                end
            end
            default: begin
                if (changes) begin
                    state <= OFF; count <= 0; clock_enable <= 0; clock_to <= 0;
                end else if (!source_n) begin
                    state <= HOLD; count <= 0;
                end else if (state == HOLD) begin
                    count <= count + 1;
                    if (count == SETTLE) state <= RUN;
                end
            end
        endcase
    end

`ifdef FORMAL
    // What the proof's steps rest on.
    always @* if (por_n) begin
        same_bounded: assert (same <= DEBOUNCE);
        hold_bounded: assert (state != HOLD || count <= SETTLE);
        state_known: assert (state <= RUN);
        role_known: assert (state == OFF || !refused);
        one_clock: assert (clock_enable == (state == OFF ? 3'b000 : 3'b001 << clock_from));
        clock_goes: assert (clock_to == (state == OFF ? 3'b000 : entry[9:7]));
    end
`endif

`ifdef TIMING
    `include "timing.vh"
`endif

    wire released = state == RUN;
    assign switch_reset_n = released & reset_to[0];
    assign remote_reset_n_out = released & reset_to[1];
    assign slot_reset_n_out = released & reset_to[2];
endmodule
