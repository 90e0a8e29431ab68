// What this machine can do at most, measured with the instructions of this ISA level: reading memory, and the peaks of the
// two dot products that LINEAR is made of. Every row is a task. For `octavo doctor`; the caller keeps the time.
#pragma once

#include "kernels.h"

namespace octavo::OCTAVO_ISA {

inline int probe_tasks(const octavo_op& op, const octavo_step&, int) { return op.rows; }

// Row t of x is `columns` bytes, a multiple of 256. Their sum goes to 16 floats of out, so that no load can be left out.
inline void probe_read(const octavo_op& op, const octavo_step&, int task, Worker&) {
    const char* p = static_cast<const char*>(op.x.data) + task * op.x.stride;
    I32 sum[4] = {zero_int(), zero_int(), zero_int(), zero_int()};
    for (int i = 0; i < op.x.columns; i += 256) {
        for (int j = 0; j < 4; ++j) prefetch(p + i + 4096 + 64 * j);
        for (int j = 0; j < 4; ++j) sum[j] = add_int(sum[j], load_int(reinterpret_cast<const int32_t*>(p + i + 64 * j)));
    }
    store(row(op.out, task), to_float(add_int(add_int(sum[0], sum[1]), add_int(sum[2], sum[3]))));
}

// `extra` times OCTAVO_PROBE_CHAINS independent dot products over 256 bytes at x, which stay in the first cache. Which of them
// an iteration takes depends on its number: a constant sum would be multiplied out by the compiler.
template <class Sum, class Dot>
inline void run_chains(const octavo_op& op, Sum (&sum)[OCTAVO_PROBE_CHAINS], Dot dot) {
    const char* x = static_cast<const char*>(op.x.data);
    const Bytes w = load_64(x);
    for (int i = 0; i < op.extra; ++i)
        for (int chain = 0; chain < OCTAVO_PROBE_CHAINS; ++chain) sum[chain] = dot(sum[chain], w, x + 4 * ((i & 15) + chain));
}

inline void probe_int8(const octavo_op& op, const octavo_step&, int task, Worker&) {
    I32 sum[OCTAVO_PROBE_CHAINS];
    for (I32& s : sum) s = zero_int();
    run_chains(op, sum, [](I32 s, Bytes w, const void* x) { return dot_4(s, w, x); });
    for (int chain = 1; chain < OCTAVO_PROBE_CHAINS; ++chain) sum[0] = add_int(sum[0], sum[chain]);
    store(row(op.out, task), to_float(sum[0]));
}

inline void probe_bf16(const octavo_op& op, const octavo_step&, int task, Worker&) {
    F32 sum[OCTAVO_PROBE_CHAINS];
    for (F32& s : sum) s = zero();
    run_chains(op, sum, [](F32 s, Bytes w, const void* x) { return dot_2(s, w, x); });
    for (int chain = 1; chain < OCTAVO_PROBE_CHAINS; ++chain) sum[0] = add(sum[0], sum[chain]);
    store(row(op.out, task), sum[0]);
}

}  // namespace octavo::OCTAVO_ISA
