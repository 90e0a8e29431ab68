"""The structs and constants of native/octavo.h as ctypes. A mirror, field by field; what they mean is said there."""

from __future__ import annotations

import ctypes
from enum import IntEnum

ABI = 1

TOKENS = -1
DRAWS = -2

KIND_CODES, KIND_BF16, KIND_F16, KIND_F32 = range(4)
KV_BF16, KV_INT8 = range(2)

PROBE_CHAINS = 16


class OpKind(IntEnum):
    """`enum octavo_op_kind`."""

    EMBED = 0
    RMS_NORM = 1
    ADD = 2
    QUANTIZE = 3
    NARROW = 4
    LINEAR = 5
    ROPE = 6
    STORE_KV = 7
    ATTENTION = 8
    ATTENTION_JOIN = 9
    SILU_MUL = 10
    GATHER = 11
    NORM_QUANTIZE = 12
    NORM_NARROW = 13
    SILU_QUANTIZE = 14
    SILU_NARROW = 15
    ROPE_STORE = 16
    SAMPLE = 17
    PROBE_READ = 18
    PROBE_INT8 = 19
    PROBE_BF16 = 20


class View(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("columns", ctypes.c_int32),
        ("heads", ctypes.c_int32),
    )


class Step(ctypes.Structure):
    _fields_ = (
        ("tokens", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("draws", ctypes.c_int32),
        ("table_width", ctypes.c_int32),
        ("token_T", ctypes.c_void_p),
        ("position_T", ctypes.c_void_p),
        ("slot_T", ctypes.c_void_p),
        ("query_start_R1", ctypes.c_void_p),
        ("kv_len_R", ctypes.c_void_p),
        ("table_RW", ctypes.c_void_p),
        ("table_stride", ctypes.c_int64),
        ("logit_S", ctypes.c_void_p),
    )


class Weight(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("group", ctypes.c_int32),
        ("has_min", ctypes.c_int32),
        ("zero", ctypes.c_int32),
        ("has_lut", ctypes.c_int32),
        ("lut", ctypes.c_uint8 * 16),
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("padded_columns", ctypes.c_int32),
        ("panel_bytes", ctypes.c_int32),
        ("data", ctypes.c_void_p),
    )


class KV(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("block_bytes", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("block_size", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
    )


class Op(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("x", View),
        ("y", View),
        ("z", View),
        ("out", View),
        ("weight", ctypes.POINTER(Weight)),
        ("kv", ctypes.POINTER(KV)),
        ("vector", ctypes.c_void_p),
        ("vector_2", ctypes.c_void_p),
        ("vector_3", ctypes.c_void_p),
        ("number", ctypes.c_float),
        ("extra", ctypes.c_int32),
        ("scratch", ctypes.c_void_p),
    )


class History(ctypes.Structure):
    _fields_ = (
        ("prompt", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("prompt_count", ctypes.c_int32),
        ("output_count", ctypes.c_int32),
    )


class NativeSampleBatch(ctypes.Structure):
    _fields_ = (
        ("logits_SV", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("draws", ctypes.c_int32),
        ("vocabulary", ctypes.c_int32),
        ("temperature_S", ctypes.c_void_p),
        ("seed_S", ctypes.c_void_p),
        ("choice_S", ctypes.c_void_p),
        ("position_S", ctypes.c_void_p),
        ("top_k_S", ctypes.c_void_p),
        ("top_p_S", ctypes.c_void_p),
        ("min_p_S", ctypes.c_void_p),
        ("repetition_S", ctypes.c_void_p),
        ("presence_S", ctypes.c_void_p),
        ("frequency_S", ctypes.c_void_p),
        ("history_S", ctypes.POINTER(History)),
        ("logprobs_S", ctypes.c_void_p),
        ("token_S", ctypes.c_void_p),
        ("logprob_S", ctypes.c_void_p),
        ("top_id_SM", ctypes.c_void_p),
        ("top_logprob_SM", ctypes.c_void_p),
        ("top_stride", ctypes.c_int64),
        ("scratch", ctypes.c_void_p),
    )
