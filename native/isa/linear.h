// LINEAR: which kernel a weight gets, and its tasks.
#pragma once

#include "isa/linear_codes.h"
#include "isa/linear_dense.h"

namespace octavo::OCTAVO_ISA {

inline int linear_tasks(const octavo_op& op, const octavo_step& step, int threads) {
    return Cut(panels_of(*op.weight), rows_of(op, step), threads).tasks();
}

inline void linear(const octavo_op& op, const octavo_step& step, int task, Worker& worker) {
    const Part part = Cut(panels_of(*op.weight), rows_of(op, step), worker.threads).part(task);
    switch (op.weight->kind) {
        case OCTAVO_CODES: return linear_codes(op, part);
        case OCTAVO_BF16: return linear_dense_part<DenseBf16>(op, part);
        case OCTAVO_F16: return linear_dense_part<DenseF16>(op, part);
        default: return linear_dense_part<DenseF32>(op, part);
    }
}

}  // namespace octavo::OCTAVO_ISA
