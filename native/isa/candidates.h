// Selecting the most likely tokens without sorting the vocabulary, and how many of them top-p keeps.
#pragma once

#include "isa/logits.h"

namespace octavo::OCTAVO_ISA {

// From a (penalised) logit to a score: (logit - largest) / temperature - shift. In this order, as in the reference.
struct Scale {
    double largest, temperature, shift;

    double score(double logit) const { return (logit - largest) / temperature - shift; }

    // At most the logit of any token whose score is `score` or more, however the score was rounded; above -inf unless
    // the score is -inf.
    float least_logit(double score) const {
        if (score == -std::numeric_limits<double>::infinity()) return kMinusInfinity;
        const double logit = largest + (score + shift) * temperature;
        const double rounding = 1e-14 * (std::fabs(logit) + std::fabs(largest) + std::fabs(shift * temperature));
        if (!(logit - rounding > -kLargestFloat)) return -kLargestFloat;
        return std::nextafter(static_cast<float>(logit - rounding), -kLargestFloat);
    }
};

inline bool likelier(const Candidate& a, const Candidate& b) { return a.score > b.score || (a.score == b.score && a.id < b.id); }

// The `count` likeliest tokens, or all with a score of at least `lowest` where they are fewer, in any order. Returns how
// many; `out` has room for the vocabulary. Weights are not set.
//
// One pass: whatever passes a threshold goes to a buffer; a full buffer is cut down to its best, and the worst of these is
// the new threshold. After some thousand tokens hardly any passes.
inline int most_likely(const Logits& logits, const Scale& scale, int count, double lowest, Candidate* out) {
    const int room = static_cast<int>(std::min<int64_t>(logits.vocabulary, int64_t{2} * count + 64));
    float threshold = scale.least_logit(lowest);
    int n = 0;
    auto cut = [&] {
        std::nth_element(out, out + count - 1, out + n, likelier);
        n = count;
        threshold = std::max(threshold, scale.least_logit(out[count - 1].score));
    };
    auto add = [&](int id, double score) {
        if (n == room) cut();
        out[n++] = {score, 0.0, id};
    };
    for (int p = 0; p < logits.penalised_count; ++p) {
        const double score = scale.score(logits.penalised[p].score);
        if (score >= lowest) add(logits.penalised[p].id, score);
    }
    for_vectors(logits.vocabulary, [&](int i, int lanes) {
        uint32_t passed = where_at_least(logits_at(logits.row_V, i, lanes), splat(threshold)) & ((1u << lanes) - 1);
        for (; passed != 0; passed &= passed - 1) {
            const int id = i + __builtin_ctz(passed);
            add(id, scale.score(clean(logits.row_V[id])));
        }
    });
    if (n > count) cut();
    return n;
}

// Sets the weights, and returns their sum.
inline double weigh(Candidate* candidates, int n) {
    double mass = 0.0;
    for (int i = 0; i < n; ++i) mass += candidates[i].weight = std::exp(candidates[i].score);
    return mass;
}

// What top-p takes of the whole vocabulary: a mass, and a score that no token of its has less than.
struct Share {
    double wanted, lowest;
};

// The score by a histogram of the mass over scores, so that only tokens near the border are selected from in the end.
inline Share share_of(const Logits& logits, const Scale& scale, double top_p) {
    constexpr int kBins = 512;
    constexpr double kBinsPerUnit = 8.0, kSafety = 1e-9;  // far more than anything here is rounded by
    double mass_B[kBins] = {};
    const double mass = mass_of(logits, scale.largest, scale.temperature, [&](double score, double weight) {
        mass_B[score > -(kBins - 1) / kBinsPerUnit ? static_cast<int>(-score * kBinsPerUnit) : kBins - 1] += weight;
    });
    const double wanted = top_p * mass;
    double before = 0.0;
    for (int b = 0; b < kBins - 1; ++b)
        if ((before += mass_B[b]) >= wanted * (1.0 + kSafety)) return {wanted, -(b + 1) / kBinsPerUnit - kSafety};
    return {wanted, -kLargestDouble};
}

// Moves to the front the likeliest candidates that together weigh at least `wanted` (all, where they do not), as few as will
// do; returns how many. Halves the part in which the last of them must lie, so that few are ever sorted.
inline int lightest_prefix(Candidate* candidates, int n, double wanted) {
    constexpr int kSorted = 64;
    int first = 0, last = n;
    double mass = 0.0;  // of those before `first`
    while (last - first > kSorted) {
        const int middle = first + (last - first) / 2;
        std::nth_element(candidates + first, candidates + middle, candidates + last, likelier);
        double half = mass;
        for (int i = first; i < middle; ++i) half += candidates[i].weight;
        if (half >= wanted) {
            last = middle;
        } else {
            first = middle;
            mass = half;
        }
    }
    std::sort(candidates + first, candidates + last, likelier);
    for (int i = first; i < last; ++i)
        if ((mass += candidates[i].weight) >= wanted) return i + 1;
    return last;
}

}  // namespace octavo::OCTAVO_ISA
