// The inner loops of ATTENTION: scores of a tile of keys, and the mix of its values. A few readers and a few 64-byte lines at a time stay
// in registers; how many changes no bit, because every score and every sum is reduced along dims or tokens in order.
#pragma once

#include <type_traits>

#include "isa/attention_cache.h"

namespace octavo::OCTAVO_ISA {

template <int N>
using Number = std::integral_constant<int, N>;

// f(Number<n>) for n in 1..Most.
template <int Most, class Function>
inline void with_number(int n, Function f) {
    if constexpr (Most == 1) f(Number<1>{});
    else if (n == Most) f(Number<Most>{});
    else with_number<Most - 1>(n, f);
}

// f(start, Number<size>) for pieces of `count` things: as few as can be with at most kReadersPerTile each, and nearly equal.
template <class Function>
inline void for_reader_tiles(int count, Function f) {
    int pieces = (count + kReadersPerTile - 1) / kReadersPerTile;
    for (int start = 0; pieces > 0; --pieces) {
        const int size = (count - start + pieces - 1) / pieces;
        with_number<kReadersPerTile>(size, [&](auto rows) { f(start, rows); });
        start += size;
    }
}

// f(start, Number<size>) for pieces of kLinesPerTile, and of halves of it for the rest.
template <int Most = kLinesPerTile, class Function>
inline void for_line_tiles(int start, int end, Function f) {
    for (; start + Most <= end; start += Most) f(start, Number<Most>{});
    if constexpr (Most > 1) for_line_tiles<Most / 2>(start, end, f);
}

// Scores of readers m .. m+Rows-1 for Groups x 16 positions, in powers of two.
template <class Cache, int Rows, int Groups>
[[gnu::noinline]] void score_tile(Desk& desk, int m, const Tile& tile, int g, const KvLayout& layout, bool fetch) {
    typename Cache::Sum sum[Rows][Groups];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < Groups; ++i) sum[r][i] = Cache::score_start(desk, m + r);
    const uint8_t* key[Groups];
    int64_t ahead[Groups];
    for (int i = 0; i < Groups; ++i) {
        key[i] = tile.group[g + i];
        ahead[i] = fetch ? tile.ahead[g + i] - key[i] : 0;
    }
    const uint8_t* query = desk.query[m];
    const int lines = layout.padded / Cache::kDimsPerLine;
    for (int line = 0; line < lines; ++line) {
        Bytes k[Groups];
#pragma GCC unroll 8
        for (int i = 0; i < Groups; ++i) {
            k[i] = load_64(key[i] + 64 * line);
            prefetch_later(key[i] + 64 * line + ahead[i]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int i = 0; i < Groups; ++i) sum[r][i] = Cache::score_add(sum[r][i], k[i], query + r * kQueryBytes + 4 * line);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < Groups; ++i) store(desk.score[m + r] + (g + i) * kGroup, Cache::score(sum[r][i], desk, m + r, key[i], layout));
}

// Adds the tile's weighted values to the sums of readers m .. m+Rows-1, dims 16 * line .. 16 * (line + Lines) - 1.
template <class Cache, int Rows, int Lines>
[[gnu::noinline]] void mix_tile(Desk& desk, int m, const Tile& tile, int line, const KvLayout& layout, bool fetch) {
    typename Cache::Sum sum[Rows][Lines];
    float* old = desk.sum[m] + kPartHead + 16 * line;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < Lines; ++i) sum[r][i] = Cache::mix_start(old + r * kSumFloats + 16 * i, desk.fade[m + r]);
    const int64_t pair_bytes = int64_t{layout.padded / 16} * Cache::kValueLine;
    for (int g = tile.first_group; g < tile.end_group; ++g) {
        const uint8_t* value = tile.value[g] + line * Cache::kValueLine;
        const uint8_t* ahead = (fetch ? tile.ahead[g] : tile.group[g]) + layout.half_bytes + line * Cache::kValueLine;
        const uint16_t* weight = desk.weight[m] + g * kGroup;
        for (int pair = 0; pair < kGroup / 2; ++pair) {
            Bytes v[Lines];
#pragma GCC unroll 8
            for (int i = 0; i < Lines; ++i) {
                v[i] = Cache::value(value + pair * pair_bytes + i * Cache::kValueLine);
                if (i * Cache::kValueLine % 64 == 0) prefetch_later(ahead + pair * pair_bytes + i * Cache::kValueLine);
            }
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
                for (int i = 0; i < Lines; ++i) sum[r][i] = Cache::mix_add(sum[r][i], v[i], weight + r * kTile + 2 * pair);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < Lines; ++i) {
            float* at = old + r * kSumFloats + 16 * i;
            store(at, Cache::mix_end(sum[r][i], at, desk.fade[m + r], desk.weight_unit[m + r]));
        }
}

}  // namespace octavo::OCTAVO_ISA
