"""Fusion: rewrites of a recorded step in which one op takes the place of several. Each computes the same bits as the
sequence it replaces (tests/native/test_rewrite.py), so that fused and unfused programs are interchangeable.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.ops.native.abi import Op, OpKind, View
from octavo.ops.native.program import Instruction

NORMALISED = {OpKind.QUANTIZE: OpKind.NORM_QUANTIZE, OpKind.NARROW: OpKind.NORM_NARROW}
GATED = {OpKind.QUANTIZE: OpKind.SILU_QUANTIZE, OpKind.NARROW: OpKind.SILU_NARROW}

# Looks at the instructions from an index on; returns how many it replaces and by what, or None.
Rule = Callable[[list[Instruction], int, int], tuple[int, list[Instruction]] | None]


def rewrite(instructions: list[Instruction], result: int) -> list[Instruction]:
    """The fused program. `result` is the buffer whose contents are wanted when the step is over."""
    for rule in (_one_activation, _norm_and_activation, _gate_and_activation, _residual, _rope_and_store):
        instructions = _apply(rule, instructions, result)
    return instructions


def _apply(rule: Rule, instructions: list[Instruction], result: int) -> list[Instruction]:
    fused: list[Instruction] = []
    index = 0
    while index < len(instructions):
        found = rule(instructions, index, result)
        count, replacement = found or (1, [instructions[index]])
        fused += replacement
        index += count
    return fused


def _one_activation(program: list[Instruction], index: int, result: int) -> tuple[int, list[Instruction]] | None:  # noqa: ARG001
    """An input that stands in its activation buffer already, for the segment of a weight before, is not made again."""
    second = program[index]
    if second.op.kind not in NORMALISED or index < 2:
        return None
    linear, first = program[index - 1], program[index - 2]
    again = first.op.kind == second.op.kind and first.op.rows == second.op.rows
    again = again and _same(first.op.x, second.op.x) and _same(first.op.out, second.op.out)
    return (1, []) if again and not set(linear.writes) & {*first.reads, *first.writes} else None


def _norm_and_activation(program: list[Instruction], index: int, result: int) -> tuple[int, list[Instruction]] | None:
    """RMS_NORM, then QUANTIZE or NARROW of what it wrote, which nobody else reads."""
    if not _follow(program, index, (OpKind.RMS_NORM, NORMALISED)) or program[index].op.x.heads:
        return None
    norm, narrow = program[index : index + 2]
    if not _same(norm.op.out, narrow.op.x) or not _forgotten(program, index + 2, norm, result):
        return None
    op = _copy(norm.op, kind=NORMALISED[OpKind(narrow.op.kind)], out=narrow.op.out, extra=narrow.op.extra)
    return 2, [Instruction(op, norm.reads, narrow.writes, (norm.keep, narrow.keep))]


def _gate_and_activation(program: list[Instruction], index: int, result: int) -> tuple[int, list[Instruction]] | None:
    """SILU_MUL, then QUANTIZE or NARROW of what it wrote, which nobody else reads."""
    if not _follow(program, index, (OpKind.SILU_MUL, GATED)):
        return None
    gate, narrow = program[index : index + 2]
    if not _same(gate.op.out, narrow.op.x) or not _forgotten(program, index + 2, gate, result):
        return None
    op = _copy(gate.op, kind=GATED[OpKind(narrow.op.kind)], out=narrow.op.out, extra=narrow.op.extra)
    return 2, [Instruction(op, gate.reads, narrow.writes, (gate.keep, narrow.keep))]


def _residual(program: list[Instruction], index: int, result: int) -> tuple[int, list[Instruction]] | None:
    """LINEAR, then ADD of its output to a stream: the product is added where it is made."""
    if not _follow(program, index, (OpKind.LINEAR, OpKind.ADD)):
        return None
    linear, addition = program[index : index + 2]
    stream, product = addition.reads
    whole = _same(linear.op.out, addition.op.y) and linear.op.weight.contents.rows == addition.op.y.columns
    # A sum is written while others still read the input of the product, or its row's as it was before.
    in_the_way = product == stream or addition.writes[0] in linear.reads
    if not whole or in_the_way or not _forgotten(program, index + 2, linear, result):
        return None
    op = _copy(linear.op, y=addition.op.x, out=addition.op.out)
    return 2, [Instruction(op, (*linear.reads, stream), addition.writes, (linear.keep, addition.keep))]


def _rope_and_store(program: list[Instruction], index: int, result: int) -> tuple[int, list[Instruction]] | None:  # noqa: ARG001
    """ROPE of queries and of keys, after the norms of their heads if there are any, and STORE_KV."""
    norms = 2 if _follow(program, index, (OpKind.RMS_NORM, OpKind.RMS_NORM, OpKind.ROPE)) else 0
    if not _follow(program, index + norms, (OpKind.ROPE, OpKind.ROPE, OpKind.STORE_KV)):
        return None
    parts = program[index : index + norms + 3]
    *normed, queries, keys, store = (part.op for part in parts)
    if not _same(keys.x, store.x) or queries.vector != keys.vector or queries.extra != keys.extra:
        return None
    op = _copy(queries, kind=OpKind.ROPE_STORE, y=keys.x, z=store.y, kv=store.kv)
    if normed:
        in_place = all(
            norm.x.heads and _same(norm.x, norm.out) and _same(norm.x, turned.x)
            for norm, turned in zip(normed, (queries, keys), strict=True)
        )
        if not in_place or normed[0].number != normed[1].number:
            return None
        op.vector_2, op.vector_3, op.number = normed[0].vector, normed[1].vector, normed[0].number
    reads = tuple(buffer for part in parts for buffer in part.reads)
    writes = tuple(buffer for part in parts for buffer in part.writes)
    return len(parts), [Instruction(op, reads, writes, tuple(part.keep for part in parts))]


def _follow(program: list[Instruction], index: int, kinds: tuple[object, ...]) -> bool:
    """The ops from `index` on are of these kinds, each one kind or any of several, and mean the same rows."""
    if index + len(kinds) > len(program):
        return False
    return all(
        (instruction.op.kind in wanted if isinstance(wanted, dict) else instruction.op.kind == wanted)
        and instruction.op.rows == program[index].op.rows
        for instruction, wanted in zip(program[index:], kinds, strict=False)
    )


def _forgotten(program: list[Instruction], index: int, writer: Instruction, result: int) -> bool:
    """Nobody reads the buffer of `writer` from `index` on before all that it wrote is written anew."""
    (buffer,) = writer.writes
    for instruction in program[index:]:
        if buffer in instruction.reads:
            return False
        covered = _same(instruction.op.out, writer.op.out) and instruction.op.rows == writer.op.rows
        if buffer in instruction.writes and covered:
            return True
    return buffer != result


def _same(a: View, b: View) -> bool:
    return bool(a.data == b.data and a.stride == b.stride and a.columns == b.columns)


def _copy(op: Op, **changes: object) -> Op:
    copy = Op.from_buffer_copy(op)
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy
