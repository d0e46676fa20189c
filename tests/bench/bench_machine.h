// What the processor could do at best, measured: the figures that the others are read against.
#pragma once
#include "train/util/json_file.h"
#include "train/util/log.h"

namespace flexformer::bench {

// Multiply-adds on registers, nothing else, on every thread. Returns how many floating-point operations that was.
double multiply_add_loop();
// The same with pairs of bfloat16 products summed in float; 0 operations where the processor has no instruction for it.
double bf16_dot_loop();

// Reads an array that no cache holds, on all threads. Returns how many bytes that was.
double read_loop();

// The section "machine": peaks in GFLOP/s, memory bandwidth in GB/s.
Json machine(Console& console);

}  // namespace flexformer::bench
