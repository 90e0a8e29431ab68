// One float16 at a time, without instructions for it: packing and embedding, where the few conversions cost nothing.
#pragma once

#include <cstdint>
#include <cstring>

namespace octavo {

constexpr uint16_t kLargestHalf = 0x7BFF;  // 65504

inline float half_to_float(uint16_t half) {
    const uint32_t sign = uint32_t{half & 0x8000u} << 16, exponent = (half >> 10) & 31, fraction = half & 0x3FF;
    if (exponent == 0) {
        const float tiny = static_cast<float>(fraction) * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    const uint32_t bits = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | (fraction << 13);
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

// To nearest even; beyond the largest half infinity; NaN stays NaN.
inline uint16_t float_to_half(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
    if (size >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);
    if (size < 0x38800000u) {  // subnormal: the last bit of 0.5 + |x| is a subnormal's last bit, so the sum rounds for us
        float sum;
        std::memcpy(&sum, &size, 4);
        sum += 0.5f;
        std::memcpy(&size, &sum, 4);
        return static_cast<uint16_t>(sign | (size - 0x3F000000u));
    }
    size += 0xFFF + ((size >> 13) & 1);
    return static_cast<uint16_t>(sign | ((size - (112u << 23)) >> 13));
}

}  // namespace octavo
