// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
// Roles change at random, also while the selected clock stands still, high or low. The output may have no pulse and no gap shorter than half a
// period of the fastest source (but where kill ends a clock that stopped high), and no two gates may be open.
`timescale 1ns/1ps
module bench;
    reg clk = 0, por_n = 0;
    reg [2:0] dip = 0, run = 7;
    reg [2:0] sources = 0;
    always #5 clk = ~clk;
    always begin #4.9 if (run[0]) sources[0] = ~sources[0]; end
    always begin #5.1 if (run[1]) sources[1] = ~sources[1]; end
    always begin #5.03 if (run[2]) sources[2] = ~sources[2]; end
    wire [2:0] enable, open;
    wire kill, out, sw, rem, slot;
    signal_select #(.DEAD(`DEAD_PLANT), .SETTLE(50), .DEBOUNCE(4)) dut(
        .clk(clk), .por_n(por_n), .dip_role(dip), .use_eeprom(1'b0), .eeprom_role(3'd0), .slot_reset_n(1'b1), .remote_reset_n(1'b1),
        .clock_enable(enable), .kill(kill), .clock_to(), .switch_reset_n(sw), .remote_reset_n_out(rem), .slot_reset_n_out(slot), .refused());
    clock_mux #(.RISING(`RISING_PLANT)) mux(.sources(sources), .enable(enable), .kill(kill), .open(open), .out(out));
    realtime since = 0;
    integer bad = 0, k, ends = 0;
    // A clock that is stopped or started again, and kill, may end a pulse: after these the next edge is not judged.
    reg excused = 0;
    always @(run or kill) excused = 1;
    always @(out) begin
        if (!excused && $realtime - since < 4.85 && since > 0) bad = bad + 1;
        excused = 0; since = $realtime;
    end
    always @(open) if ((open & (open - 1)) != 0) bad = bad + 1;
    initial begin
        #100 por_n = 1;
        for (k = 0; k < 400; k = k + 1) begin
            dip = $urandom;
            if ($urandom % 4 == 0) run = $urandom; else run = 7;
            #(1500 + $urandom % 1000);
            if (dip != 3 && dip != 7) begin
                if (sw) ends = ends + 1; else bad = bad + 1;
            end else if (sw || rem || slot) bad = bad + 1;
        end
        $display("bad %0d ends %0d", bad, ends);
        $finish;
    end
endmodule
