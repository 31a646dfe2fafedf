// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
// What is proved of the selector and the multiplexer it drives, for every order of events: straps and resets are free at every step, sources
// are free but for the width of their halves (HALF_MIN steps at least; RUNNING: HALF_MAX at most, else they may stop and begin as they
// like). A step is half a cycle of the card's oscillator. Flip-flops have no delay here, so gates have to open and close while their clock
// is low; metastability is not modelled. roles.vh is the table once more, under another name.
module proof #(parameter DEAD = 8, RISING = 0, RUNNING = 0, CLOCKS = 1, WRONG_ROLE = 0, HALF_MIN = 2, HALF_MAX = 3) (
    input [2:0] sources, input [2:0] dip_role, input use_eeprom, input [2:0] eeprom_role, input slot_reset_n, input remote_reset_n
);
    localparam SETTLE = 3, DEBOUNCE = 2;
    // Synchronisers and debouncing; a dead time that has begun, and one more as the role has changed; settling.
    localparam LIMIT = (4 + DEBOUNCE) + 2 * (DEAD + 2) + (SETTLE + 3);
    `include "roles.vh"

    (* gclk *) reg step;
    reg clk = 0, por_n = 0;
    reg [2:0] begun = 0;
    always @(posedge step) begin
        clk <= ~clk;
        if (begun != 7) begin begun <= begun + 1; end
        por_n <= begun >= 5;
    end
    wire judged = begun == 7;

    wire [2:0] enable, open, clock_to;
    wire kill, out, sw, remote, slot, refused;
    signal_select #(.DEAD(DEAD), .SETTLE(SETTLE), .DEBOUNCE(DEBOUNCE)) dut(
        .clk(clk), .por_n(por_n), .dip_role(dip_role), .use_eeprom(use_eeprom), .eeprom_role(eeprom_role), .slot_reset_n(slot_reset_n),
        .remote_reset_n(remote_reset_n), .clock_enable(enable), .kill(kill), .clock_to(clock_to), .switch_reset_n(sw),
        .remote_reset_n_out(remote), .slot_reset_n_out(slot), .refused(refused));
    clock_mux #(.RISING(RISING)) mux(.sources(sources), .enable(enable), .kill(kill), .open(open), .out(out));

    // The sources' halves.
    reg [2:0] sources_last = 0, open_last = 0;
    reg [2:0] held0 = 0, held1 = 0, held2 = 0;
    always @(posedge step) begin
        sources_last <= sources;
        open_last <= open;
        held0 <= sources[0] != sources_last[0] ? 1 : held0 == 7 ? 7 : held0 + 1;
        held1 <= sources[1] != sources_last[1] ? 1 : held1 == 7 ? 7 : held1 + 1;
        held2 <= sources[2] != sources_last[2] ? 1 : held2 == 7 ? 7 : held2 + 1;
    end
    always @* begin
        if (sources[0] != sources_last[0]) assume (held0 >= HALF_MIN);
        if (sources[1] != sources_last[1]) assume (held1 >= HALF_MIN);
        if (sources[2] != sources_last[2]) assume (held2 >= HALF_MIN);
        if (RUNNING != 0) begin
            if (sources[0] == sources_last[0]) assume (held0 < HALF_MAX);
            if (sources[1] == sources_last[1]) assume (held1 < HALF_MAX);
            if (sources[2] == sources_last[2]) assume (held2 < HALF_MAX);
        end
    end

    // The output's.
    reg out_last = 0;
    reg [2:0] out_held = 0;
    always @(posedge step) begin
        out_last <= out;
        out_held <= !judged ? 7 : out != out_last ? 1 : out_held == 7 ? 7 : out_held + 1;
    end

    // How long straps have been the same and no source of RESET has been low, in steps.
    wire [2:0] strap = use_eeprom ? eeprom_role : dip_role;
    reg [2:0] strap_last = 0;
    reg [7:0] calm = 0;
    always @(posedge step) begin
        strap_last <= strap;
        calm <= !por_n || strap != strap_last || !slot_reset_n || !remote_reset_n ? 0 : calm == 2 * LIMIT ? calm : calm + 1;
    end
    wire is_calm = calm == 2 * LIMIT && strap == strap_last;
    wire [10:0] want = role_wanted(WRONG_ROLE != 0 && strap == 5 ? 3'd1 : strap);

    wire [2:0] turned = open ^ open_last;
    // Two questions, each with the flip-flops it needs: CLOCKS, or the selector alone, which does not depend on the clocks.
    generate if (CLOCKS != 0) begin : clocks
        always @(posedge step) if (judged) begin
            // Never two sources.
            one_enable: assert ((enable & (enable - 3'd1)) == 0);
            one_gate: assert ((open & (open - 3'd1)) == 0);
            // No glitch. Only kill may end a pulse, of a clock that had stopped, and RESET is on then.
            gates_turn_low: assert (kill || (turned & sources) == 0);
            no_runt: assert (out == out_last || out_held >= HALF_MIN || (kill && RUNNING == 0));
            kill_in_reset: assert (!kill || (!sw && !remote && !slot));
            if (RUNNING != 0) kill_takes_nothing: assert (!kill || open_last == 0);
        end
    end else begin : resets
        always @(posedge step) if (judged) begin
            released_with_clock: assert (!(sw || remote || slot) || enable != 0);
            // RESET ends, whatever the clocks do, and every role is as the table has it.
            if (is_calm && want[10]) refused_role: assert (refused && !sw && !remote && !slot && enable == 0 && clock_to == 0);
            if (is_calm && !want[10]) begin
                reset_ends: assert ({slot, remote, sw} == want[4:2]);
                clock_from: assert (enable == 3'b001 << want[6:5]);
                clock_goes_to: assert (clock_to == want[9:7]);
            end
        end
    end endgenerate
endmodule
