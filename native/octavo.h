/* The C interface of Octavo's CPU kernels. Plain C types only; no Python, no torch. octavo/ops/native calls it.
 *
 * Shapes: T tokens in the step, S tokens whose logits are wanted, R rows (sequences), W block-table width,
 * D hidden, N query heads, K kv heads, H head dim, I and O input and output features, V vocabulary, B tokens per block.
 *
 * A step is a list of octavo_op, made once per model over buffers that stay where they are, and run with the
 * arrays of octavo_step. Ops of one list run one after the other; the team shares the tasks of each.
 * Nothing here allocates during a step. Sizes are checked where lists and weights are made, not in a step.
 */
#ifndef OCTAVO_H
#define OCTAVO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define OCTAVO_API __declspec(dllexport)
#else
#define OCTAVO_API __attribute__((visibility("default")))
#endif

#define OCTAVO_ABI 1 /* raised by every change of a struct or of a meaning in this file */
OCTAVO_API int32_t octavo_abi(void);

/* ---- arrays ---- */

/* Values of octavo_op.rows that stand for a number of the step. */
enum { OCTAVO_TOKENS = -1, OCTAVO_DRAWS = -2 };

/* Rows of float32 (or of another type, where an op says so): row t begins at data + t * stride elements.
 * With heads > 0 the `columns` are heads x (columns / heads). */
typedef struct octavo_view {
    void* data;
    int64_t stride;
    int32_t columns;
    int32_t heads;
} octavo_view;

/* The arrays of one step; see octavo.ops.backend.Batch. All int32. */
typedef struct octavo_step {
    int32_t tokens, rows, draws, table_width;
    const int32_t* token_T;
    const int32_t* position_T;
    const int32_t* slot_T;
    const int32_t* query_start_R1;
    const int32_t* kv_len_R;
    const int32_t* table_RW; /* row stride: table_stride */
    int64_t table_stride;
    const int32_t* logit_S;
} octavo_step;

/* ---- weights ---- */

enum { OCTAVO_CODES = 0, OCTAVO_BF16 = 1, OCTAVO_F16 = 2, OCTAVO_F32 = 3 };

/* One packed matrix [O, I]. `panels` of 16 output rows follow each other; see pack/layout.h for what is in a panel.
 * OCTAVO_CODES: w = scale * (code - zero) + min, or w = scale * (lut[code] - zero), per group of `group` inputs. */
typedef struct octavo_weight {
    int32_t kind;
    int32_t bits;    /* 4, 5 or 8 per code */
    int32_t group;   /* inputs per scale: 16 or 32 */
    int32_t has_min; /* scales are followed by mins; zero is then 0 */
    int32_t zero;    /* 0 or a power of two */
    int32_t has_lut;
    uint8_t lut[16]; /* code -> unsigned value */
    int32_t rows;    /* O; the last panel is filled up with zeros */
    int32_t columns; /* I */
    int32_t padded_columns; /* I rounded up to 32 */
    int32_t panel_bytes;
    uint8_t* data; /* 64-byte aligned */
} octavo_weight;

/* Fills in padded_columns and panel_bytes from the fields before them; returns the bytes of the whole matrix, or -1 where
 * those fields describe none (no rows, more than 2^24 columns, other bits or groups). */
OCTAVO_API int64_t octavo_weight_layout(octavo_weight* weight);

/* Packs rows first_row .. first_row+count-1 of `weight` (whole panels, unless the matrix ends) from `raw`: count rows of
 * row_bytes each, in checkpoint format `format` (a GGML type number). Returns 0, or -1 where the format has no such
 * packing or rows and bytes do not fit. May be called for different panels from several threads at once. */
OCTAVO_API int32_t octavo_pack(const octavo_weight* weight, int32_t format, const uint8_t* raw, int64_t row_bytes,
                               int32_t first_row, int32_t count);

/* Sets kind, bits, group, has_min, zero and lut for a checkpoint format; -1 where this library has no packing for it. */
OCTAVO_API int32_t octavo_packing_of(int32_t format, octavo_weight* weight);

