// What this CPU can do, by CPUID (and what the system saves of its registers).
#pragma once

#include <string>

namespace octavo {

// Of the features that kernels of this library ask for, those that the CPU has, with blanks between.
std::string cpu_features();

// Of the features named in `wanted`, with blanks between, those that the CPU lacks.
std::string cpu_lacks(const char* wanted);

}  // namespace octavo
