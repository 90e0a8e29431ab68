#pragma once

#include "kernels.h"

namespace octavo::OCTAVO_ISA {

inline int linear_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void linear(const octavo_op&, const octavo_step&, int, Worker&) {}

}  // namespace octavo::OCTAVO_ISA
