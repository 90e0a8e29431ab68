#include "cpu.h"

#include <sstream>
#include <vector>

namespace octavo {

namespace {

struct Feature {
    const char* name;
    bool here;
};

// __builtin_cpu_supports also asks the system (XGETBV) whether it saves the registers. Its names are literals only.
std::vector<Feature> features() {
#if defined(__x86_64__)
#define OCTAVO_FEATURE(name) Feature{name, __builtin_cpu_supports(name) != 0}
    return {OCTAVO_FEATURE("avx2"),     OCTAVO_FEATURE("fma"),        OCTAVO_FEATURE("f16c"),
            OCTAVO_FEATURE("avx512f"),  OCTAVO_FEATURE("avx512bw"),   OCTAVO_FEATURE("avx512dq"),
            OCTAVO_FEATURE("avx512vl"), OCTAVO_FEATURE("avx512vnni"), OCTAVO_FEATURE("avx512bf16")};
#undef OCTAVO_FEATURE
#else
    return {};
#endif
}

void append(std::string& text, const std::string& word) { text += (text.empty() ? "" : " ") + word; }

}  // namespace

std::string cpu_features() {
    std::string text;
    for (const Feature& feature : features())
        if (feature.here) append(text, feature.name);
    return text;
}

std::string cpu_lacks(const char* wanted) {
    std::string text, name;
    for (std::istringstream names(wanted); names >> name;) {
        bool here = false;
        for (const Feature& feature : features()) here = here || (feature.here && name == feature.name);
        if (!here) append(text, name);
    }
    return text;
}

}  // namespace octavo
