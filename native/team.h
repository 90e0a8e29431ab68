// The thread team: workers that share the tasks of one op after the other. Knows nothing of what a task does.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "kernels.h"

namespace octavo {

// The caller of run() leads: it publishes the tasks of one op after the other, takes part in them, and goes on when all are
// done. The others help: whoever has a core takes the next task. An op waits for tasks, never for workers, so a helper that
// has lost its core to another program holds up at most the task it is in; the leader would finish alone.
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
    void help(Worker& worker);
    bool help_once(Worker& worker);
    void run_shared(const Kernel& kernel, const octavo_op& op, int tasks);
    void rest(uint32_t epoch);

    const Kernels& kernels_;
    std::vector<Worker> workers_;
    std::vector<std::thread> threads_;
    // The op in work. Written by the leader while no task can be taken, read by whoever has taken one.
    const Kernel* kernel_ = nullptr;
    const octavo_op* op_ = nullptr;
    const octavo_step* step_ = nullptr;
    // Each on a cache line of its own: they are written by different workers at different times.
    alignas(64) std::atomic<uint64_t> open_{0};  // the op's number, and which of its tasks are to be taken
    alignas(64) std::atomic<int> done_{0};       // tasks of the op that are finished
    alignas(64) std::atomic<uint32_t> epoch_{0}; // rises with every program
    alignas(64) std::atomic<int> sleepers_{0};
    alignas(64) std::atomic<bool> running_{false};
    std::atomic<bool> ending_{false};
};

}  // namespace octavo
