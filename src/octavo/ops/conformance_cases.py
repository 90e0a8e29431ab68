"""The cases of the conformance suite: small, awkwardly sized calls of each op on random inputs. A new op or a shape
that once went wrong adds a row to CASES. What counts as equal is `conformance.py`'s.

Inputs are exact in bfloat16, so that a low-precision backend is judged by its arithmetic and not by its inputs.
Shapes: T tokens, R rows, D hidden, N query heads, K kv heads, H head dim, F feed-forward, V vocabulary, S draws,
I and O features, B tokens per block, W table width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import gguf
import ml_dtypes
import numpy as np

from octavo.ops.backend import Array, Backend, Batch, KVLayer, SampleBatch
from octavo.quant.formats import FORMATS
from octavo.quant.raw import RawWeight

BLOCK = 16  # tokens in a block of the cases: a size that every backend serves


@dataclass(frozen=True, slots=True)
class Case:
    """`run` makes its inputs from the generator, calls the op, and returns the result downloaded."""

    op: str
    shape: str
    run: Callable[[Backend, np.random.Generator], np.ndarray]


def values(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normal numbers that bfloat16 holds exactly, float32."""
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16).astype(np.float32)


def raw_weight(array: np.ndarray, format: str = "f32") -> RawWeight:
    """`array` as a checkpoint would hold it."""
    kind = gguf.GGMLQuantizationType(FORMATS[format].ggml)
    data = np.ascontiguousarray(gguf.quantize(array.astype(np.float32), kind)).view(np.uint8)
    return RawWeight("weight", "conformance", format, array.shape, data.reshape(data.size // data.shape[-1], -1))


def lay_out_batch(
    backend: Backend, spans: Sequence[tuple[int, int]], tables: np.ndarray, block: int, token_T: np.ndarray
) -> Batch:
    """A planned Batch in which row r computes `spans[r]` = (first position, count) over blocks `tables[r]`.

    Logits are wanted of every token.
    """
    starts = np.array([start for start, _ in spans])
    counts = np.array([count for _, count in spans])
    row_T = np.repeat(np.arange(len(spans)), counts)
    position_T = np.concatenate([np.arange(start, start + count) for start, count in spans])
    slot_T = tables[row_T, position_T // block] * block + position_T % block

    def int32(numbers: np.ndarray) -> Array:
        return backend.upload(numbers, "int32")

    batch = Batch(
        tokens=len(position_T),
        rows=len(spans),
        token_T=int32(token_T),
        position_T=int32(position_T),
        slot_T=int32(slot_T),
        query_start_R1=int32(np.concatenate([[0], np.cumsum(counts)])),
        kv_len_R=int32(starts + counts),
        table_RW=int32(tables),
        logit_S=int32(np.arange(len(position_T))),
    )
    batch.attention = backend.plan_attention(batch)
    return batch


def _embed(scale: float, backend: Backend, rng: np.random.Generator) -> np.ndarray:
    weight = backend.pack([raw_weight(values(rng, 37, 24))])
    out_TD = backend.empty((5, 24))
    backend.embed(weight, backend.upload(np.array([36, 0, 7, 7, 1]), "int32"), out_TD, scale)
    return backend.download(out_TD)


def _rms_norm(shape: tuple[int, ...], in_place: bool, backend: Backend, rng: np.random.Generator) -> np.ndarray:
    x = backend.upload(values(rng, *shape))
    out = x if in_place else backend.empty(shape)
    backend.rms_norm(x, backend.pack([raw_weight(values(rng, shape[-1]))]), 1e-5, out)
    return backend.download(out)


def _linear(
    tokens: int, inputs: int, outputs: list[tuple[int, str]], bias: bool, backend: Backend, rng: np.random.Generator
) -> np.ndarray:
    total = sum(rows for rows, _ in outputs)
    weight = backend.pack([raw_weight(values(rng, rows, inputs), format) for rows, format in outputs])
    bias_O = backend.pack([raw_weight(values(rng, rows)) for rows, _ in outputs]) if bias else None
    out_TO = backend.empty((tokens, total))
    backend.linear(backend.upload(values(rng, tokens, inputs)), weight, out_TO, bias_O)
    return backend.download(out_TO)


def _add(backend: Backend, rng: np.random.Generator) -> np.ndarray:
    x_TD = backend.upload(values(rng, 7, 13))
    backend.add(x_TD, backend.upload(values(rng, 7, 13)), x_TD)
    return backend.download(x_TD)


def _split_heads(backend: Backend, rng: np.random.Generator) -> np.ndarray:
    """Views: what is written through them must be seen in the buffer that they are views of."""
    x_TC = backend.upload(values(rng, 6, 30))
    first, second = backend.split(backend.rows(x_TC, 4), (18, 12))
    backend.add(backend.heads(first, 3), backend.heads(first, 3), backend.heads(first, 3))
    backend.add(second, second, second)
    return backend.download(x_TC)


def _rope(head_dim: int, pairs: int, backend: Backend, rng: np.random.Generator) -> np.ndarray:
    angle_LP = rng.uniform(0, 6, (50, 1, pairs))
    cos_sin = backend.upload(np.concatenate([np.cos(angle_LP), np.sin(angle_LP)], axis=1), "float32")
    x_TC = backend.upload(values(rng, 6, 5 * head_dim))
    keys, _ = backend.split(x_TC, (3 * head_dim, 2 * head_dim))
    backend.rope(backend.heads(keys, 3), cos_sin, backend.upload(np.array([0, 49, 3, 4, 5, 3]), "int32"))
    return backend.download(x_TC)


def _cache(backend: Backend, rng: np.random.Generator, blocks: int, kv_heads: int, head_dim: int) -> KVLayer:
    """A cache of blocks of BLOCK tokens in which every slot has been written."""
    kv = backend.allocate_kv(blocks, BLOCK, kv_heads, head_dim)
    _store(backend, rng, kv, np.arange(blocks * BLOCK), kv_heads, head_dim)
    return kv


def _store(
    backend: Backend, rng: np.random.Generator, kv: KVLayer, slot_T: np.ndarray, kv_heads: int, head_dim: int
) -> None:
    shape = len(slot_T), kv_heads, head_dim
    key_TKH, value_TKH = backend.upload(values(rng, *shape)), backend.upload(values(rng, *shape))
    backend.store_kv(key_TKH, value_TKH, kv, backend.upload(slot_T, "int32"))


def _store_kv(backend: Backend, rng: np.random.Generator) -> np.ndarray:
    kv = _cache(backend, rng, 3, 2, 6)
    _store(backend, rng, kv, np.array([47, 0, 16, 33]), 2, 6)
    return backend.read_kv(kv, np.arange(3 * BLOCK))


def _copy_blocks(backend: Backend, rng: np.random.Generator) -> np.ndarray:
    layers = [_cache(backend, rng, 5, 2, 6) for _ in range(2)]
    backend.copy_blocks(layers, [(0, 3), (3, 4), (2, 0)])
    return np.stack([backend.read_kv(kv, np.arange(5 * BLOCK)) for kv in layers])


def _attention(
    spans: list[tuple[int, int]],
    heads: tuple[int, int, int],
    window: int | None,
    backend: Backend,
    rng: np.random.Generator,
) -> np.ndarray:
    query_heads, kv_heads, head_dim = heads
    width = max(-(-(start + count) // BLOCK) for start, count in spans)
    kv = _cache(backend, rng, len(spans) * width + 1, kv_heads, head_dim)
    tables = rng.permutation(len(spans) * width + 1)[: len(spans) * width].reshape(len(spans), width)
    tokens = sum(count for _, count in spans)
    batch = lay_out_batch(backend, spans, tables, BLOCK, np.zeros(tokens))
    out_TC = backend.empty((tokens, query_heads * head_dim))
    q_TC = backend.upload(values(rng, tokens, query_heads * head_dim))
    q_TNH, out_TNH = backend.heads(q_TC, query_heads), backend.heads(out_TC, query_heads)
    backend.attention(q_TNH, kv, batch, head_dim**-0.5, window, out_TNH)
    return backend.download(out_TC)


def _silu_mul(gate_scale: float, backend: Backend, rng: np.random.Generator) -> np.ndarray:
    gate_up_T2F = values(rng, 5, 42)
    gate_up_T2F[:, :21] *= gate_scale
    out_TF = backend.empty((5, 21))
    backend.silu_mul(backend.upload(gate_up_T2F), out_TF)
    return backend.download(out_TF)


def _gather(backend: Backend, rng: np.random.Generator) -> np.ndarray:
    out_SD = backend.empty((3, 24))
    backend.gather(backend.upload(values(rng, 9, 24)), backend.upload(np.array([8, 0, 8]), "int32"), out_SD)
    return backend.download(out_SD)


def _sample(temperature: float, want_logprobs: bool, backend: Backend, rng: np.random.Generator) -> np.ndarray:
    """Tokens; or, per draw, the log probabilities of the token and of the two most likely ones."""
    draws = 12
    batch = SampleBatch(
        temperature_S=np.full(draws, temperature, np.float32),
        seed_S=rng.integers(-(2**62), 2**62, draws),
        choice_S=np.arange(draws) % 3,
        position_S=np.arange(draws) * 7,
        top_k_S=np.arange(draws) * 5,
        top_p_S=np.linspace(0.3, 1.0, draws, dtype=np.float32),
        min_p_S=np.linspace(0.1, 0.0, draws, dtype=np.float32),
        logprobs_S=np.full(draws, 2),
    )
    samples = backend.sample(backend.upload(2 * values(rng, draws, 301)), batch)
    report = [entry for entry in samples.logprobs or [] if entry is not None]
    return np.array([[of_token, *of_top] for of_token, _, of_top in report]) if want_logprobs else samples.token_S


SMALL, GROUPED = (3, 3, 10), (6, 2, 64)
CASES: tuple[Case, ...] = (
    Case("embed", "5 of 37 x 24", partial(_embed, 1.0)),
    Case("embed", "scaled", partial(_embed, 3.5)),
    Case("rms_norm", "7 x 64", partial(_rms_norm, (7, 64), False)),
    Case("rms_norm", "3 x 4 heads x 24, in place", partial(_rms_norm, (3, 4, 24), True)),
    Case("linear", "1 x 64 to 33", partial(_linear, 1, 64, [(33, "f32")], False)),
    Case("linear", "7 x 63 to 8 + 5 + 1, bias", partial(_linear, 7, 63, [(8, "f32"), (5, "f32"), (1, "f32")], True)),
    Case(
        "linear",
        "33 x 96, bf16 + q8_0 + q4_1",
        partial(_linear, 33, 96, [(7, "bf16"), (9, "q8_0"), (2, "q4_1")], False),
    ),
    Case("add", "7 x 13", _add),
    Case("split and heads", "4 of 6 x 30", _split_heads),
    Case("rope", "all of 10", partial(_rope, 10, 5)),
    Case("rope", "6 of 16", partial(_rope, 16, 3)),
    Case("store_kv", "4 tokens", _store_kv),
    Case("copy_blocks", "a chain", _copy_blocks),
    Case("attention", "decode", partial(_attention, [(0, 1), (15, 1), (16, 1), (200, 1)], GROUPED, None)),
    Case("attention", "decode, window", partial(_attention, [(0, 1), (40, 1), (200, 1)], GROUPED, 33)),
    Case("attention", "prefill", partial(_attention, [(0, 150)], SMALL, None)),
    Case("attention", "chunks and decode", partial(_attention, [(5, 1), (17, 40), (0, 3), (90, 7)], GROUPED, None)),
    Case("attention", "chunks, window", partial(_attention, [(17, 100), (0, 3), (90, 1)], SMALL, 20)),
    Case("silu_mul", "5 x 21", partial(_silu_mul, 1.0)),
    Case("silu_mul", "5 x 21, gates in the hundreds", partial(_silu_mul, 400.0)),
    Case("gather", "3 of 9", _gather),
    Case("sample", "greedy", partial(_sample, 0.0, False)),
    Case("sample", "all filters", partial(_sample, 0.8, False)),
    Case("sample", "log probabilities", partial(_sample, 0.8, True)),
)
