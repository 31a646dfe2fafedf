// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
// A model of the clock multiplexer chip: each enable is taken over at falling edges of its own clock, and kill takes it back when that
// clock has none. RISING plants a fault: rising edges.
module clock_mux #(parameter RISING = 0) (input [2:0] sources, input [2:0] enable, input kill, output [2:0] open, output out);
    genvar i;
    generate for (i = 0; i < 3; i = i + 1) begin : gate
        reg first, second;
        wire edge_clock = RISING ? sources[i] : ~sources[i];
        always @(posedge edge_clock or posedge kill)
            if (kill) begin first <= 0; second <= 0; end
            else begin first <= enable[i]; second <= first & enable[i]; end
        assign open[i] = second;
    end endgenerate
    assign out = |(open & sources);
endmodule
