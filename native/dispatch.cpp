// Which ISA levels this build has, and which of them this CPU can run.
#include <array>
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
    std::string lacks;  // of the CPU; empty: it runs here
};

// The best first. Needs are those of the compiler options in CMakeLists.txt.
const auto& levels() {
    static const std::array all{
#if defined(__x86_64__)
        Level{&avx512::table, cpu_lacks("avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512vnni avx512bf16")},
        Level{&avx2::table, cpu_lacks("avx2 fma f16c")},
#endif
        Level{&scalar::table, ""},
    };
    return all;
}

const Level* level_at(int32_t index) {
    return index >= 0 && static_cast<size_t>(index) < levels().size() ? &levels()[static_cast<size_t>(index)] : nullptr;
}

}  // namespace

const Kernels* best_kernels(const char* isa) {
    for (const Level& level : levels())
        if ((isa == nullptr || std::strcmp(isa, level.kernels->isa) == 0) && level.lacks.empty()) return level.kernels;
    return nullptr;
}

}  // namespace octavo

extern "C" {

const char* octavo_cpu_features(void) {
    static const std::string text = octavo::cpu_features();
    return text.c_str();
}

const char* octavo_isa_name(int32_t index) {
    const octavo::Level* level = octavo::level_at(index);
    return level ? level->kernels->isa : nullptr;
}

const char* octavo_isa_lacks(int32_t index) {
    const octavo::Level* level = octavo::level_at(index);
    return level ? level->lacks.c_str() : nullptr;
}

}  // extern "C"
