// 2^x of 16 lanes, for attention's weights: two thirds of the operations of exp.h, which also has to be right above 0 and to the last bit.
#pragma once

#include OCTAVO_SIMD

namespace octavo::OCTAVO_ISA {

// For x <= 127, to 2e-7 of the value; exactly 1 at 0, and exactly 0 from -127 down (minus infinity included).
//
// x = n + r with |r| <= 1/2. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; with the bias 127 added as well, these
// shifted into place are the float 2^n, and zero for n = -127. The polynomial is the minimax one of 2^r with 1 at 0.
inline F32 power_of_two(F32 x) {
    const F32 magic = splat(12582912.0f + 127.0f);
    x = max(splat(-127.0f), x);  // in this order a NaN stays one
    const F32 shifted = add(x, magic);
    const F32 r = sub(x, sub(shifted, magic));
    F32 p = fma(splat(0x1.5bba14p-10f), r, splat(0x1.3cea88p-7f));
    p = fma(p, r, splat(0x1.c6b752p-5f));
    p = fma(p, r, splat(0x1.ebf9bcp-3f));
    p = fma(p, r, splat(0x1.62e42ap-1f));
    p = fma(p, r, splat(1.0f));
    return mul(p, float_of_bits(shift_left(bits_of(shifted), 23)));
}

}  // namespace octavo::OCTAVO_ISA
