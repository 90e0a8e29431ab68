// 16-lane vectors as plain loops: any machine and compiler, aarch64 included, where the compiler turns them into NEON. See
// simd_avx512.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace octavo::OCTAVO_ISA {

constexpr int kTokensPerTile = 4;
constexpr int kReadersPerTile = 2, kLinesPerTile = 2;  // of attention: queries that share 2 x 64 bytes of the cache
constexpr int kUnroll = 1;  // a vector is a loop here: unrolling around it only makes the text long
constexpr int kLanes = 16;

struct F32 { float v[kLanes]; };
struct I32 { int32_t v[kLanes]; };
struct Bytes { uint8_t v[64]; };

template <class Result, class Function>
inline Result lanes(Function f) {
    Result r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
    return r;
}

inline float bf16_to_float(uint16_t bits) {
    const uint32_t wide = uint32_t{bits} << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
}
inline uint16_t float_to_bf16(float x) {  // to nearest even; NaN stays NaN
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (x != x) return 0x7FC0;
    return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
inline float f16_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = (bits >> 10) & 31, fraction = bits & 0x3FF;
    if (exponent == 0) {
        const float tiny = static_cast<float>(fraction) * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    const uint32_t wide = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | (fraction << 13);
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
}

inline F32 splat(float x) { return lanes<F32>([=](int) { return x; }); }
inline F32 zero() { return splat(0.0f); }
inline F32 load(const float* p) { F32 r; std::memcpy(r.v, p, sizeof r.v); return r; }
inline void store(float* p, F32 x) { std::memcpy(p, x.v, sizeof x.v); }
inline F32 load_first(const float* p, int n) { F32 r = zero(); std::memcpy(r.v, p, sizeof(float) * static_cast<size_t>(n)); return r; }
inline void store_first(float* p, F32 x, int n) { std::memcpy(p, x.v, sizeof(float) * static_cast<size_t>(n)); }
inline F32 add(F32 a, F32 b) { return lanes<F32>([&](int i) { return a.v[i] + b.v[i]; }); }
inline F32 sub(F32 a, F32 b) { return lanes<F32>([&](int i) { return a.v[i] - b.v[i]; }); }
inline F32 mul(F32 a, F32 b) { return lanes<F32>([&](int i) { return a.v[i] * b.v[i]; }); }
inline F32 div(F32 a, F32 b) { return lanes<F32>([&](int i) { return a.v[i] / b.v[i]; }); }
inline F32 max(F32 a, F32 b) { return lanes<F32>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
inline F32 min(F32 a, F32 b) { return lanes<F32>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; }); }
// Not std::fma: without the instruction it is a slow call. One text, one order: that is all that bit stability needs.
inline F32 fma(F32 a, F32 b, F32 c) { return lanes<F32>([&](int i) { return a.v[i] * b.v[i] + c.v[i]; }); }
inline uint32_t where_at_least(F32 a, F32 b) {
    uint32_t bits = 0;
    for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(a.v[i] >= b.v[i]) << i;
    return bits;
}
inline F32 abs(F32 a) { return lanes<F32>([&](int i) { return std::fabs(a.v[i]); }); }
inline float sum(F32 a) {
    for (int half = kLanes / 2; half; half /= 2)
        for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
    return a.v[0];
}
inline float largest(F32 a) {
    float m = a.v[0];
    for (int i = 1; i < kLanes; ++i) m = a.v[i] > m ? a.v[i] : m;
    return m;
}

inline F32 to_float(I32 x) { return lanes<F32>([&](int i) { return static_cast<float>(x.v[i]); }); }
inline int32_t nearest_int(float x) {  // what no int32 holds, NaN among it, gives the smallest, as on x86
    return x >= -0x1p31f && x < 0x1p31f ? static_cast<int32_t>(std::nearbyint(x)) : INT32_MIN;
}
inline I32 to_int(F32 x) { return lanes<I32>([&](int i) { return nearest_int(x.v[i]); }); }
inline I32 splat_int(int32_t x) { return lanes<I32>([=](int) { return x; }); }
inline I32 zero_int() { return splat_int(0); }
inline I32 load_int(const int32_t* p) { I32 r; std::memcpy(r.v, p, sizeof r.v); return r; }
inline I32 add_int(I32 a, I32 b) {
    return lanes<I32>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i])); });
}
inline I32 max_int(I32 a, I32 b) { return lanes<I32>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
inline int32_t largest_int(I32 a) {
    int32_t m = a.v[0];
    for (int i = 1; i < kLanes; ++i) m = a.v[i] > m ? a.v[i] : m;
    return m;
}
inline I32 bits_of(F32 x) { I32 r; std::memcpy(r.v, x.v, sizeof r.v); return r; }
inline F32 float_of_bits(I32 x) { F32 r; std::memcpy(r.v, x.v, sizeof r.v); return r; }
inline I32 shift_left(I32 a, int bits) {
    return lanes<I32>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << bits); });
}
inline void store_bytes(int8_t* p, I32 x) {
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(x.v[i] > 127 ? 127 : x.v[i] < -128 ? -128 : x.v[i]);
}

