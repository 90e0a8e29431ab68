// One draw's logits, and the passes over the whole vocabulary that every way of sampling needs: the largest, and the mass.
// What a damaged model computes does no harm: NaN counts as -inf, inf as the largest number.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include OCTAVO_SIMD
#include "isa/chunks.h"
#include "sample_scratch.h"

namespace octavo::OCTAVO_ISA {

constexpr float kLargestFloat = std::numeric_limits<float>::max();
constexpr double kLargestDouble = std::numeric_limits<double>::max();
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Tokens with penalties are not in the row (it says NaN, which no comparison finds) but in a list of their own.
struct Logits {
    const float* row_V;
    int vocabulary;
    const Scored* penalised;
    int penalised_count;
};

inline float clean(float x) { return x != x ? kMinusInfinity : std::min(x, kLargestFloat); }

// Logits i .. i+n-1; lanes after those, and NaN, are -inf.
inline F32 logits_at(const float* row_V, int i, int n) {
    if (n == 16) return max(min(splat(kLargestFloat), load(row_V + i)), splat(kMinusInfinity));  // NaN passes min, not max
    float last[16];
    std::fill(last, last + 16, kMinusInfinity);
    std::memcpy(last, row_V + i, sizeof(float) * static_cast<size_t>(n));
    return logits_at(last, 0, 16);
}

inline float largest_of(const float* row_V, int count) {
    F32 part[4] = {splat(kMinusInfinity), splat(kMinusInfinity), splat(kMinusInfinity), splat(kMinusInfinity)};
    int i = 0;
    for (; i + 64 <= count; i += 64)
        for (int p = 0; p < 4; ++p) part[p] = max(part[p], logits_at(row_V, i + 16 * p, 16));
    for_vectors(count - i, [&](int at, int n) { part[0] = max(part[0], logits_at(row_V, i + at, n)); });
    return largest(max(max(part[0], part[1]), max(part[2], part[3])));
}

// The largest logit, and the smallest id that has it. Rows are far larger than a cache that is worth a second pass, so only
// the block with the largest one is searched.
inline Scored largest_logit(const Logits& logits) {
    constexpr int kBlock = 1024;
    float best = kMinusInfinity;
    int block = 0;
    for (int b = 0; b < logits.vocabulary; b += kBlock) {
        const float here = largest_of(logits.row_V + b, std::min(kBlock, logits.vocabulary - b));
        if (here > best) best = here, block = b;
    }
    int id = block;
    while (best > kMinusInfinity && clean(logits.row_V[id]) != best) ++id;
    Scored found{best, id};
    for (int p = 0; p < logits.penalised_count; ++p) {
        const Scored& other = logits.penalised[p];
        if (other.score > found.score || (other.score == found.score && other.id < found.id)) found = other;
    }
    return found;
}

// e^x for x <= 0 in float64, to about 1e-15; below -708 that of -708. A loop over it becomes vectors.
inline double exp_of_negative(double x) {
    x = x > -708.0 ? x : -708.0;
    const double shifted = x * 1.4426950408889634 + 0x1.8p52, n = shifted - 0x1.8p52;
    const double r = x - n * 6.93147180369123816490e-01 - n * 1.90821492927058770002e-10;  // ln 2 in two parts
    double p = 1.0 / 6227020800;  // the series, |r| <= ln 2 / 2: terms up to r^13
    for (const double factorial : {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0})
        p = p * r + 1.0 / factorial;
    p = (p * r + 1.0) * r + 1.0;
    uint64_t bits;
    std::memcpy(&bits, &shifted, 8);
    bits = (bits + 1023) << 52;
    double power;
    std::memcpy(&power, &bits, 8);
    return p * power;
}

// Sum of exp((logit - largest) / temperature) over the vocabulary. In eight parts: the order is that of no vector width.
// also(score, weight) is told of every token.
template <class Also>
inline double mass_of(const Logits& logits, double largest, double temperature, Also also) {
    constexpr int kBlock = 256;
    const double inverse = 1.0 / temperature;
    double part[8] = {}, score[kBlock], weight[kBlock];
    for (int b = 0; b < logits.vocabulary; b += kBlock) {
        const int n = std::min(kBlock, logits.vocabulary - b);
        const float* block = logits.row_V + b;
        for (int i = 0; i < n; ++i) {
            const double x = std::min(block[i], kLargestFloat);
            score[i] = (x - largest) * inverse;
            weight[i] = exp_of_negative(score[i]);
        }
        for (int i = 0; i < n; ++i) also(score[i], weight[i]);
        for (int i = n; i < kBlock; ++i) weight[i] = 0.0;
        for (int i = 0; i < kBlock; i += 8)
            for (int p = 0; p < 8; ++p) part[p] += weight[i + p];
    }
    double mass = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (int p = 0; p < logits.penalised_count; ++p) {
        const double below = (logits.penalised[p].score - largest) / temperature, heavy = std::exp(below);
        also(below, heavy);
        mass += heavy;
    }
    return mass;
}

}  // namespace octavo::OCTAVO_ISA
