// SAMPLE: penalties -> temperature -> top-k -> top-p -> min-p -> draw, and log probabilities, one draw a task.
//
// The specification is ops/reference/sample.py: what decides is computed in float64 as there. What is done faster is finding
// the few tokens for which that must be computed at all.
#pragma once

#include "isa/candidates.h"
#include "isa/exp.h"
#include "isa/noise.h"
#include "isa/penalties.h"

namespace octavo::OCTAVO_ISA {

// Who has the largest score + noise: a draw from softmax(score) (Gumbel 1954).
//
// Most tokens are ruled out without a logarithm. Noise is -log(-log u) and -log u >= 1 - u, so a token can only win where
// exp(score) * exp(-best) >= 1 - u. On average about one token in the whole vocabulary passes when the best is known.
class Race {
  public:
    // Starts with the token of score 0. `slack`: by what factor exp(score) may be wrong in callers' tests.
    Race(const Noise& noise, int id, double slack) : noise_(noise), slack_(slack), best_(noise.gumbel(id)), id_(id) { set_limit(); }

    void enter(int id, double score) {
        const double value = score + noise_.gumbel(id);
        if (value < best_ || (value == best_ && id >= id_)) return;
        best_ = value;
        id_ = id;
        set_limit();
    }

    // The same, for one whose exp(score) is known.
    void enter(int id, double score, double weight) {
        if (weight * limit_ >= noise_.gap(id)) enter(id, score);
    }

    float limit() const { return limit_; }
    int winner() const { return id_; }

  private:
    void set_limit() { limit_ = static_cast<float>(slack_ * std::exp(-best_)); }

    const Noise& noise_;
    double slack_, best_;
    int id_;
    float limit_;
};

// A draw from the whole vocabulary.
inline int draw_from_all(const Logits& logits, const Scale& scale, int likeliest, const Noise& noise) {
    constexpr int kBlock = 1024;
    const float largest = static_cast<float>(scale.largest), inverse = static_cast<float>(std::min(1.0 / scale.temperature, 1e30));
    // exp(score) in float32: the difference to the largest is off by its rounding, and cold temperatures enlarge that.
    const double slack = std::exp(std::min(1e-4 + std::fabs(scale.largest) * 0x1p-22 * inverse, 80.0));
    Race race(noise, likeliest, slack);
    for (int p = 0; p < logits.penalised_count; ++p) {
        const double score = scale.score(logits.penalised[p].score);
        race.enter(logits.penalised[p].id, score, std::exp(score));
    }
    for (int b = 0; b < logits.vocabulary; b += kBlock) {
        float gap[kBlock];
        const int count = std::min(kBlock, logits.vocabulary - b);
        noise.gaps(b, count, gap);
        for_vectors(count, [&](int i, int n) {
            const F32 weight = exp(mul(sub(logits_at(logits.row_V, b + i, n), splat(largest)), splat(inverse)));
            uint32_t passed = where_at_least(mul(weight, splat(race.limit())), load_n(gap + i, n)) & ((1u << n) - 1);
            for (; passed != 0; passed &= passed - 1) {
                const int id = b + i + __builtin_ctz(passed);
                race.enter(id, scale.score(clean(logits.row_V[id])));
            }
        });
    }
    return race.winner();
}

// The settings of one draw: top_k 0, top_p 1 and min_p 0 are off.
struct Filters {
    int64_t top_k;
    double top_p, min_p;

    Filters(const octavo_sample_batch& batch, int draw)
        : top_k(batch.top_k_S ? batch.top_k_S[draw] : 0),
          top_p(batch.top_p_S ? batch.top_p_S[draw] : 1.0),
          min_p(batch.min_p_S ? batch.min_p_S[draw] : 0.0) {}