/* Like octavo_pack, from float32 rows of any origin (columns numbers each, one row after the other), rounding them to the
 * codes of one of two packings: bits 8, group 32, zero 128 (scale = largest / 127), or bits 4, group 32, has_min (scale and
 * min searched for the least squared error). The same rows give the same bytes on every machine. -1 for other packings.
 * Other number types are converted by the caller, a few panels at a time. */
OCTAVO_API int32_t octavo_quantize_rows(const octavo_weight* weight, const float* row_RI, int32_t first_row, int32_t count);

/* ---- the KV cache of one layer ---- */

enum { OCTAVO_KV_BF16 = 0, OCTAVO_KV_INT8 = 1 };

/* blocks x block_bytes; see isa/kv_layout.h for what lies in a block. */
typedef struct octavo_kv {
    uint8_t* data;
    int64_t block_bytes;
    int32_t dtype;
    int32_t block_size; /* a multiple of 16 */
    int32_t kv_heads;
    int32_t head_dim;
} octavo_kv;

/* Bytes of one block, a multiple of 64; -1 for a shape that this library has no kernel for (head dims above 512, blocks that are
 * not of 16, 32, .. tokens). */
OCTAVO_API int64_t octavo_kv_block_bytes(int32_t dtype, int32_t block_size, int32_t kv_heads, int32_t head_dim);

/* What is stored in `count` slots, as float32 [count, K, H] each; for tests and for looking into a cache. */
OCTAVO_API void octavo_kv_read(const octavo_kv* kv, const int32_t* slot, int32_t count, float* key, float* value);

/* Bytes that octavo_op.scratch of ATTENTION and its JOIN must have, 64-byte aligned: for steps of up to max_tokens tokens, and as many
 * rows, whose sequences are up to max_len long. At most 64 MiB and 16 bytes a row. All layers may share it. */
OCTAVO_API int64_t octavo_attention_scratch_bytes(int32_t max_tokens, int32_t heads, int32_t head_dim, int32_t max_len);

/* ---- ops ---- */

enum octavo_op_kind {
    OCTAVO_OP_EMBED,          /* out = dequantised rows token_T of weight, times number */
    OCTAVO_OP_RMS_NORM,       /* out = x / rms(x) * vector, per head when x has heads; number = eps; out may be x */
    OCTAVO_OP_ADD,            /* out = x + y */
    OCTAVO_OP_QUANTIZE,       /* activations: float32 rows -> int8 rows for OCTAVO_CODES (layout: activation.h) */
    OCTAVO_OP_NARROW,         /* activations: float32 rows -> bf16 rows for OCTAVO_BF16 */
    OCTAVO_OP_LINEAR,         /* out = x weight^T (+ vector as bias) (+ y as residual, where y.data); x as the weight's kind wants */
    OCTAVO_OP_ROPE,           /* x in place; vector = cos_sin [positions, 2, extra]; extra = rotary pairs */
    OCTAVO_OP_STORE_KV,       /* x keys, y values -> kv at slot_T */
    OCTAVO_OP_ATTENTION,      /* x queries -> out, over kv; number = scale, extra = window or 0 */
    OCTAVO_OP_ATTENTION_JOIN, /* second half of the op above: joins the parts of split rows, in order */
    OCTAVO_OP_SILU_MUL,       /* out = silu(first half of x) * second half */
    OCTAVO_OP_GATHER,         /* out[s] = x[logit_S[s]] */
    /* Rewrites: each equals the sequence it replaces, bit for bit. */
    OCTAVO_OP_NORM_QUANTIZE,  /* RMS_NORM, QUANTIZE (x -> out; the float32 result is not kept) */
    OCTAVO_OP_NORM_NARROW,    /* RMS_NORM, NARROW */
    OCTAVO_OP_SILU_QUANTIZE,  /* SILU_MUL, QUANTIZE */
    OCTAVO_OP_SILU_NARROW,    /* SILU_MUL, NARROW */
    OCTAVO_OP_ROPE_STORE,     /* [per-head norms], ROPE of q and k, STORE_KV */
    OCTAVO_OP_SAMPLE,         /* rows draws of the octavo_sample_batch in scratch; made by octavo_sample */
    /* Measurements: see isa/probe.h. Every row of x is one task, and fills 16 floats of its row of out. */
    OCTAVO_OP_PROBE_READ,     /* reads rows of `columns` bytes, a stride of bytes apart */
    OCTAVO_OP_PROBE_INT8,     /* extra x OCTAVO_PROBE_CHAINS dot products of 16 lanes x 4 inputs; x: 256 bytes */
    OCTAVO_OP_PROBE_BF16,     /* extra x OCTAVO_PROBE_CHAINS dot products of 16 lanes x 2 inputs; x: 256 bytes */
    OCTAVO_OP_COUNT
};

