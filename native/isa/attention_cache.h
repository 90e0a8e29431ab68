// The two kinds of cache, as what the loops of attention_tile.h need to know of them: Bf16Cache and Int8Cache.
#pragma once

#include "isa/attention_desk.h"
#include "isa/store_kv.h"

namespace octavo::OCTAVO_ISA {

// Queries are rounded to bf16 as keys are; weights too, and their sum is that of the rounded ones, so that they add up to one.
struct Bf16Cache {
    using Sum = F32;
    static constexpr int kDimsPerLine = 2;      // of keys
    static constexpr int kValueLine = 64;       // bytes of 16 dims of a pair of tokens

    static void take_query(Desk& desk, int m, const float* query, int padded, float scale) {
        for (int d = 0; d < padded; d += 16) store_bf16(desk.query[m] + 2 * d, load(query + d));
        desk.query_scale[m] = scale;
    }

    static Sum score_start(const Desk&, int) { return zero(); }
    static Sum score_add(Sum sum, Bytes key, const void* query) { return dot_2(sum, key, query); }
    static F32 score(Sum sum, const Desk& desk, int m, const uint8_t*, const KvLayout&) { return mul(sum, splat(desk.query_scale[m])); }

    static void weigh(Desk& desk, int m, const Tile& tile, const KvLayout&) {
        static constexpr uint16_t kOnes[2] = {0x3F80, 0x3F80};
        const F32 top = splat(desk.largest_score[m]);
        for (int g = 0; g < kTileGroups; ++g) {
            const bool seen = g >= tile.first_group && g < tile.end_group;
            store_bf16(desk.weight[m] + g * kGroup, seen ? power_of_two(sub(load(desk.score[m] + g * kGroup), top)) : zero());
        }
        F32 sum = mul(load(desk.weight_sum[m]), splat(desk.fade[m]));
        for (int t = 0; t < kTile; t += 32) sum = dot_2(sum, load_64(desk.weight[m] + t), kOnes);
        store(desk.weight_sum[m], sum);
    }

    static Sum mix_start(const float* sum, float fade) { return mul(load(sum), splat(fade)); }
    static Bytes value(const uint8_t* line) { return load_64(line); }
    static Sum mix_add(Sum sum, Bytes value, const void* weights) { return dot_2(sum, value, weights); }
    static F32 mix_end(Sum sum, const float*, float, float) { return sum; }

    // The values of a group of which only `valid` tokens exist: in the other places may lie anything, and 0 * NaN is NaN.
    static const uint8_t* clean_values(const uint8_t* values, int valid, const KvLayout& layout, uint8_t* clean) {
        const size_t pair_bytes = static_cast<size_t>(layout.padded) * 4, whole = static_cast<size_t>(valid / 2) * pair_bytes;
        std::memset(clean, 0, static_cast<size_t>(layout.half_bytes));
        std::memcpy(clean, values, whole);
        for (size_t i = whole; valid % 2 && i < whole + pair_bytes; i += 4) std::memcpy(clean + i, values + i, 2);
        return clean;
    }
};

// Queries are int8 with a scale each. A weight is multiplied by its value's scale and kept in 15 bits of the largest such in the
// tile, so that a tile's sums are exact integers.
struct Int8Cache {
    using Sum = I32;
    static constexpr int kDimsPerLine = 4;
    static constexpr int kValueLine = 32;
    static constexpr float kLargestWeight = 32767.0f;
    static constexpr float kNoWeight = 1e-30f;  // whose inverse would still be a number

    static void take_query(Desk& desk, int m, const float* query, int padded, float scale) {
        F32 top = zero();
        for (int d = 0; d < padded; d += 16) top = max(top, abs(load(query + d)));
        const float unit = largest(top) / 127.0f;
        const F32 inverse = splat(unit > kNoWeight ? 1.0f / unit : 0.0f);
        auto* code = reinterpret_cast<int8_t*>(desk.query[m]);
        int32_t sum = 0;
        for (int d = 0; d < padded; d += 16) {
            store_bytes(code + d, to_int(mul(load(query + d), inverse)));
            sum += sum_bytes(code + d);
        }
        desk.query_sum[m] = -128 * sum;
        desk.query_scale[m] = unit * scale;
    }

    static Sum score_start(const Desk& desk, int m) { return splat_int(desk.query_sum[m]); }
    static Sum score_add(Sum sum, Bytes key, const void* query) { return dot_4(sum, key, query); }
    static F32 score(Sum sum, const Desk& desk, int m, const uint8_t* group, const KvLayout& layout) {
        return mul(mul(to_float(sum), splat(desk.query_scale[m])), load_f16(group + 2 * layout.half_bytes));
    }

    static void weigh(Desk& desk, int m, const Tile& tile, const KvLayout& layout) {
        const F32 top = splat(desk.largest_score[m]);
        F32 sum = mul(load(desk.weight_sum[m]), splat(desk.fade[m])), heaviest = zero();
        for (int g = tile.first_group; g < tile.end_group; ++g) {
            float* score = desk.score[m] + g * kGroup;
            const F32 weight = power_of_two(sub(load(score), top));
            sum = add(sum, weight);
            F32 scaled = mul(weight, load_f16(tile.group[g] + 2 * layout.half_bytes + kGroup * 2));
            if (!tile.all_seen) {
                const int start = tile.position + g * kGroup;
                const int from = std::clamp(desk.first_seen[m] - start, 0, kGroup), to = std::clamp(desk.last_seen[m] + 1 - start, 0, kGroup);
                scaled = keep_lanes(scaled, from, to, 0.0f);  // the scale of a token that does not exist may be NaN
            }
            heaviest = max(heaviest, scaled);
            store(score, scaled);
        }
        store(desk.weight_sum[m], sum);
        const float most = largest(heaviest);
        const F32 inverse = splat(most > kNoWeight ? kLargestWeight / most : 0.0f);
        desk.weight_unit[m] = most / kLargestWeight;
        for (int g = tile.first_group; g < tile.end_group; ++g)
            store_words(desk.weight[m] + g * kGroup, to_int(mul(load(desk.score[m] + g * kGroup), inverse)));
    }

    static Sum mix_start(const float*, float) { return zero_int(); }
    static Bytes value(const uint8_t* line) { return widen_bytes(line); }
    static Sum mix_add(Sum sum, Bytes value, const void* weights) { return dot_2_int(sum, value, weights); }
    static F32 mix_end(Sum sum, const float* old, float fade, float unit) {
        return fma(to_float(sum), splat(unit), mul(load(old), splat(fade)));
    }

    static const uint8_t* clean_values(const uint8_t* values, int, const KvLayout&, uint8_t*) { return values; }  // no int8 is NaN
};

}  // namespace octavo::OCTAVO_ISA