    bool active() const { return top_k > 0 || top_p < 1.0 || min_p > 0.0; }
};

// Puts what top-k and top-p keep into `out`, with weights; returns how many. Tokens that min-p drops may be missing.
inline int keep(const Logits& logits, const Scale& scale, const Filters& filters, Candidate* out) {
    const int all = logits.vocabulary;
    const double lowest = filters.min_p > 0.0 ? std::log(filters.min_p) - 1e-9 : -kLargestDouble;
    if (filters.top_k > 0) {
        const int k = static_cast<int>(std::min<int64_t>(filters.top_k, all));
        const bool share = filters.top_p < 1.0;  // of the mass after top-k, whatever min-p will drop
        const int n = most_likely(logits, scale, k, share ? -kLargestDouble : lowest, out);
        const double mass = weigh(out, n);
        return share ? lightest_prefix(out, n, filters.top_p * mass) : n;
    }
    if (filters.top_p >= 1.0) {
        const int n = most_likely(logits, scale, all, lowest, out);
        weigh(out, n);
        return n;
    }
    const Share share = share_of(logits, scale, filters.top_p);
    const int n = most_likely(logits, scale, all, std::max(lowest, share.lowest), out);
    weigh(out, n);
    return lightest_prefix(out, n, share.wanted);
}

inline int draw_token(const octavo_sample_batch& batch, int draw, const SampleScratch& scratch) {
    const Logits logits = penalised_logits(batch, draw, scratch);
    const Scored likeliest = largest_logit(logits);
    const double temperature = batch.temperature_S[draw];
    if (!(temperature > 0.0) || likeliest.score == kMinusInfinity) return likeliest.id;
    const Scale scale{likeliest.score, temperature, 0.0};
    const Noise noise(batch.seed_S[draw], batch.choice_S[draw], batch.position_S[draw]);
    const Filters filters(batch, draw);
    if (!filters.active()) return draw_from_all(logits, scale, likeliest.id, noise);
    const int n = keep(logits, scale, filters, scratch.candidate_V);
    Race race(noise, likeliest.id, 1.0 + 1e-6);
    for (int i = 0; i < n; ++i) {
        const Candidate& c = scratch.candidate_V[i];
        if (c.weight >= filters.min_p) race.enter(c.id, c.score, c.weight);
    }
    return race.winner();
}

// Of the distribution as the model gave it.
inline void report_logprobs(const octavo_sample_batch& batch, int draw, const SampleScratch& scratch) {
    const Logits logits{batch.logits_SV + draw * batch.stride, batch.vocabulary, nullptr, 0};
    const double largest = std::max(largest_logit(logits).score, -kLargestDouble);
    const double mass = mass_of(logits, largest, 1.0, [](double, double) {});
    const Scale scale{largest, 1.0, std::log(std::max(mass, std::numeric_limits<double>::min()))};
    batch.logprob_S[draw] = scale.score(clean(logits.row_V[batch.token_S[draw]]));
    const int wanted = static_cast<int>(std::min<int64_t>(batch.logprobs_S[draw], batch.vocabulary));
    if (wanted == 0) return;
    Candidate* top = scratch.candidate_V;
    const int n = most_likely(logits, scale, wanted, -std::numeric_limits<double>::infinity(), top);
    std::sort(top, top + n, likelier);
    for (int i = 0; i < n; ++i) {
        batch.top_id_SM[draw * batch.top_stride + i] = top[i].id;
        batch.top_logprob_SM[draw * batch.top_stride + i] = top[i].score;
    }
}

inline int sample_tasks(const octavo_op& op, const octavo_step& step, int) { return rows_of(op, step); }

inline void sample(const octavo_op& op, const octavo_step&, int draw, Worker& worker) {
    const auto& batch = *static_cast<const octavo_sample_batch*>(op.scratch);
    const SampleScratch scratch = SampleScratch::of(batch.scratch, batch.vocabulary, worker.index);
    batch.token_S[draw] = draw_token(batch, draw, scratch);
    if (batch.logprobs_S != nullptr && batch.logprobs_S[draw] >= 0) report_logprobs(batch, draw, scratch);
}

}  // namespace octavo::OCTAVO_ISA
