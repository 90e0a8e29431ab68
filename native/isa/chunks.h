// How ops that treat every row by itself share their rows out: chunks of rows, large enough to be worth fetching.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels.h"

namespace octavo::OCTAVO_ISA {

constexpr int kChunkValues = 4096;  // about a microsecond's work; fetching a task costs a tenth of that

inline int rows_per_chunk(const octavo_op& op) { return std::max(1, kChunkValues / std::max(1, op.x.columns)); }

inline int chunk_tasks(const octavo_op& op, const octavo_step& step, int) {
    const int each = rows_per_chunk(op);
    return (rows_of(op, step) + each - 1) / each;
}

// each_row(t) for the rows t of chunk `task`.
template <class EachRow>
inline void for_rows(const octavo_op& op, const octavo_step& step, int task, EachRow each_row) {
    const int rows = rows_of(op, step), tasks = chunk_tasks(op, step, 0);
    for (int64_t t = begin_of(task, tasks, rows), end = begin_of(task + 1, tasks, rows); t < end; ++t) each_row(t);
}

// body(i, n) for the vectors of a row: n = 16 values from i on, at the end maybe fewer.
template <class Body>
inline void for_vectors(int columns, Body body) {
    int i = 0;
    for (; i + 16 <= columns; i += 16) body(i, 16);
    if (i < columns) body(i, columns - i);
}

inline F32 load_n(const float* p, int n) { return n == 16 ? load(p) : load_first(p, n); }
inline void store_n(float* p, F32 x, int n) { n == 16 ? store(p, x) : store_first(p, x, n); }

}  // namespace octavo::OCTAVO_ISA
