// exp of 16 lanes, for softmax and SiLU.
#pragma once

#include OCTAVO_SIMD

namespace octavo::OCTAVO_ISA {

// e^x to about 1 ulp. Inf above 88.72; 0 below -87, where results near the denormals begin, and for -inf; NaN stays NaN.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, e^r by a polynomial (minimax, relative error 3e-9), 2^n by its exponent bits.
[[gnu::always_inline]] inline F32 exp(F32 x) {
    x = min(splat(88.8f), max(splat(-87.3f), x));  // in this order of arguments a NaN goes through
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits of the sum.
    const F32 round = splat(12582912.0f);
    const F32 shifted = fma(x, splat(1.44269504f), round);
    const F32 n = sub(shifted, round);
    F32 r = fma(n, splat(-0.693359375f), x);  // ln 2 in two parts; n times the first is exact
    r = fma(n, splat(2.12194440e-4f), r);
    F32 p = fma(splat(1.381454058e-03f), r, splat(8.368745446e-03f));
    p = fma(p, r, splat(4.166838899e-02f));
    p = fma(p, r, splat(1.666652113e-01f));
    p = fma(p, r, splat(4.999999404e-01f));
    p = add(fma(mul(r, r), p, r), splat(1.0f));
    // 2 * 2^(n - 1): n may be 128. For n = -126 the exponent bits are those of 0.
    const I32 half_power = shift_left(add_int(bits_of(shifted), splat_int(126)), 23);
    return mul(add(p, p), float_of_bits(half_power));
}

}  // namespace octavo::OCTAVO_ISA
