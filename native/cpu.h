// What this CPU can do, by CPUID (and what the system saves of its registers).
#pragma once

namespace octavo {

bool cpu_runs_avx2();    // AVX2, FMA, F16C
bool cpu_runs_avx512();  // AVX-512 F, BW, DQ, VL, VNNI, BF16

}  // namespace octavo
