// Who does what in an ATTENTION of one step: which pieces of work there are and which task gets which. Decides about time only, never
// about bits: a query's own sums are cut at fixed positions of its sequence, whoever computes them.
#pragma once

#include <algorithm>

#include "isa/kv_layout.h"
#include "kernels.h"

namespace octavo {

// A reader is one query token with one query head. The readers of a row and kv head are counted query * G + head in group, G = N / K.
constexpr int kReaders = 48;       // of one unit: they share every load of keys and values
constexpr int kTile = 128;         // positions between two looks at the largest score
constexpr int kSplit = 512;        // positions that are summed on their own, then joined in order
constexpr int kTasksPerThread = 8;
constexpr int64_t kPartBytes = int64_t{64} << 20;  // parts of split rows; what does not fit is joined within its task

// A reader's sums over one split, where a row's splits are spread over tasks: [largest score, sum of weights, 14 unused, H sums].
constexpr int kPartHead = 16;
inline int64_t part_floats(int padded_dim) { return kPartHead + padded_dim; }

inline int64_t attention_scratch_bytes(int64_t max_tokens, int64_t heads, int64_t head_dim, int64_t max_len) {
    const int64_t splits = (max_len + kSplit - 1) / kSplit;
    return std::min(kPartBytes, max_tokens * heads * splits * part_floats(static_cast<int>((head_dim + 15) / 16 * 16)) * 4);
}

// What one row asks for. A unit is kReaders of its readers, one kv head, and all of its splits or (parted) one of them.
struct RowWork {
    int first_token, queries;
    int first_position;  // of the first query
    int lowest;          // the first position that any query sees
    int readers;         // per kv head
    int tiles;           // of readers
    int first_split, splits;
    int64_t unit_cost;   // unparted; in readers x positions
    bool parted = false;
    int64_t first_part = 0;

    RowWork(const octavo_op& op, const octavo_step& step, int row) {
        first_token = step.query_start_R1[row];
        queries = step.query_start_R1[row + 1] - first_token;
        const int end = step.kv_len_R[row];
        first_position = end - queries;
        lowest = op.extra > 0 ? std::max(0, first_position - op.extra + 1) : 0;
        readers = queries * (op.x.heads / op.kv->kv_heads);
        tiles = (readers + kReaders - 1) / kReaders;
        first_split = lowest / kSplit;
        splits = queries > 0 ? (end - 1) / kSplit + 1 - first_split : 0;
        unit_cost = int64_t{std::min(readers, kReaders)} * (end - lowest + kTile);
    }

    int64_t parts(int kv_heads) const { return int64_t{readers} * kv_heads * splits; }
    int units(int kv_heads) const { return tiles * kv_heads * (parted ? splits : 1); }
};

// One piece of work: readers first_reader .. end_reader-1 of a kv head over splits first_split .. end_split-1.
struct Unit {
    int row, kv_head, first_reader, end_reader, first_split, end_split;
};

// The rows of a step in order, with the decisions that need all of them.
class AttentionPlan {
  public:
    AttentionPlan(const octavo_op& op, const octavo_step& step, int threads)
        : op_(op), step_(step), kv_heads_(op.kv->kv_heads), part_bytes_(part_floats(KvLayout(*op.kv).padded) * 4) {
        int64_t largest = 0, total = 0;
        for (int r = 0; r < step.rows; ++r) {
            const RowWork work(op, step, r);
            total += work.unit_cost * work.tiles * kv_heads_;
            if (work.splits > 1) largest = std::max(largest, work.unit_cost);
        }
        dear_ = total / (int64_t{kTasksPerThread} * threads);
        any_parted_ = threads > 1 && largest > dear_;
        total_cost_ = 0;
        for_each_row([&](int, const RowWork& work) {
            units_ += work.units(kv_heads_);
            total_cost_ += cost(work) * work.units(kv_heads_);
            if (work.parted) parted_units_ += work.tiles * kv_heads_;
        });
        tasks_ = static_cast<int>(std::min<int64_t>(units_, int64_t{2} * kTasksPerThread * threads));
    }

    int tasks() const { return tasks_; }
    int joins() const { return parted_units_; }

    // visit(RowWork, Unit) for the units of one task: those whose cost, summed over all units before them, falls into its share.
    template <class Visit>
    void for_each_unit(int task, Visit visit) const {
        const int64_t begin = total_cost_ * task / tasks_, end = total_cost_ * (task + 1) / tasks_;
        int64_t before = 0;
        for_each_row([&](int row, const RowWork& work) {
            const int64_t each = cost(work);
            const int units = work.units(kv_heads_);
            if (units > 0 && before < end && before + each * units > begin) {
                const int64_t first = before < begin ? (begin - before + each - 1) / each : 0;
                const int64_t last = std::min<int64_t>(units, (end - before + each - 1) / each);
                for (int64_t u = first; u < last; ++u) visit(work, unit(work, row, static_cast<int>(u)));
            }
            before += each * units;
        });
    }

    // The same for the units whose parts JOIN puts together; `join` counts them.
    template <class Visit>
    void for_join(int join, Visit visit) const {
        for_each_row([&](int row, const RowWork& work) {
            const int units = work.parted ? work.tiles * kv_heads_ : 0;
            if (join >= 0 && join < units) {
                Unit all = unit(work, row, join * work.splits);
                all.first_split = work.first_split;
                all.end_split = work.first_split + work.splits;
                visit(work, all);
            }
            join -= units;
        });
    }

    // Where the parts of a parted row's reader lie: one after the other, by split.
    float* part(const RowWork& work, int kv_head, int reader, int split) const {
        const int64_t index = (int64_t{kv_head} * work.readers + reader) * work.splits + (split - work.first_split);
        return static_cast<float*>(op_.scratch) + (work.first_part + index) * (part_bytes_ / 4);
    }

  private:
    int64_t cost(const RowWork& work) const { return work.parted ? std::max<int64_t>(1, work.unit_cost / work.splits) : work.unit_cost; }

    // Later tiles of readers first: they see more, and what is begun last should be small.
    Unit unit(const RowWork& work, int row, int u) const {
        const int parts = work.parted ? work.splits : 1;
        const int part = u % parts, kv_head = u / parts % kv_heads_, tile = work.tiles - 1 - u / parts / kv_heads_;
        const int first = tile * kReaders, split = work.first_split + part;
        return {row, kv_head, first, std::min(first + kReaders, work.readers), split, work.parted ? split + 1 : split + work.splits};
    }

    template <class Visit>
    void for_each_row(Visit visit) const {
        int64_t parts = 0;
        for (int r = 0; r < step_.rows; ++r) {
            RowWork work(op_, step_, r);
            if (any_parted_ && work.splits > 1 && work.unit_cost > dear_ && (parts + work.parts(kv_heads_)) * part_bytes_ <= kPartBytes) {
                work.parted = true;
                work.first_part = parts;
                parts += work.parts(kv_heads_);
            }
            visit(r, work);
        }
    }

    const octavo_op& op_;
    const octavo_step& step_;
    const int kv_heads_;
    const int64_t part_bytes_;
    int64_t dear_ = 0, total_cost_ = 0;
    bool any_parted_ = false;
    int units_ = 0, parted_units_ = 0, tasks_ = 0;
};

}  // namespace octavo
