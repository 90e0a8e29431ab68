// 16-lane vectors on AVX-512 (F, BW, DQ, VL, VNNI, BF16: Zen 4, Sapphire Rapids and later). The same names as simd_avx2.h and
// simd_scalar.h, so that every kernel is one text. All functions are pure; no order of lanes is ever changed.
#pragma once

// gcc 12 takes the "undefined" vectors inside its own header for mistakes (gcc bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstdint>
#include <cstring>

namespace octavo::OCTAVO_ISA {

constexpr int kTokensPerTile = 16;  // activation rows that one pass over a weight panel serves: as many as registers hold
constexpr int kReadersPerTile = 6, kLinesPerTile = 4;  // of attention: queries that share 4 x 64 bytes of the cache
constexpr int kUnroll = 16;  // for loops over arrays of vectors that should live in registers

using F32 = __m512;    // 16 x float32
// 16 x int32. Not __m512i, which is 8 x int64 to GCC: an accumulator that is the one in its loop and the other for the instructions takes
// two registers.
using I32 = int32_t __attribute__((vector_size(64)));
using Bytes = __m512i; // 64 bytes: 16 lanes x 4 consecutive inputs, or 16 lanes x 2 bf16
using Bits = __mmask64; // one bit per byte

inline F32 zero() { return _mm512_setzero_ps(); }
inline F32 splat(float x) { return _mm512_set1_ps(x); }
inline F32 load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F32 x) { _mm512_storeu_ps(p, x); }
inline F32 load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p); }  // n in 0..16, rest 0
inline void store_first(float* p, F32 x, int n) { _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), x); }
inline F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
inline F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
inline F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
inline F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
inline F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
inline F32 min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
inline F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }  // a * b + c
inline uint32_t where_at_least(F32 a, F32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }  // a bit per lane; NaN: 0
inline F32 abs(F32 a) { return _mm512_abs_ps(a); }
inline float sum(F32 a) { return _mm512_reduce_add_ps(a); }
inline float largest(F32 a) { return _mm512_reduce_max_ps(a); }

inline F32 to_float(I32 x) { return _mm512_cvtepi32_ps(__m512i(x)); }
inline I32 to_int(F32 x) { return I32(_mm512_cvtps_epi32(x)); }  // to nearest even
inline I32 zero_int() { return I32(_mm512_setzero_si512()); }
inline I32 splat_int(int32_t x) { return I32(_mm512_set1_epi32(x)); }
inline I32 load_int(const int32_t* p) { return I32(_mm512_loadu_si512(p)); }
inline I32 add_int(I32 a, I32 b) { return I32(_mm512_add_epi32(__m512i(a), __m512i(b))); }
inline I32 max_int(I32 a, I32 b) { return I32(_mm512_max_epi32(__m512i(a), __m512i(b))); }
inline int32_t largest_int(I32 a) { return _mm512_reduce_max_epi32(__m512i(a)); }
inline I32 bits_of(F32 x) { return I32(_mm512_castps_si512(x)); }
inline F32 float_of_bits(I32 x) { return _mm512_castsi512_ps(__m512i(x)); }
inline I32 shift_left(I32 a, int bits) { return I32(_mm512_sll_epi32(__m512i(a), _mm_cvtsi32_si128(bits))); }
inline void store_bytes(int8_t* p, I32 x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(__m512i(x))); }  // 16 lanes, saturated

inline int32_t sum_bytes(const int8_t* p) {  // of 16
    const __m128i biased = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(-128));
    const __m128i sums = _mm_sad_epu8(biased, _mm_setzero_si128());  // of 8 bytes, each 128 too large
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

inline F32 load_f16(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
inline F32 load_bf16(const void* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p))), 16));
}
inline F32 load_int8(const void* p) { return to_float(I32(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))))); }
inline void store_bf16(void* p, F32 x) {  // to nearest even
    const __m256bh narrow = _mm512_cvtneps_pbh(x);
    std::memcpy(p, &narrow, 32);
}

inline Bytes load_64(const void* p) { return _mm512_loadu_si512(p); }
inline Bytes low_nibbles(Bytes x) { return _mm512_and_si512(x, _mm512_set1_epi8(0x0F)); }
inline Bytes high_nibbles(Bytes x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(0x0F)); }
inline Bytes load_table(const uint8_t* lut16) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lut16)));
}
inline Bytes look_up(Bytes table, Bytes code) { return _mm512_shuffle_epi8(table, code); }
inline Bytes add_16_where(Bytes x, const void* bits8) {  // adds 16 to byte i where bit i of the 8 bytes is set: the fifth bit
    uint64_t bits;
    std::memcpy(&bits, bits8, 8);
    return _mm512_mask_add_epi8(x, bits, x, _mm512_set1_epi8(16));
}

// acc[lane] += sum over 4 of w[lane][i] (unsigned) * a[i] (signed), a broadcast from memory. Exact.
inline I32 dot_4(I32 acc, Bytes w, const void* a4) {
    int32_t a;
    std::memcpy(&a, a4, 4);
    return I32(_mm512_dpbusd_epi32(__m512i(acc), w, _mm512_set1_epi32(a)));
}
// acc[lane] += w[lane][0] * x[0] + w[lane][1] * x[1] in bf16 pairs, x broadcast from memory (VDPBF16PS's own rounding).
inline F32 dot_2(F32 acc, Bytes w, const void* x2) {
    int32_t x;
    std::memcpy(&x, x2, 4);
    const __m512i both = _mm512_set1_epi32(x);
    return _mm512_dpbf16_ps(acc, reinterpret_cast<const __m512bh&>(w), reinterpret_cast<const __m512bh&>(both));
}

inline F32 keep_lanes(F32 x, int from, int to, float other) {  // x in lanes from .. to-1 (each in 0..16), else other
    const uint32_t kept = ((1u << to) - 1) & ~((1u << from) - 1);
    return _mm512_mask_blend_ps(static_cast<__mmask16>(kept), _mm512_set1_ps(other), x);
}
inline void store_words(void* p, I32 x) { _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(__m512i(x))); }  // 16 lanes to int16, saturated
inline Bytes widen_bytes(const void* p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }  // 32 int8 to 32 int16
// acc[lane] += w[lane][0] * x[0] + w[lane][1] * x[1] in int16 pairs, x broadcast from memory. Exact.
inline I32 dot_2_int(I32 acc, Bytes w, const void* x2) {
    int32_t x;
    std::memcpy(&x, x2, 4);
    return I32(_mm512_dpwssd_epi32(__m512i(acc), w, _mm512_set1_epi32(x)));
}

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_later(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }  // into the second level

}  // namespace octavo::OCTAVO_ISA
