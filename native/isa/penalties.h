// Repetition (arXiv 1909.05858), frequency and presence penalties (OpenAI). Only the tokens of the history are computed.
#pragma once

#include "isa/logits.h"
#include "sample_scratch.h"

namespace octavo::OCTAVO_ISA {

inline double penalised_score(const octavo_sample_batch& batch, int draw, float logit, int written) {
    double score = clean(logit);
    if (batch.repetition_S != nullptr) {
        const double penalty = batch.repetition_S[draw];
        score = score > 0 ? score / penalty : score * penalty;
    }
    if (written > 0 && batch.frequency_S != nullptr) score -= batch.frequency_S[draw] * written;
    if (written > 0 && batch.presence_S != nullptr) score -= batch.presence_S[draw];
    return score != score ? kMinusInfinity : std::min(score, kLargestDouble);
}

// Ids that are none of this vocabulary have no logit.
inline bool is_token(int id, int vocabulary) { return id >= 0 && id < vocabulary; }

// The draw's logits after its penalties. Those of a draw with a history are a copy in `scratch`.
inline Logits penalised_logits(const octavo_sample_batch& batch, int draw, const SampleScratch& scratch) {
    const float* row_V = batch.logits_SV + draw * batch.stride;
    if (batch.history_S == nullptr) return {row_V, batch.vocabulary, nullptr, 0};
    const octavo_history& history = batch.history_S[draw];
    if (history.prompt_count + history.output_count == 0) return {row_V, batch.vocabulary, nullptr, 0};

    int seen = 0;
    auto count = [&](int id, int written) {
        if (!is_token(id, batch.vocabulary)) return;
        int32_t& uses = scratch.uses_V[id];  // 1 + how often it was written; 0 between draws
        if (uses == 0) {
            uses = 1;
            scratch.penalised_V[seen++].id = id;
        }
        uses += written;
    };
    for (int i = 0; i < history.prompt_count; ++i) count(history.prompt[i], 0);
    for (int i = 0; i < history.output_count; ++i) count(history.output[i], 1);

    std::memcpy(scratch.row_V, row_V, sizeof(float) * static_cast<size_t>(batch.vocabulary));
    for (int i = 0; i < seen; ++i) {
        Scored& token = scratch.penalised_V[i];
        token.score = penalised_score(batch, draw, row_V[token.id], scratch.uses_V[token.id] - 1);
        scratch.row_V[token.id] = std::numeric_limits<float>::quiet_NaN();
        scratch.uses_V[token.id] = 0;
    }
    return {scratch.row_V, batch.vocabulary, scratch.penalised_V, seen};
}

}  // namespace octavo::OCTAVO_ISA
