// Which ISA levels this build has, and which of them this CPU can run.
#include <cstring>

#include "cpu.h"
#include "kernels.h"

namespace octavo {

#if defined(__x86_64__)
namespace avx512 { extern const Kernels table; }
namespace avx2 { extern const Kernels table; }
#endif
namespace scalar { extern const Kernels table; }

namespace {

struct Level {
    const Kernels* kernels;
    bool (*runs_here)();
};

// The best first.
const Level kLevels[] = {
#if defined(__x86_64__)
    {&avx512::table, cpu_runs_avx512},
    {&avx2::table, cpu_runs_avx2},
#endif
    {&scalar::table, [] { return true; }},
};

}  // namespace

const Kernels* best_kernels(const char* isa) {
    for (const Level& level : kLevels)
        if ((isa == nullptr || std::strcmp(isa, level.kernels->isa) == 0) && level.runs_here()) return level.kernels;
    return nullptr;
}

}  // namespace octavo
