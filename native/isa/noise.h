// The sampler's noise: a hash of (seed, choice, position, token id), bit for bit that of ops/reference/noise.py.
// SplitMix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace octavo::OCTAVO_ISA {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

inline uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

// The noise of one draw. u(id) is uniform in (0, 1), an odd multiple of 2^-53.
class Noise {
  public:
    Noise(int64_t seed, int64_t choice, int64_t position) {
        for (const int64_t counter : {seed, choice, position}) key_ = mix((key_ ^ static_cast<uint64_t>(counter)) + kGolden);
    }

    // Standard Gumbel noise: -log(-log(u)).
    double gumbel(int id) const { return -std::log(-std::log((bits(id) + 0.5) * 0x1p-52)); }

    // 1 - u, exactly.
    double gap(int id) const { return 1.0 - (bits(id) + 0.5) * 0x1p-52; }

    // Those of ids first .. first+n-1, rounded. A loop that compilers make vectors of.
    void gaps(int first, int n, float* gap) const {
        for (int i = 0; i < n; ++i) gap[i] = static_cast<float>(this->gap(first + i));
    }

  private:
    double bits(int id) const {  // 52 of them, as a number: put below the exponent of 2^52, which is then taken off
        const uint64_t hash = mix(key_ + (static_cast<uint64_t>(id) + 1) * kGolden) >> 12 | 0x4330000000000000;
        double number;
        std::memcpy(&number, &hash, 8);
        return number - 0x1p52;
    }

    uint64_t key_ = 0;
};

}  // namespace octavo::OCTAVO_ISA
