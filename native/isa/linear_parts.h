// How a LINEAR is cut into tasks, and what happens to a finished sum. Knows nothing of how weights are stored.
// T tokens, O outputs. The cut changes only who computes an output, never how.
#pragma once

#include <algorithm>

#include "kernels.h"
#include "pack/layout.h"

namespace octavo::OCTAVO_ISA {

constexpr int kStretchTokens = 64;  // tokens that meet all panels of a task before the next ones do: their inputs stay in L2

// With as many tokens for each thread, each has tokens of its own and all panels: the team gives one worker the same rows in
// every op, and what it reads next lies in its own cache. Passing a step's values from core to core takes longer than reading
// the weights twice.
constexpr int kTokensOfOne = 16;

// Panels and tokens of one task: [first, end).
struct Part {
    int first_panel, end_panel, first_token, end_token;
};

// With few tokens threads share the panels, and no weight is read twice; with many they share the tokens. Tasks are a whole
// number per thread, so that equal threads finish together, and several, so that unequal ones do nearly.
struct Cut {
    int panels, panel_parts, tokens, token_parts;

    Cut(int panels, int tokens, int threads) : panels(panels), tokens(tokens) {
        constexpr int kPartsPerThread = 4;
        const int wanted = threads * kPartsPerThread;
        if (tokens >= threads * kTokensOfOne) {
            token_parts = threads;
            panel_parts = std::min(panels, kPartsPerThread);
        } else {
            token_parts = 1;
            panel_parts = panels >= wanted ? wanted : panels >= threads ? panels / threads * threads : panels;
        }
    }

    int tasks() const { return tokens > 0 ? panel_parts * token_parts : 0; }

    Part part(int task) const {
        const int p = task % panel_parts, t = task / panel_parts;
        return {begin_of(p, panel_parts, panels), begin_of(p + 1, panel_parts, panels), begin_of(t, token_parts, tokens), begin_of(t + 1, token_parts, tokens)};
    }
};

// Calls f(first, end) for the stretches of the part's tokens, of nearly equal length.
template <class Function>
inline void for_stretches(const Part& part, Function f) {
    const int tokens = part.end_token - part.first_token, stretches = (tokens + kStretchTokens - 1) / kStretchTokens;
    for (int s = 0; s < stretches; ++s) f(part.first_token + tokens * s / stretches, part.first_token + tokens * (s + 1) / stretches);
}

template <int Most, class Function>
inline void call_with_tokens(int tokens, int token, Function f) {
    if constexpr (Most > 1) {
        if (tokens < Most) return call_with_tokens<Most - 1>(tokens, token, f);
    }
    f.template operator()<Most>(token);
}

// Calls f<Tokens>(token) for tiles of at most Most tokens, of nearly equal size: 9 tokens are 5 and 4, not 8 and 1.
template <int Most, class Function>
inline void for_tiles(int first_token, int end_token, Function f) {
    const int tokens = end_token - first_token, tiles = (tokens + Most - 1) / Most;
    for (int tile = 0; tile < tiles; ++tile) {
        const int first = tokens * tile / tiles, end = tokens * (tile + 1) / tiles;
        call_with_tokens<Most>(end - first, first_token + first, f);
    }
}

// Where sums go: out[t, o] = sum + bias[o] + residual[t, o], in this order; the residual may be `out` itself.
struct Output {
    const octavo_op& op;

    void write(int t, int panel, F32 sum) const {
        const int o = panel * kPanelRows;
        const int count = std::min(kPanelRows, op.weight->rows - o);
        float* out = row(op.out, t) + o;
        if (count == kPanelRows) {
            if (op.vector != nullptr) sum = add(sum, load(op.vector + o));
            if (op.y.data != nullptr) sum = add(sum, load(row(op.y, t) + o));
            store(out, sum);
        } else {
            if (op.vector != nullptr) sum = add(sum, load_first(op.vector + o, count));
            if (op.y.data != nullptr) sum = add(sum, load_first(row(op.y, t) + o, count));
            store_first(out, sum, count);
        }
    }
};

}  // namespace octavo::OCTAVO_ISA
