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

// What was decided about a row. It lies in the op's scratch, before the parts.
struct PlannedRow {
    int64_t cost_before;  // of the units of all rows before
    int64_t first_part;   // where the row is parted; else kNotParted
};
constexpr int64_t kNotParted = -1;

struct alignas(64) PlanHead {
    int64_t total_cost;
    int32_t tasks, joins;
};

inline int64_t plan_bytes(int64_t rows) {
    return static_cast<int64_t>(sizeof(PlanHead)) + (rows * static_cast<int64_t>(sizeof(PlannedRow)) + 63) / 64 * 64;
}

inline int64_t attention_scratch_bytes(int64_t max_tokens, int64_t heads, int64_t head_dim, int64_t max_len) {
    const int64_t splits = (max_len + kSplit - 1) / kSplit;
    return plan_bytes(max_tokens) + std::min(kPartBytes, max_tokens * heads * splits * part_floats(static_cast<int>((head_dim + 15) / 16 * 16)) * 4);
}

// The rows of a step in order, with the decisions that need all of them: lay() makes these once, before the op's tasks begin.
class AttentionPlan {
  public:
    AttentionPlan(const octavo_op& op, const octavo_step& step)
        : op_(op), step_(step), kv_heads_(op.kv->kv_heads), part_bytes_(part_floats(KvLayout(*op.kv).padded) * 4),
          head_(static_cast<PlanHead*>(op.scratch)), planned_R_(reinterpret_cast<PlannedRow*>(head_ + 1)),
          parts_(static_cast<char*>(op.scratch) + plan_bytes(step.rows)) {}

    void lay(int threads) {
        int64_t largest = 0, total = 0;
        for (int r = 0; r < step_.rows; ++r) {
            const RowWork work(op_, step_, r);
            total += work.unit_cost * work.tiles * kv_heads_;
            if (work.splits > 1) largest = std::max(largest, work.unit_cost);
        }
        const int64_t dear = total / (int64_t{kTasksPerThread} * threads);
        const bool any_parted = threads > 1 && largest > dear;
        int64_t parts = 0, units = 0;
        *head_ = {};
        for (int r = 0; r < step_.rows; ++r) {
            RowWork work(op_, step_, r);
            work.parted = any_parted && work.splits > 1 && work.unit_cost > dear && (parts + work.parts(kv_heads_)) * part_bytes_ <= kPartBytes;
            planned_R_[r] = {head_->total_cost, work.parted ? parts : kNotParted};
            if (work.parted) {
                parts += work.parts(kv_heads_);
                head_->joins += work.tiles * kv_heads_;
            }
            units += work.units(kv_heads_);
            head_->total_cost += cost(work) * work.units(kv_heads_);
        }
        head_->tasks = static_cast<int>(std::min<int64_t>(units, int64_t{2} * kTasksPerThread * threads));
    }

    int tasks() const { return head_->tasks; }
    int joins() const { return head_->joins; }

    // visit(RowWork, Unit) for the units of one task: those whose cost, summed over all units before them, falls into its share.
    template <class Visit>
    void for_each_unit(int task, Visit visit) const {
        const int64_t begin = head_->total_cost * task / head_->tasks, end = head_->total_cost * (task + 1) / head_->tasks;
        const auto later = std::upper_bound(planned_R_, planned_R_ + step_.rows, begin, [](int64_t at, const PlannedRow& row) { return at < row.cost_before; });
        for (int r = static_cast<int>(later - planned_R_) - 1; r < step_.rows && planned_R_[r].cost_before < end; ++r) {
            const RowWork work = row(r);
            const int64_t each = cost(work), before = planned_R_[r].cost_before;
            const int64_t first = before < begin ? (begin - before + each - 1) / each : 0;
            const int64_t last = std::min<int64_t>(work.units(kv_heads_), (end - before + each - 1) / each);
            for (int64_t u = first; u < last; ++u) visit(work, unit(work, r, static_cast<int>(u)));
        }
    }

    // The same for the units whose parts JOIN puts together; `join` counts them.
    template <class Visit>
    void for_join(int join, Visit visit) const {
        for (int r = 0; join >= 0; ++r) {
            if (planned_R_[r].first_part == kNotParted) continue;
            const RowWork work = row(r);
            const int units = work.tiles * kv_heads_;
            if (join < units) {
                Unit all = unit(work, r, join * work.splits);
                all.first_split = work.first_split;
                all.end_split = work.first_split + work.splits;
                visit(work, all);
            }
            join -= units;
        }
    }

    // Where the parts of a parted row's reader lie: one after the other, by split.
    float* part(const RowWork& work, int kv_head, int reader, int split) const {
        const int64_t index = (int64_t{kv_head} * work.readers + reader) * work.splits + (split - work.first_split);
        return reinterpret_cast<float*>(parts_ + (work.first_part + index) * part_bytes_);
    }

  private:
    RowWork row(int r) const {
        RowWork work(op_, step_, r);
        work.parted = planned_R_[r].first_part != kNotParted;
        work.first_part = planned_R_[r].first_part;
        return work;
    }

    // A row without queries has no units, and any cost but zero will do.
    int64_t cost(const RowWork& work) const { return std::max<int64_t>(1, work.parted ? work.unit_cost / work.splits : work.unit_cost); }

    // Later tiles of readers first: they see more, and what is begun last should be small.
    Unit unit(const RowWork& work, int row, int u) const {
        const int parts = work.parted ? work.splits : 1;
        const int part = u % parts, kv_head = u / parts % kv_heads_, tile = work.tiles - 1 - u / parts / kv_heads_;
        const int first = tile * kReaders, split = work.first_split + part;
        return {row, kv_head, first, std::min(first + kReaders, work.readers), split, work.parted ? split + 1 : split + work.splits};
    }

    const octavo_op& op_;
    const octavo_step& step_;
    const int kv_heads_;
    const int64_t part_bytes_;
    PlanHead* const head_;
    PlannedRow* const planned_R_;
    char* const parts_;
};

}  // namespace octavo
