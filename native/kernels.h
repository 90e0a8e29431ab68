// How an op plugs in: per ISA level one table of kernels, each with the number of its tasks and a function that runs one.
#pragma once

#include <algorithm>

#include "octavo.h"

namespace octavo {

// What a task may use besides its op and the step. One per worker, kept from step to step.
struct Worker {
    int index;        // 0 .. threads-1
    int threads;
    char* scratch;    // kScratchBytes, 64-byte aligned, this worker's own; contents do not survive a task
};

constexpr size_t kScratchBytes = size_t{1} << 20;

struct Kernel {
    // How many tasks there are. Called once, before any of them begins: the place to prepare what all of them read.
    // Tasks of one op run concurrently in any order.
    int (*tasks)(const octavo_op& op, const octavo_step& step, int threads);
    void (*run)(const octavo_op& op, const octavo_step& step, int task, Worker& worker);
};

struct RoundedBlock;  // pack/rounded_block.h

struct Kernels {
    const char* isa;
    Kernel op[OCTAVO_OP_COUNT];
    // Not of a step: x_IR, 32 inputs of 16 rows, to codes, for octavo_quantize_rows.
    void (*round_to_8)(const float* x_IR, RoundedBlock& out);
    void (*round_to_4)(const float* x_IR, RoundedBlock& out);
};

// One per ISA level that the compiler could build, the best first; nullptr at the end. (dispatch.cpp)
const Kernels* best_kernels(const char* isa);

inline int rows_of(const octavo_op& op, const octavo_step& step) {
    return op.rows == OCTAVO_TOKENS ? step.tokens : op.rows == OCTAVO_DRAWS ? step.draws : op.rows;
}

// Where piece `piece` of `pieces` begins, when `things` are cut nearly evenly. The larger pieces come first: if they alternated with
// smaller ones, two threads that take turns would find all of them with one.
inline int begin_of(int piece, int pieces, int things) { return things / pieces * piece + std::min(piece, things % pieces); }

inline float* row(const octavo_view& view, int64_t t) { return static_cast<float*>(view.data) + t * view.stride; }

}  // namespace octavo
