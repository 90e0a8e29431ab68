#include "cpu.h"

namespace octavo {

#if defined(__x86_64__)
// __builtin_cpu_supports also asks the system (XGETBV) whether it saves the registers.
bool cpu_runs_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }

bool cpu_runs_avx512() {
    return cpu_runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}
#else
bool cpu_runs_avx2() { return false; }
bool cpu_runs_avx512() { return false; }
#endif

}  // namespace octavo
