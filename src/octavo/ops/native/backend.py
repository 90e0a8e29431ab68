"""NativeBackend: the ops of the Backend protocol as calls of the native library, at once or recorded for replay.
Owns the team; arithmetic is in native/, packing in `weights.py`, fusion in `rewrite.py`.

Shapes: T tokens in the step, R rows, S sampled rows, D hidden, N query heads, K kv heads, H head dim, F feed-forward,
I and O input and output features, C columns of a merged output, P rotary pairs, V vocabulary.
"""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from octavo.errors import ConfigError
from octavo.ops.backend import Batch, SampleBatch, Samples, StepLimits
from octavo.ops.native import abi
from octavo.ops.native.arrays import Rows, symbol_of
from octavo.ops.native.cache import KV_DTYPES, NativeKV
from octavo.ops.native.early_gather import gather_early
from octavo.ops.native.library import load_library
from octavo.ops.native.memory import Arena
from octavo.ops.native.program import ACTIVATION_OP, Immediate, Instruction, Recording, Replay
from octavo.ops.native.rewrite import rewrite
from octavo.ops.native.sample import NativeSampler
from octavo.ops.native.weights import PackedWeight, Segment, fallback_reason, pack_matrix, packed_bytes
from octavo.quant.dequantize import dequantize
from octavo.quant.formats import FORMATS
from octavo.quant.raw import RawWeight

DTYPE = "bfloat16"  # what matrix products take in when the checkpoint is not quantised; sums are float32
TILE = 16  # tokens in the lanes of the cache's keys

log = logging.getLogger(__name__)


