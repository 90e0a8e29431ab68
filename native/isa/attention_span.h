// Which positions a unit of ATTENTION looks at, and where in the cache these lie.
#pragma once

#include <algorithm>

#include "isa/attention_plan.h"

namespace octavo {

class UnitSpan {
  public:
    UnitSpan(const octavo_op& op, const octavo_step& step, const RowWork& work, const Unit& unit)
        : kv_(*op.kv), layout_(kv_), table_W_(step.table_RW + int64_t{unit.row} * step.table_stride), kv_head_(unit.kv_head) {
        const int group = op.x.heads / kv_.kv_heads;
        lowest_ = first_seen(op, work.first_position + unit.first_reader / group);
        highest_ = work.first_position + (unit.end_reader - 1) / group;
        first_ = std::max(unit.first_split * kSplit, lowest_ / kTile * kTile);
        last_ = std::min(unit.end_split * kSplit - 1, highest_);
    }

    // A query at `position` sees first_seen .. position.
    static int first_seen(const octavo_op& op, int position) { return op.extra > 0 ? std::max(0, position - op.extra + 1) : 0; }

    int lowest() const { return lowest_; }    // position that some reader sees
    int highest() const { return highest_; }  // the same; of all splits, not only the unit's
    int first() const { return first_; }      // where the unit's first tile begins
    int last() const { return last_; }        // the last position in the unit's splits that a reader sees

    // Only for positions between lowest and highest: other blocks need not exist.
    const uint8_t* group_at(int position) const {
        return layout_.group(kv_, table_W_[position / kv_.block_size], kv_head_, position % kv_.block_size / kGroup);
    }

  private:
    const octavo_kv& kv_;
    const KvLayout layout_;
    const int32_t* table_W_;
    const int kv_head_;
    int lowest_, highest_, first_, last_;
};

}  // namespace octavo
