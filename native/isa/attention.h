// ATTENTION: causal softmax attention of a step's queries over the paged cache (online softmax, arXiv 2205.14135; grouped queries,
// arXiv 2305.13245). Owns the walk of one unit over its tiles; the plan, the inner loops and the joining have files of their own.
//
// A query's result is the same bits in every company: keys are taken in tiles and splits at fixed positions of the sequence, scores are
// reduced along dims in order, sums along tokens in order, and a position that a query does not see adds exactly nothing.
#pragma once

#include <limits>
#include <optional>

#include "isa/attention_span.h"
#include "isa/attention_tile.h"

namespace octavo::OCTAVO_ISA {

template <class Cache>
class UnitWalk {
  public:
    UnitWalk(const octavo_op& op, const octavo_step& step, const AttentionPlan& plan, const RowWork& work, const Unit& unit, Desk& desk)
        : op_(op), kv_(*op.kv), plan_(plan), work_(work), unit_(unit), desk_(desk), layout_(kv_), span_(op, step, work, unit),
          end_(step.kv_len_R[unit.row]), readers_(unit.end_reader - unit.first_reader) {}

    // `next` is what the task looks at after this unit, or nullptr: its first tile is fetched with the last one here.
    void run(const UnitSpan* next) {
        next_ = next;
        take_readers();
        if (!work_.parted)
            for (int m = 0; m < readers_; ++m) clear_part(desk_.total[m], layout_.padded);
        for (int split = unit_.first_split; split < unit_.end_split; ++split) {
            const bool seen = split * kSplit <= span_.highest() && (split + 1) * kSplit > span_.lowest();
            if (!seen && !work_.parted) continue;
            sum_split(split);
            for (int m = 0; m < readers_; ++m) deliver(m, split);
        }
        if (!work_.parted)
            for (int m = 0; m < readers_; ++m) write_mean(desk_.total[m], kv_.head_dim, at(op_.out, m));
    }

  private:
    float* at(const octavo_view& view, int m) const { return reader_head(view, kv_, work_, unit_.kv_head, unit_.first_reader + m); }

    void take_readers() {
        alignas(64) float query[kMaxHeadDim];
        const int group = op_.x.heads / kv_.kv_heads;
        for (int m = 0; m < readers_; ++m) {
            const int position = work_.first_position + (unit_.first_reader + m) / group;
            desk_.last_seen[m] = position;
            desk_.first_seen[m] = UnitSpan::first_seen(op_, position);
            pad_head(at(op_.x, m), kv_.head_dim, layout_.padded, query);
            Cache::take_query(desk_, m, query, layout_.padded, op_.number * kLog2OfE);
        }
    }

    void sum_split(int split) {
        for (int m = 0; m < readers_; ++m) {
            clear_part(desk_.sum[m], layout_.padded);
            desk_.largest_score[m] = kNothingSeen;
            store(desk_.weight_sum[m], zero());
        }
        const int begin = std::max(split * kSplit, span_.lowest() / kTile * kTile);
        const int end = std::min((split + 1) * kSplit, span_.highest() + 1);
        for (int position = begin; position < end; position += kTile) {
            const Tile tile = look_at(position);
            for_reader_tiles(readers_, [&](int m, auto rows) {
                for_line_tiles(tile.first_group, tile.end_group, [&](int g, auto groups) {
                    score_tile<Cache, rows, groups>(desk_, m, tile, g, layout_, m == 0);
                });
            });
            note_largest(tile);
            for (int m = 0; m < readers_; ++m) Cache::weigh(desk_, m, tile, layout_);
            for_reader_tiles(readers_, [&](int m, auto rows) {
                for_line_tiles(0, layout_.padded / 16, [&](int line, auto lines) {
                    mix_tile<Cache, rows, lines>(desk_, m, tile, line, layout_, m == 0);
                });
            });
        }
    }