class NativeBackend:
    """Implements `ops.backend.Backend`. ConfigError when the library is missing or `dtype` is not its own.

    `kv_dtype` is that of the cache; `quantize` ("q4", "q8") packs plain matrices in fewer bits.
    """

    name = "native"
    dtype = DTYPE
    activation_bytes = 4

    def __init__(
        self,
        dtype: str = "auto",
        threads: int = 1,
        *,
        kv_dtype: str = "auto",
        quantize: str | None = None,
        isa: str | None = None,
    ) -> None:
        if dtype not in ("auto", DTYPE):
            raise ConfigError(f"the native backend computes in {DTYPE}, not {dtype}")
        self._library = load_library()
        self.threads = threads
        self._team = self._library.octavo_team_create(self.threads, isa.encode() if isa else None)
        if not self._team:
            raise ConfigError(f"the native library got no {self.threads} threads for {isa or 'any instruction set'}")
        weakref.finalize(self, self._library.octavo_team_free, self._team)
        self._kv_dtype = KV_DTYPES[kv_dtype]
        self._quantize = quantize
        self._arena = Arena()
        self._explained: set[str] = set()  # formats whose fallback has been logged
        self._sampler = NativeSampler(self._library, self._team, self.threads)
        self._sink: Immediate | Recording = Immediate(self._library, self._team)

    @property
    def isa(self) -> str:
        """The instruction set level in use: avx512, avx2 or scalar."""
        name: bytes = self._library.octavo_team_isa(self._team)
        return name.decode()

    # --- once, at load ---

    def refuse(self, formats: frozenset[str], head_dim: int, block_size: int) -> str | None:
        unknown = sorted(formats - FORMATS.keys())
        if unknown:
            return f"no packing for the tensor types {', '.join(unknown)}"
        if block_size % TILE:
            return f"its cache needs a block size that is a multiple of {TILE}, not {block_size}"
        return f"its cache needs an even head dimension, not {head_dim}" if head_dim % 2 else None

    def empty(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        if dtype is not None:
            return np.empty(shape, dtype)
        return Rows.whole(self._arena.take(4 * int(np.prod(shape))).view(np.float32).reshape(shape))

    def zeros(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        array = self.empty(shape, dtype)
        (array.numpy() if isinstance(array, Rows) else array).fill(0)
        return array

    def upload(self, values: np.ndarray, dtype: str | None = None) -> Any:
        if dtype is not None and dtype != "float32":
            return np.array(values, dtype, order="C")
        array = self.empty(values.shape)
        array.numpy()[...] = values
        return array

    def download(self, array: Any) -> np.ndarray:
        return array.numpy().copy() if isinstance(array, Rows) else np.array(array)

    def pack(self, parts: list[RawWeight]) -> PackedWeight | np.ndarray:
        if len(parts[0].shape) > 1:
            self._explain({part.format for part in parts})
            return pack_matrix(parts, self._arena, self.threads, self._quantize)
        vector = np.empty(sum(part.shape[0] for part in parts), np.float32)
        row = 0
        for part in parts:
            dequantize(part, out=vector[row : row + part.shape[0]])
            row += part.shape[0]
        return vector

    def packed_bytes(self, format: str, shape: tuple[int, ...]) -> int:
        return packed_bytes(format, shape, self._quantize)

    # --- the cache ---

    def kv_block_bytes(self, block_size: int, kv_heads: int, head_dim: int) -> int:
        return int(self._library.octavo_kv_block_bytes(self._kv_dtype, block_size, kv_heads, head_dim))

    def allocate_kv(self, blocks: int, block_size: int, kv_heads: int, head_dim: int) -> NativeKV:
        return NativeKV.allocate(self._kv_dtype, blocks, block_size, kv_heads, head_dim)

    def read_kv(self, kv: NativeKV, slot_S: np.ndarray) -> np.ndarray:
        return kv.read(np.asarray(slot_S))

    def copy_blocks(self, kv: list[NativeKV], copies: list[tuple[int, int]]) -> None:
        for layer in kv:
            layer.copy(copies)

    # --- once per step ---

    def plan_attention(self, batch: Batch) -> None:
        """The native op plans for itself."""

    # --- per layer ---

    def rows(self, x_TD: Rows, count: int) -> Rows:
        return replace(x_TD, count=count)

    def split(self, x_TC: Rows, widths: tuple[int, ...]) -> list[Rows]:
        ends = np.cumsum(widths)
        return [
            replace(x_TC, memory=x_TC.memory[:, end - width : end]) for width, end in zip(widths, ends, strict=True)
        ]

    def heads(self, x_TC: Rows, heads: int) -> Rows:
        return replace(x_TC, heads=heads)

    def embed(self, weight: PackedWeight, token_T: Any, out_TD: Rows, scale: float = 1.0) -> None:
        (segment,) = weight.segments
        op = abi.Op(kind=abi.OpKind.EMBED, weight=ctypes.pointer(segment.struct), number=scale)
        self._do(op, out=out_TD, keep=(segment,), step={"token_T": token_T})

    def rms_norm(self, x_TD: Rows, weight_D: np.ndarray, eps: float, out_TD: Rows) -> None:
        op = abi.Op(kind=abi.OpKind.RMS_NORM, vector=weight_D.ctypes.data, number=eps)
        self._do(op, x=x_TD, out=out_TD, keep=(weight_D,))

    def linear(self, x_TI: Rows, weight: PackedWeight, out_TO: Rows, bias_O: np.ndarray | None = None) -> None:
        for segment in weight.segments:
            rows = segment.struct.rows
            out = out_TO
            if len(weight.segments) > 1:
                out = replace(out_TO, memory=out_TO.memory[:, segment.first_row : segment.first_row + rows])
            bias = None if bias_O is None else bias_O[segment.first_row : segment.first_row + rows]
            self._linear(x_TI, segment, out, bias)

    def add(self, x_TD: Rows, y_TD: Rows, out_TD: Rows) -> None:
        self._do(abi.Op(kind=abi.OpKind.ADD), x=x_TD, y=y_TD, out=out_TD)

    def rope(self, x_TNH: Rows, cos_sin: Rows, position_T: Any) -> None:
        op = abi.Op(kind=abi.OpKind.ROPE, vector=cos_sin.memory.ctypes.data, extra=cos_sin.columns // 2)
        self._do(op, x=x_TNH, out=x_TNH, keep=(cos_sin,), step={"position_T": position_T})

    def store_kv(self, key_TKH: Rows, value_TKH: Rows, kv: NativeKV, slot_T: Any) -> None:
        op = abi.Op(kind=abi.OpKind.STORE_KV, kv=ctypes.pointer(kv.struct))
        self._do(op, x=key_TKH, y=value_TKH, keep=(kv,), step={"slot_T": slot_T})

    def attention(
        self, q_TNH: Rows, kv: NativeKV, batch: Batch, scale: float, window: int | None, out_TNH: Rows
    ) -> None:
        scratch = self._sink.attention_scratch(q_TNH, batch)
        for kind in (abi.OpKind.ATTENTION, abi.OpKind.ATTENTION_JOIN):
            op = abi.Op(
                kind=kind,
                kv=ctypes.pointer(kv.struct),
                number=scale,
                extra=window or 0,
                scratch=scratch.ctypes.data,
            )
            self._do(op, x=q_TNH, out=out_TNH, keep=(kv, scratch), step=batch)

    def silu_mul(self, gate_up_T2F: Rows, out_TF: Rows) -> None:
        self._do(abi.Op(kind=abi.OpKind.SILU_MUL), x=gate_up_T2F, out=out_TF)

    def gather(self, x_TD: Rows, index_S: Any, out_SD: Rows) -> None:
        self._do(abi.Op(kind=abi.OpKind.GATHER), x=x_TD, out=out_SD, step={"logit_S": index_S})

    # --- sampling ---

    def sample(self, logits_SV: Rows, batch: SampleBatch) -> Samples:
        return self._sampler.draw_samples(logits_SV.numpy(), batch)

    # --- capture ---

    def capture(
        self, forward: Callable[[Batch, list[NativeKV]], Rows], kv: list[NativeKV], limits: StepLimits
    ) -> Callable[[Batch], Rows]:
        recording = Recording(limits)
        immediate, self._sink = self._sink, recording
        try:
            result = forward(recording.batch(), kv)
        finally:
            self._sink = immediate
        program = rewrite(recording.instructions, result.buffer)
        program = gather_early(program, result.buffer, limits.draws, limits.tokens)
        return Replay(self._library, self._team, program, result)

    def _explain(self, formats: set[str]) -> None:
        """Say once per format that it is not kept as it is."""
        for format in sorted(formats - self._explained):
            self._explained.add(format)
            if (reason := fallback_reason(format)) is not None:
                log.warning("%s", reason)

    def _linear(self, x_TI: Rows, segment: Segment, out_TO: Rows, bias_O: np.ndarray | None) -> None:
        """Bring the input into the form that the weight wants, then multiply."""
        struct = segment.struct
        bias = None if bias_O is None else bias_O.ctypes.data
        op = abi.Op(kind=abi.OpKind.LINEAR, weight=ctypes.pointer(struct), vector=bias)
        keep = (segment, bias_O)
        narrow = ACTIVATION_OP.get(struct.kind)
        if narrow is None:
            self._do(op, x=x_TI, out=out_TO, keep=keep)
            return
        activation = self._sink.activation(struct.kind, struct.padded_columns, x_TI.count)
        to_form = abi.Op(kind=narrow, rows=symbol_of(x_TI.count), x=x_TI.view, out=activation.view)
        to_form.extra = struct.padded_columns
        self._sink.add(Instruction(to_form, (x_TI.buffer,), (activation.buffer,), (x_TI, activation)), {})
        op.rows, op.x, op.out = symbol_of(x_TI.count), activation.view, out_TO.view
        self._sink.add(
            Instruction(op, (activation.buffer,), (out_TO.buffer,), (*keep, activation, out_TO)),
            {},
        )

    def _do(
        self,
        op: abi.Op,
        *,
        x: Rows | None = None,
        y: Rows | None = None,
        out: Rows | None = None,
        keep: tuple[Any, ...] = (),
        step: dict[str, Any] | Batch | None = None,
    ) -> None:
        """Fill in the views and hand the op to be run or recorded. Its rows are those of `out`, or of `x` without."""
        operands = {"x": x, "y": y, "out": out}
        for name, operand in operands.items():
            if operand is not None:
                setattr(op, name, operand.view)
        leading = out if out is not None else x
        assert leading is not None
        op.rows = symbol_of(leading.count)
        reads = tuple(operand.buffer for operand in (x, y) if operand is not None)
        writes = (out.buffer,) if out is not None else ()
        self._sink.add(Instruction(op, reads, writes, (x, y, out, *keep)), step or {})
