#pragma once

#include "kernels.h"

namespace octavo::OCTAVO_ISA {

inline int store_kv_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void store_kv(const octavo_op&, const octavo_step&, int, Worker&) {}
inline int attention_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void attention(const octavo_op&, const octavo_step&, int, Worker&) {}
inline int attention_join_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void attention_join(const octavo_op&, const octavo_step&, int, Worker&) {}

}  // namespace octavo::OCTAVO_ISA
