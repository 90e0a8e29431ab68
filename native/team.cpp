#include "team.h"

#include <cstdlib>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {

namespace {

constexpr int kPhaseSpins = 3000;    // about 50 us: longer than nearly every phase takes the others
constexpr int kProgramSpins = 3000;  // between two steps the engine plans and samples; then the core is somebody else's

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

Team::Team(int threads, const Kernels& kernels) : kernels_(kernels) {
    next_task_[0].store(0);
    next_task_[1].store(0);
    for (int i = 0; i < threads; ++i) {
        auto* scratch = static_cast<char*>(std::aligned_alloc(64, kScratchBytes));
        if (scratch == nullptr) throw std::bad_alloc();
        workers_.push_back(Worker{i, threads, scratch});
    }
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { live(i); });
}

Team::~Team() {
    ending_ = true;
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    for (auto& thread : threads_) thread.join();
    for (auto& worker : workers_) std::free(worker.scratch);
}

void Team::run(const octavo_op* ops, int count, const octavo_step& step) {
    if (count == 0) return;  // no barrier would tell when the workers have read the program
    program_ = Program{ops, count, &step};
    next_task_[0].store(0, std::memory_order_relaxed);  // all left the last program; an odd number of ops left it used
    if (!threads_.empty()) {
        epoch_.fetch_add(1, std::memory_order_seq_cst);
        if (sleepers_.load(std::memory_order_seq_cst) > 0) epoch_.notify_all();
    }
    work(workers_[0]);
}

void Team::live(int index) {
    uint32_t seen = 0;
    for (;;) {
        wait_while(epoch_, seen, kProgramSpins);
        ++seen;
        if (ending_) return;
        work(workers_[static_cast<size_t>(index)]);
    }
}

// Every worker takes the same walk through the ops. The task counter of the next op is cleared by worker 0 during this
// one: nobody uses it before the barrier between them. The program is copied, because behind the last barrier worker 0 may
// be at the next one already.
void Team::work(Worker& worker) {
    const Program program = program_;
    const octavo_step& step = *program.step;
    uint32_t phase = phase_.load(std::memory_order_relaxed);
    for (int i = 0; i < program.count; ++i) {
        const octavo_op& op = program.ops[i];
        const Kernel& kernel = kernels_.op[op.kind];
        std::atomic<int>& next = next_task_[i & 1];
        if (worker.index == 0) next_task_[(i + 1) & 1].store(0, std::memory_order_relaxed);
        const int tasks = kernel.tasks(op, step, worker.threads);
        for (int task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) kernel.run(op, step, task, worker);
        wait_for_others(phase);
    }
}

void Team::wait_for_others(uint32_t& phase) {
    const int others = static_cast<int>(workers_.size());
    if (others == 1) {
        next_task_[0].store(0, std::memory_order_relaxed);
        next_task_[1].store(0, std::memory_order_relaxed);
        return;
    }
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == others) {
        arrived_.store(0, std::memory_order_relaxed);
        phase_.fetch_add(1, std::memory_order_seq_cst);
        if (sleepers_.load(std::memory_order_seq_cst) > 0) phase_.notify_all();
    } else {
        wait_while(phase_, phase, kPhaseSpins);
    }
    ++phase;
}

void Team::wait_while(std::atomic<uint32_t>& word, uint32_t value, int spins) {
    for (int i = 0; i < spins; ++i) {
        if (word.load(std::memory_order_acquire) != value) return;
        relax();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (word.load(std::memory_order_seq_cst) == value) word.wait(value, std::memory_order_seq_cst);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace octavo
