// The thread team: workers that share the tasks of one op after the other. Knows nothing of what a task does.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "kernels.h"

namespace octavo {

// A program in work. The caller of run() is worker 0; the others wait for it, spinning a while and then asleep.
//
// Ops follow each other behind a barrier. The barrier spins, because a phase is often only microseconds long, and
// parks after kSpins, because a worker that has lost its core would otherwise be waited for by one that burns the other.
class Team {
  public:
    explicit Team(int threads, const Kernels& kernels);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    void run(const octavo_op* ops, int count, const octavo_step& step);
    const Kernels& kernels() const { return kernels_; }
    int threads() const { return static_cast<int>(workers_.size()); }

  private:
    struct Program {
        const octavo_op* ops = nullptr;
        int count = 0;
        const octavo_step* step = nullptr;
    };

    void live(int index);
    void work(Worker& worker);
    void wait_for_others(uint32_t& phase);
    void wait_while(std::atomic<uint32_t>& word, uint32_t value, int spins);

    const Kernels& kernels_;
    std::vector<Worker> workers_;
    std::vector<std::thread> threads_;
    Program program_;
    // Each on a cache line of its own: they are written by different workers at different times.
    alignas(64) std::atomic<uint32_t> epoch_{0};  // rises with every program; the last one ends the team
    alignas(64) std::atomic<uint32_t> phase_{0};  // rises when the last worker arrives at a barrier
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<int> sleepers_{0};
    alignas(64) std::atomic<int> next_task_[2];   // of the op in work and of the one after it, in turn
    bool ending_ = false;
};

}  // namespace octavo
