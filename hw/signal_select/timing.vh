// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
// Part of signal_select.v when its times are proved: what CEM wants of RESET, in cycles of clk, with the counters as long as the card's.
// Inputs are free in every cycle. CLAIM_SETTLE and CLAIM_DEBOUNCE are not taken from the parameters, so that a wrong one is found.
wire f_off = !(switch_reset_n | remote_reset_n_out | slot_reset_n_out); // RESET is on everywhere
reg f_begun = 0;
reg [2:0] f_enable_last = 0, f_steady_last = 0;
reg f_off_last = 0;
reg [4:0] f_first = 0, f_second = 0, f_third = 0;                   // inputs, 1 to 3 cycles ago
reg [15:0] f_enabled = 0, f_reset = 0, f_slot = 0, f_remote = 0, f_same = 0; // for how many cycles; they stop at FULL
localparam [15:0] FULL = 16'hfff0;
reg [15:0] f_same_last = 0;
function [15:0] f_next(input [15:0] count, input counts); f_next = !counts ? 16'd0 : count == FULL ? FULL : count + 16'd1; endfunction
always @(posedge clk) begin
    f_begun <= 1;
    f_enable_last <= clock_enable; f_steady_last <= steady[2:0]; f_off_last <= f_off; f_same_last <= f_same;
    if (!por_n) begin
        f_first <= 0; f_second <= 0; f_third <= 0;
        f_enabled <= 0; f_reset <= 0; f_slot <= 0; f_remote <= 0; f_same <= 0; f_same_last <= 0; f_steady_last <= 0; f_off_last <= 1;
    end else begin
        f_first <= {remote_reset_n, slot_reset_n, strap}; f_second <= f_first; f_third <= f_second;
        f_enabled <= f_next(f_enabled, clock_enable != 0 && clock_enable == f_enable_last);
        f_reset <= f_next(f_reset, f_off);
        f_slot <= f_next(f_slot, f_second[3]); f_remote <= f_next(f_remote, f_second[4]);
        f_same <= f_next(f_same, f_first == f_second);
    end
end
wire [15:0] f_source = reset_from == 0 ? f_slot : reset_from == 1 ? f_remote : FULL;
wire f_source_low = reset_from == 0 ? !f_third[3] : reset_from == 1 ? !f_third[4] : 1'b0;
always @* begin
    assume (f_begun || !por_n);
    if (f_begun && por_n) begin
        // When RESET ends, the clock has run alone and unchanged for CLAIM_SETTLE.
        clock_settled: assert (f_off || f_enabled + 1 >= `CLAIM_SETTLE);
        // RESET is on for at least CLAIM_SETTLE, however short its source was low.
        low_long_enough: assert (f_off || !f_off_last || f_reset >= `CLAIM_SETTLE);
        // The source of RESET was high for CLAIM_SETTLE, without a bounce.
        source_settled: assert (f_off || f_source >= `CLAIM_SETTLE);
        // A source that falls is taken at once.
        taken_at_once: assert (f_off || !f_source_low);
        // A role is taken from straps that were the same for CLAIM_DEBOUNCE.
        debounced: assert (steady[2:0] == f_steady_last || f_same_last >= `CLAIM_DEBOUNCE);
        // What the steps of the proof rest on.
        pipe: assert (f_first == sync0 && f_second == sync1);
        counts: assert (f_enabled <= FULL && f_reset <= FULL && f_slot <= FULL && f_remote <= FULL && f_same <= FULL);
        held: assert (state != HOLD || (f_enabled + 1 >= count && f_reset >= count && f_source >= count));
        running: assert (state != RUN || (f_enabled + 1 >= SETTLE && f_source >= SETTLE));
        enable_kept: assert (state == OFF || (state == HOLD && count == 0) || f_enable_last == clock_enable);
        steadied: assert (f_same >= same && f_same_last <= FULL);
    end
end
