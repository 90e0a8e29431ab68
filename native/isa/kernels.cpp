// The kernel table of one ISA level. Compiled once per level with OCTAVO_ISA, OCTAVO_ISA_NAME and OCTAVO_SIMD set.
#include OCTAVO_SIMD

#include "kernels.h"

#include "isa/activate.h"
#include "isa/attention.h"
#include "isa/elementwise.h"
#include "isa/embed.h"
#include "isa/fuse.h"
#include "isa/gate.h"
#include "isa/linear.h"
#include "isa/norm.h"
#include "isa/probe.h"
#include "isa/rope.h"
#include "isa/rope_store.h"
#include "isa/round_block.h"
#include "isa/sample.h"

namespace octavo {

namespace OCTAVO_ISA {

inline constexpr Kernels make() {
    Kernels k{OCTAVO_ISA_NAME, {}, round_to_8, round_to_4};
    k.op[OCTAVO_OP_EMBED] = {embed_tasks, embed};
    k.op[OCTAVO_OP_RMS_NORM] = {chunk_tasks, rms_norm};
    k.op[OCTAVO_OP_ADD] = {chunk_tasks, add_rows};
    k.op[OCTAVO_OP_QUANTIZE] = {chunk_tasks, quantize};
    k.op[OCTAVO_OP_NARROW] = {chunk_tasks, narrow};
    k.op[OCTAVO_OP_LINEAR] = {linear_tasks, linear};
    k.op[OCTAVO_OP_ROPE] = {chunk_tasks, rope};
    k.op[OCTAVO_OP_STORE_KV] = {store_kv_tasks, store_kv};
    k.op[OCTAVO_OP_ATTENTION] = {attention_tasks, attention};
    k.op[OCTAVO_OP_ATTENTION_JOIN] = {attention_join_tasks, attention_join};
    k.op[OCTAVO_OP_SILU_MUL] = {chunk_tasks, silu_mul};
    k.op[OCTAVO_OP_GATHER] = {chunk_tasks, gather};
    k.op[OCTAVO_OP_NORM_QUANTIZE] = {chunk_tasks, norm_quantize};
    k.op[OCTAVO_OP_NORM_NARROW] = {chunk_tasks, norm_narrow};
    k.op[OCTAVO_OP_SILU_QUANTIZE] = {chunk_tasks, silu_quantize};
    k.op[OCTAVO_OP_SILU_NARROW] = {chunk_tasks, silu_narrow};
    k.op[OCTAVO_OP_ROPE_STORE] = {store_kv_tasks, rope_store};
    k.op[OCTAVO_OP_SAMPLE] = {sample_tasks, sample};
    k.op[OCTAVO_OP_PROBE_READ] = {probe_tasks, probe_read};
    k.op[OCTAVO_OP_PROBE_INT8] = {probe_tasks, probe_int8};
    k.op[OCTAVO_OP_PROBE_BF16] = {probe_tasks, probe_bf16};
    return k;
}

extern const Kernels table;
const Kernels table = make();

}  // namespace OCTAVO_ISA
}  // namespace octavo