enum { OCTAVO_PROBE_CHAINS = 16 };

typedef struct octavo_op {
    int32_t kind;
    int32_t rows; /* how many rows of x are meant: a number, OCTAVO_TOKENS or OCTAVO_DRAWS */
    octavo_view x, y, z, out;
    const octavo_weight* weight;
    const octavo_kv* kv;
    const float* vector;
    const float* vector_2; /* ROPE_STORE: q norm; and vector_3 k norm; NULL without */
    const float* vector_3;
    float number;
    int32_t extra;
    void* scratch; /* ATTENTION and its JOIN: see octavo_attention_scratch_bytes */
} octavo_op;

/* ---- the machine ---- */

/* Names of the ISA levels of this build, the best first; NULL past the last. */
OCTAVO_API const char* octavo_isa_name(int32_t index);

/* The CPU features that level `index` needs and this CPU lacks, with blanks between; "" when it runs here. */
OCTAVO_API const char* octavo_isa_lacks(int32_t index);

/* Of the features that any level needs, those that this CPU has, with blanks between. */
OCTAVO_API const char* octavo_cpu_features(void);

/* ---- the team ---- */

typedef struct octavo_team octavo_team;

/* `threads` workers, the caller of octavo_run counted among them; NULL when the system refuses.
 * `isa`: NULL for the best this CPU has, or the name of a level. */
OCTAVO_API octavo_team* octavo_team_create(int32_t threads, const char* isa);
OCTAVO_API void octavo_team_free(octavo_team* team);
OCTAVO_API const char* octavo_team_isa(const octavo_team* team);

/* Runs the ops in order and returns when all is done. One caller at a time per team. */
OCTAVO_API void octavo_run(octavo_team* team, const octavo_op* ops, int32_t count, const octavo_step* step);

/* ---- sampling ---- */

/* The token ids that one draw's penalties look at; both counts 0 for a draw without penalties. */
typedef struct octavo_history {
    const int32_t* prompt;
    const int32_t* output;
    int32_t prompt_count;
    int32_t output_count;
} octavo_history;

/* See octavo.ops.backend.SampleBatch. An option that no draw uses is NULL. */
typedef struct octavo_sample_batch {
    const float* logits_SV; /* left unchanged */
    int64_t stride;         /* elements from draw to draw */
    int32_t draws, vocabulary;
    const float* temperature_S;
    const int64_t *seed_S, *choice_S, *position_S;
    const int64_t* top_k_S;
    const double *top_p_S, *min_p_S, *repetition_S, *presence_S, *frequency_S;
    const octavo_history* history_S;
    const int64_t* logprobs_S; /* how many of the most likely are wanted, at most top_stride; -1: no log probabilities */
    /* Results. */
    int64_t* token_S;
    double* logprob_S; /* of the token, where wanted, as are those of the most likely, best first */
    int64_t* top_id_SM;
    double* top_logprob_SM;
    int64_t top_stride;
    /* octavo_sample_scratch(vocabulary) bytes for each of the team's threads, zeroed once and then left to the library;
     * may be NULL where all draws are greedy and use no options. */
    void* scratch;
} octavo_sample_batch;

OCTAVO_API int64_t octavo_sample_scratch(int32_t vocabulary);
OCTAVO_API void octavo_sample(octavo_team* team, const octavo_sample_batch* batch);

#ifdef __cplusplus
}
#endif
#endif
