// What this processor is good at, where having an instruction does not say that it is fast.
#pragma once

namespace flexformer {

// Whether products in bfloat16 multiply pairs (vdpbf16ps) or round their operands while these are packed and multiply
// floats. Pairs are twice as fast on some processors (AMD from Zen 4 on) and half as fast on others (Intel's), so both
// are timed, once, when it is first asked: some 50 microseconds. Either way gives the same bits, so that the clock
// decides on nothing but speed. False where the processor, or this build, has no such instruction.
bool multiplies_bf16_pairs();
// Tests and comparisons decide themselves; without effect where there is no such instruction.
void multiply_bf16_pairs(bool on);

}  // namespace flexformer