inline int32_t sum_bytes(const int8_t* p) {  // of 16
    int32_t total = 0;
    for (int i = 0; i < kLanes; ++i) total += p[i];
    return total;
}

inline F32 load_f16(const void* p) {
    uint16_t h[kLanes];
    std::memcpy(h, p, sizeof h);
    return lanes<F32>([&](int i) { return f16_to_float(h[i]); });
}
inline F32 load_bf16(const void* p) {
    uint16_t h[kLanes];
    std::memcpy(h, p, sizeof h);
    return lanes<F32>([&](int i) { return bf16_to_float(h[i]); });
}
inline F32 load_int8(const void* p) {
    const auto* b = static_cast<const int8_t*>(p);
    return lanes<F32>([&](int i) { return static_cast<float>(b[i]); });
}
inline void store_bf16(void* p, F32 x) {
    uint16_t h[kLanes];
    for (int i = 0; i < kLanes; ++i) h[i] = float_to_bf16(x.v[i]);
    std::memcpy(p, h, sizeof h);
}

inline Bytes load_64(const void* p) { Bytes r; std::memcpy(r.v, p, 64); return r; }
inline Bytes low_nibbles(Bytes x) { for (auto& b : x.v) b &= 0x0F; return x; }
inline Bytes high_nibbles(Bytes x) { for (auto& b : x.v) b >>= 4; return x; }
inline Bytes load_table(const uint8_t* lut16) { Bytes r; for (int i = 0; i < 64; ++i) r.v[i] = lut16[i & 15]; return r; }
inline Bytes look_up(Bytes table, Bytes code) { for (auto& b : code.v) b = table.v[b]; return code; }
inline Bytes add_16_where(Bytes x, const void* bits8) {
    const auto* bits = static_cast<const uint8_t*>(bits8);
    for (int i = 0; i < 64; ++i) x.v[i] = static_cast<uint8_t>(x.v[i] + ((bits[i / 8] >> (i & 7)) & 1) * 16);
    return x;
}

inline I32 dot_4(I32 acc, Bytes w, const void* a4) {
    int8_t a[4];
    std::memcpy(a, a4, 4);
    for (int i = 0; i < kLanes; ++i)
        acc.v[i] += w.v[4 * i] * a[0] + w.v[4 * i + 1] * a[1] + w.v[4 * i + 2] * a[2] + w.v[4 * i + 3] * a[3];
    return acc;
}
inline F32 dot_2(F32 acc, Bytes w, const void* x2) {
    uint16_t x[2], p[32];
    std::memcpy(x, x2, 4);
    std::memcpy(p, w.v, 64);
    const float even = bf16_to_float(x[0]), odd = bf16_to_float(x[1]);
    for (int i = 0; i < kLanes; ++i) acc.v[i] = acc.v[i] + bf16_to_float(p[2 * i]) * even + bf16_to_float(p[2 * i + 1]) * odd;
    return acc;
}

inline F32 keep_lanes(F32 x, int from, int to, float other) {
    return lanes<F32>([&](int i) { return i >= from && i < to ? x.v[i] : other; });
}
inline void store_words(void* p, I32 x) {
    int16_t h[kLanes];
    for (int i = 0; i < kLanes; ++i) h[i] = static_cast<int16_t>(x.v[i] > 32767 ? 32767 : x.v[i] < -32768 ? -32768 : x.v[i]);
    std::memcpy(p, h, sizeof h);
}
inline Bytes widen_bytes(const void* p) {
    int8_t b[32];
    int16_t h[32];
    std::memcpy(b, p, sizeof b);
    for (int i = 0; i < 32; ++i) h[i] = b[i];
    Bytes r;
    std::memcpy(r.v, h, sizeof r.v);
    return r;
}
inline I32 dot_2_int(I32 acc, Bytes w, const void* x2) {
    int16_t x[2], h[32];
    std::memcpy(x, x2, 4);
    std::memcpy(h, w.v, 64);
    for (int i = 0; i < kLanes; ++i) acc.v[i] += h[2 * i] * x[0] + h[2 * i + 1] * x[1];
    return acc;
}

inline void prefetch(const void* p) { __builtin_prefetch(p); }
inline void prefetch_later(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace octavo::OCTAVO_ISA