    Tile look_at(int position) {
        Tile tile;
        tile.position = position;
        tile.first_group = std::max(0, span_.lowest() - position) / kGroup;
        tile.end_group = std::min(kTileGroups, (span_.highest() - position) / kGroup + 1);
        tile.all_seen = position >= desk_.first_seen[readers_ - 1] && position + kTile - 1 <= desk_.last_seen[0];
        for (int g = tile.first_group; g < tile.end_group; ++g) {
            const int start = position + g * kGroup;
            tile.group[g] = span_.group_at(start);
            tile.value[g] = tile.group[g] + layout_.half_bytes;
            tile.ahead[g] = group_after(start, tile.group[g]);
            prefetch_later(tile.ahead[g] + layout_.group_bytes - 64);  // the scales; loops over keys and values fetch these
            if (start + kGroup > end_) tile.value[g] = Cache::clean_values(tile.value[g], end_ - start, layout_, desk_.clean);
        }
        return tile;
    }

    // What will be wanted a tile later in the place of the group at `start`; `itself`, which costs nothing, where there is no such.
    const uint8_t* group_after(int start, const uint8_t* itself) const {
        if (start + kTile <= span_.last()) return span_.group_at(start + kTile);
        if (next_ == nullptr) return itself;
        const int there = next_->first() + start % kTile;
        return there >= next_->lowest() && there <= next_->last() ? next_->group_at(there) : itself;
    }

    // Hides what a reader does not see, finds the tile's largest score, and what that makes of the older sums.
    void note_largest(const Tile& tile) {
        for (int m = 0; m < readers_; ++m) {
            F32 top = splat(-std::numeric_limits<float>::infinity());
            for (int g = tile.first_group; g < tile.end_group; ++g) {
                float* at = desk_.score[m] + g * kGroup;
                F32 score = load(at);
                if (!tile.all_seen) {
                    const int start = tile.position + g * kGroup;
                    score = keep_lanes(score, std::clamp(desk_.first_seen[m] - start, 0, kGroup),
                                       std::clamp(desk_.last_seen[m] + 1 - start, 0, kGroup), -std::numeric_limits<float>::infinity());
                    store(at, score);
                }
                top = max(top, score);
            }
            desk_.tile_largest[m] = largest(top);
        }
        for (int m = 0; m < readers_; m += 16) {
            const F32 old = load(desk_.largest_score + m), now = max(old, load(desk_.tile_largest + m));
            store(desk_.fade + m, power_of_two(sub(old, now)));
            store(desk_.largest_score + m, now);
        }
    }

    void deliver(int m, int split) {
        float* part = desk_.sum[m];
        part[0] = desk_.largest_score[m];
        part[1] = sum(load(desk_.weight_sum[m]));
        if (work_.parted)
            std::memcpy(plan_.part(work_, unit_.kv_head, unit_.first_reader + m, split), part, sizeof(float) * static_cast<size_t>(part_floats(layout_.padded)));
        else
            join_part(desk_.total[m], part, layout_.padded);
    }

    const octavo_op& op_;
    const octavo_kv& kv_;
    const AttentionPlan& plan_;
    const RowWork& work_;
    const Unit& unit_;
    Desk& desk_;
    const KvLayout layout_;
    const UnitSpan span_;
    const UnitSpan* next_ = nullptr;
    const int end_;  // positions that exist
    const int readers_;
};

inline int attention_tasks(const octavo_op& op, const octavo_step& step, int threads) {
    AttentionPlan plan(op, step);
    plan.lay(threads);
    return plan.tasks();
}

inline void attention(const octavo_op& op, const octavo_step& step, int task, Worker& worker) {
    struct Piece {
        RowWork work;
        Unit unit;
    };
    const AttentionPlan plan(op, step);
    auto& desk = *reinterpret_cast<Desk*>(worker.scratch);
    const auto walk = [&](const Piece& piece, const UnitSpan* next) {
        if (op.kv->dtype == OCTAVO_KV_INT8) UnitWalk<Int8Cache>(op, step, plan, piece.work, piece.unit, desk).run(next);
        else UnitWalk<Bf16Cache>(op, step, plan, piece.work, piece.unit, desk).run(next);
    };
    std::optional<Piece> now;
    plan.for_each_unit(task, [&](const RowWork& work, const Unit& unit) {
        const UnitSpan next(op, step, work, unit);
        if (now) walk(*now, &next);
        now.emplace(Piece{work, unit});
    });
    if (now) walk(*now, nullptr);
}

}  // namespace octavo::OCTAVO_ISA
