// 16-lane vectors on AVX2 + FMA + F16C (and AVX-VNNI where the compiler is told of it): two 256-bit halves. See simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace octavo::OCTAVO_ISA {

constexpr int kTokensPerTile = 4;  // 16 registers of 8 lanes
constexpr int kReadersPerTile = 4, kLinesPerTile = 1;  // of attention: queries that share 1 x 64 bytes of the cache
constexpr int kUnroll = 16;

struct F32 { __m256 a, b; };
struct I32 { __m256i a, b; };
struct Bytes { __m256i a, b; };

inline F32 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F32 x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
inline F32 load_first(const float* p, int n) { alignas(32) float all[16] = {}; std::memcpy(all, p, sizeof(float) * static_cast<size_t>(n)); return load(all); }
inline void store_first(float* p, F32 x, int n) { alignas(32) float all[16]; store(all, x); std::memcpy(p, all, sizeof(float) * static_cast<size_t>(n)); }
inline F32 add(F32 x, F32 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F32 sub(F32 x, F32 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F32 mul(F32 x, F32 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F32 div(F32 x, F32 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F32 max(F32 x, F32 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F32 min(F32 x, F32 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F32 fma(F32 x, F32 y, F32 z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline uint32_t where_at_least(F32 x, F32 y) {
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ)), high = _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ));
    return static_cast<uint32_t>(low | high << 8);
}
inline F32 abs(F32 x) { const __m256 sign = _mm256_set1_ps(-0.0f); return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)}; }
inline float sum(F32 x) {
    const __m256 s8 = _mm256_add_ps(x.a, x.b);
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float largest(F32 x) {
    const __m256 s8 = _mm256_max_ps(x.a, x.b);
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

inline F32 to_float(I32 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I32 to_int(F32 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline I32 zero_int() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I32 splat_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I32 load_int(const int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline I32 add_int(I32 x, I32 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline I32 max_int(I32 x, I32 y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
inline int32_t largest_int(I32 x) {
    const __m256i m8 = _mm256_max_epi32(x.a, x.b);
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1)));
}
inline I32 bits_of(F32 x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline F32 float_of_bits(I32 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline I32 shift_left(I32 x, int bits) {
    const __m128i count = _mm_cvtsi32_si128(bits);
    return {_mm256_sll_epi32(x.a, count), _mm256_sll_epi32(x.b, count)};
}
inline void store_bytes(int8_t* p, I32 x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

inline int32_t sum_bytes(const int8_t* p) {  // of 16
    const __m128i biased = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(-128));
    const __m128i sums = _mm_sad_epu8(biased, _mm_setzero_si128());  // of 8 bytes, each 128 too large
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

inline F32 load_f16(const void* p) {
    const auto* h = static_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
inline F32 load_bf16(const void* p) {
    const auto* h = static_cast<const __m128i*>(p);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(h)), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(h + 1)), 16))};
}
inline F32 load_int8(const void* p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return to_float({_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))});
}
inline __m256i to_bf16_bits(__m256 x) {  // to nearest even, in the low half of each lane; NaN stays NaN
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7FC0), nan);
}
inline void store_bf16(void* p, F32 x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(to_bf16_bits(x.a), to_bf16_bits(x.b)), 0xD8);
    _mm256_storeu_si256(static_cast<__m256i*>(p), words);
}

inline Bytes load_64(const void* p) {
    const auto* half = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
}
inline Bytes low_nibbles(Bytes x) { const __m256i m = _mm256_set1_epi8(0x0F); return {_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)}; }
inline Bytes high_nibbles(Bytes x) {
    const __m256i m = _mm256_set1_epi8(0x0F);
    return {_mm256_and_si256(_mm256_srli_epi16(x.a, 4), m), _mm256_and_si256(_mm256_srli_epi16(x.b, 4), m)};
}
inline Bytes load_table(const uint8_t* lut16) {
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lut16)));
    return {table, table};
}
inline Bytes look_up(Bytes table, Bytes code) { return {_mm256_shuffle_epi8(table.a, code.a), _mm256_shuffle_epi8(table.b, code.b)}; }
inline __m256i sixteen_where(uint32_t bits) {
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
    const __m256i each = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int32_t>(bits)), spread);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(each, bit), bit), _mm256_set1_epi8(16));
}
inline Bytes add_16_where(Bytes x, const void* bits8) {
    uint32_t bits[2];
    std::memcpy(bits, bits8, 8);
    return {_mm256_add_epi8(x.a, sixteen_where(bits[0])), _mm256_add_epi8(x.b, sixteen_where(bits[1]))};
}

inline __m256i dot_4_half(__m256i acc, __m256i w, __m256i a) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(acc, w, a);
#else
    // By way of 16 bits: PMADDUBSW would saturate for codes above 127. Even and odd bytes apart, each pair summed in 32.
    const __m256i even_w = _mm256_and_si256(w, _mm256_set1_epi16(0x00FF)), odd_w = _mm256_srli_epi16(w, 8);
    const __m256i even_a = _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8), odd_a = _mm256_srai_epi16(a, 8);
    return _mm256_add_epi32(acc, _mm256_add_epi32(_mm256_madd_epi16(even_w, even_a), _mm256_madd_epi16(odd_w, odd_a)));
#endif
}
inline I32 dot_4(I32 acc, Bytes w, const void* a4) {
    int32_t four;
    std::memcpy(&four, a4, 4);
    const __m256i a = _mm256_set1_epi32(four);
    return {dot_4_half(acc.a, w.a, a), dot_4_half(acc.b, w.b, a)};
}
inline __m256 dot_2_half(__m256 acc, __m256i w, __m256 even, __m256 odd) {
    acc = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(w, 16)), even, acc);
    return _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000)))), odd, acc);
}
inline F32 dot_2(F32 acc, Bytes w, const void* x2) {
    uint32_t two;
    std::memcpy(&two, x2, 4);
    float even, odd;
    const uint32_t low = two << 16, high = two & 0xFFFF0000u;
    std::memcpy(&even, &low, 4);
    std::memcpy(&odd, &high, 4);
    const __m256 e = _mm256_set1_ps(even), o = _mm256_set1_ps(odd);
    return {dot_2_half(acc.a, w.a, e, o), dot_2_half(acc.b, w.b, e, o)};
}

inline __m256 keep_half(__m256 x, __m256i lane, int from, int to, __m256 other) {
    const __m256i kept = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from), lane), _mm256_cmpgt_epi32(_mm256_set1_epi32(to), lane));
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(kept));
}
inline F32 keep_lanes(F32 x, int from, int to, float other) {
    const __m256 rest = _mm256_set1_ps(other);
    return {keep_half(x.a, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), from, to, rest),
            keep_half(x.b, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), from, to, rest)};
}
inline void store_words(void* p, I32 x) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8));
}
inline Bytes widen_bytes(const void* p) {
    const auto* half = static_cast<const __m128i*>(p);
    return {_mm256_cvtepi8_epi16(_mm_loadu_si128(half)), _mm256_cvtepi8_epi16(_mm_loadu_si128(half + 1))};
}
inline I32 dot_2_int(I32 acc, Bytes w, const void* x2) {
    int32_t two;
    std::memcpy(&two, x2, 4);
    const __m256i x = _mm256_set1_epi32(two);
    return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(w.a, x)), _mm256_add_epi32(acc.b, _mm256_madd_epi16(w.b, x))};
}

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_later(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }  // into the second level

}  // namespace octavo::OCTAVO_ISA
