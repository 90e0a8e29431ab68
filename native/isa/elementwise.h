#pragma once

#include "kernels.h"

namespace octavo::OCTAVO_ISA {

inline int rms_norm_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void rms_norm(const octavo_op&, const octavo_step&, int, Worker&) {}
inline int add_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void add_rows(const octavo_op&, const octavo_step&, int, Worker&) {}
inline int quantize_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void quantize(const octavo_op&, const octavo_step&, int, Worker&) {}
inline int narrow_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void narrow(const octavo_op&, const octavo_step&, int, Worker&) {}
inline int rope_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void rope(const octavo_op&, const octavo_step&, int, Worker&) {}
inline int silu_mul_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void silu_mul(const octavo_op&, const octavo_step&, int, Worker&) {}
inline int gather_tasks(const octavo_op&, const octavo_step&, int) { return 0; }
inline void gather(const octavo_op&, const octavo_step&, int, Worker&) {}

}  // namespace octavo::OCTAVO_ISA
