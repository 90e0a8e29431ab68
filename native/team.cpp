#include "team.h"

#include <cstdlib>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {

namespace {

// How long a worker spins before it lets others have the core: longer than nearly every op takes the others, shorter than
// anybody would mind. Between two steps the engine plans and samples, half a millisecond; a helper that waits much longer than
// that sleeps. One that slept is late: with one user's steps of 3 ms that was 4 % of all time.
constexpr int kSpins = 2000;               // about 30 us
constexpr int kYieldsBetweenSteps = 2000;  // about a millisecond

// Team::open_: the op's number, and the tasks that nobody has taken yet, from `first` up to `end`.
constexpr int kTaskBits = 20;
constexpr uint64_t kTaskMask = (uint64_t{1} << kTaskBits) - 1;

inline int first_of(uint64_t open) { return static_cast<int>(open & kTaskMask); }
inline int end_of(uint64_t open) { return static_cast<int>(open >> kTaskBits & kTaskMask); }

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits a moment, the longer the more often it was called for the same thing.
inline void wait_a_moment(int& times) {
    if (++times < kSpins) {
        relax();
    } else {
        std::this_thread::yield();
    }
}

}  // namespace

Team::Team(int threads, const Kernels& kernels) : kernels_(kernels) {
    for (int i = 0; i < threads; ++i) {
        auto* scratch = static_cast<char*>(std::aligned_alloc(64, kScratchBytes));
        if (scratch == nullptr) throw std::bad_alloc();
        workers_.push_back(Worker{i, threads, scratch});
    }
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { help(workers_[static_cast<size_t>(i)]); });
}

Team::~Team() {
    ending_ = true;
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (auto& thread : threads_) thread.join();
    for (auto& worker : workers_) std::free(worker.scratch);
}

void Team::run(const octavo_op* ops, int count, const octavo_step& step) {
    step_ = &step;
    if (!threads_.empty()) {
        running_.store(true);
        epoch_.fetch_add(1);
        if (sleepers_.load() > 0) epoch_.notify_all();
    }
    Worker& leader = workers_[0];
    for (int i = 0; i < count; ++i) {
        const Kernel& kernel = kernels_.op[ops[i].kind];
        const int tasks = kernel.tasks(ops[i], step, leader.threads);
        if (tasks > 1 && tasks <= static_cast<int>(kTaskMask) && !threads_.empty()) {
            run_shared(kernel, ops[i], tasks);
        } else {
            for (int task = 0; task < tasks; ++task) kernel.run(ops[i], step, task, leader);
        }
    }
    running_.store(false, std::memory_order_relaxed);
}

void Team::run_shared(const Kernel& kernel, const octavo_op& op, int tasks) {
    kernel_ = &kernel;
    op_ = &op;
    done_.store(0, std::memory_order_relaxed);
    const uint64_t number = (open_.load(std::memory_order_relaxed) >> 2 * kTaskBits) + 1;
    open_.store((number << kTaskBits | static_cast<uint64_t>(tasks)) << kTaskBits, std::memory_order_release);
    while (help_once(workers_[0])) {
    }
    for (int waited = 0; done_.load(std::memory_order_acquire) < tasks;) wait_a_moment(waited);
}

// Takes a task and does it; false when none is left. Workers take from both ends: of two, one has the first rows in every op
// and the other the last, so that most of what a worker reads it has written itself. The compare-and-swap is what makes it safe to read the op: the leader
// cannot leave an op of which a taken task is not done, and the op's number keeps a late helper from taking one by an old count.
bool Team::help_once(Worker& worker) {
    const bool from_the_front = worker.index % 2 == 0;
    const uint64_t taken = from_the_front ? 1 : -(uint64_t{1} << kTaskBits);
    uint64_t open = open_.load(std::memory_order_relaxed);
    do {
        if (first_of(open) == end_of(open)) return false;
    } while (!open_.compare_exchange_weak(open, open + taken, std::memory_order_acquire, std::memory_order_relaxed));
    kernel_->run(*op_, *step_, from_the_front ? first_of(open) : end_of(open) - 1, worker);
    done_.fetch_add(1, std::memory_order_release);
    return true;
}

void Team::help(Worker& worker) {
    for (int waited = 0; !ending_.load(std::memory_order_relaxed);) {
        const uint32_t epoch = epoch_.load();
        if (help_once(worker)) {
            waited = 0;
        } else if (waited < kSpins + kYieldsBetweenSteps || running_.load()) {
            wait_a_moment(waited);
        } else {
            rest(epoch);
            waited = 0;
        }
    }
}

// Sleeps until the next program, unless that has begun since `epoch` was read.
void Team::rest(uint32_t epoch) {
    sleepers_.fetch_add(1);
    if (!ending_.load()) epoch_.wait(epoch);
    sleepers_.fetch_sub(1);
}

}  // namespace octavo
