"""The last layer for the drawn tokens only. A recorded step ends by gathering the rows whose logits are wanted; ops
before it that treat every row by itself need only those rows, so the gather moves in front of them. A prompt's last
layer then computes its output projection and feed-forward for one token, and for none in the chunks before the last.
"""

from __future__ import annotations

from octavo.ops.native.abi import DRAWS, Op, OpKind, View
from octavo.ops.native.arrays import Count, Rows
from octavo.ops.native.memory import huge_memory
from octavo.ops.native.program import Instruction

# What an op makes of a row depends on that row alone.
ROW_BY_ROW = (
    *(OpKind.RMS_NORM, OpKind.ADD, OpKind.QUANTIZE, OpKind.NARROW, OpKind.LINEAR, OpKind.SILU_MUL),
    *(OpKind.NORM_QUANTIZE, OpKind.NORM_NARROW, OpKind.SILU_QUANTIZE, OpKind.SILU_NARROW),
)


def gather_early(program: list[Instruction], result: int, draws: int, tokens: int) -> list[Instruction]:
    """The program with its gather moved, or as it is where it has no movable one. `result` is the buffer whose contents
    are wanted when the step is over; `draws` and `tokens` are the most of a step, and a buffer for the one must hold
    the other, since ops keep theirs."""
    places = [index for index, instruction in enumerate(program) if instruction.op.kind == OpKind.GATHER]
    if len(places) != 1 or draws > tokens:
        return program
    end = places[0]
    begin = end
    while begin > 0 and _movable(program[begin - 1], program[end]):
        begin -= 1
    run, gather, rest = program[begin:end], program[end], program[end + 1 :]
    gathers = None if _wanted_later(run, rest, result) else _gathers(run, gather, draws)
    if gathers is None:
        return program
    moved = [_for_draws(instruction, gathers) for instruction in run]
    return [*program[:begin], *gathers.values(), *moved, *rest]


def _movable(instruction: Instruction, gather: Instruction) -> bool:
    known = instruction.op.kind in ROW_BY_ROW and instruction.op.rows != DRAWS
    return known and not {*instruction.reads, *instruction.writes} & set(gather.writes)


def _wanted_later(run: list[Instruction], rest: list[Instruction], result: int) -> bool:
    """Whether the rest looks at what the run wrote, other than through the gather."""
    unseen = {buffer: view for instruction in run for buffer, view in _results(instruction)}
    if result in unseen:
        return True
    for instruction in rest:
        if instruction.op.rows != DRAWS or unseen.keys() & {*instruction.reads}:
            return True
        for buffer, view in _results(instruction):
            if buffer in unseen and _whole(view, unseen[buffer]):
                del unseen[buffer]
    return False


def _gathers(run: list[Instruction], gather: Instruction, draws: int) -> dict[int, Instruction] | None:
    """A gather for each buffer that the run reads before it writes it, by buffer: what it stood in before the run. The
    gathered stream takes the place of the one that was gathered. None where a buffer is not read whole."""
    (stream,), (last,) = gather.reads, gather.writes
    gathers: dict[int, Instruction] = {}
    written: set[int] = set()
    for instruction in run:
        for buffer, view in _operands(instruction):
            if buffer in written or buffer in gathers:
                continue
            if buffer == stream:
                gathers[buffer] = gather
            else:
                memory = huge_memory(4 * draws * view.columns).view("float32").reshape(draws, view.columns)
                rows = Rows(memory, Count(draws, DRAWS), memory.ctypes.data)
                op = Op(kind=OpKind.GATHER, rows=DRAWS, x=view, out=rows.view)
                gathers[buffer] = Instruction(op, (buffer,), (rows.buffer,), (instruction.keep, rows))
        written.update(instruction.writes)
    whole = stream in gathers and all(
        _whole(view, gathers[buffer].op.x)
        for instruction in run
        for buffer, view in [*_operands(instruction), *_results(instruction)]
        if buffer in gathers
    )
    return gathers if whole and last not in written else None


def _for_draws(instruction: Instruction, gathers: dict[int, Instruction]) -> Instruction:
    """The instruction on gathered rows, in place of those that were gathered."""
    op = Op.from_buffer_copy(instruction.op)
    op.rows = DRAWS
    for name in ("x", "y", "out"):
        view = getattr(op, name)
        for gather in gathers.values():
            if view.data and _whole(view, gather.op.x):
                moved = gather.op.out
                setattr(op, name, View(moved.data, moved.stride, view.columns, view.heads))
    place = {buffer: gather.writes[0] for buffer, gather in gathers.items()}
    reads, writes = (
        tuple(place.get(buffer, buffer) for buffer in side) for side in (instruction.reads, instruction.writes)
    )
    return Instruction(op, reads, writes, (instruction.keep, *(gather.keep for gather in gathers.values())))


def _operands(instruction: Instruction) -> list[tuple[int, View]]:
    """The buffers that an op reads, with the views it has of them."""
    views = [view for view in (instruction.op.x, instruction.op.y) if view.data]
    return list(zip(instruction.reads, views, strict=True))


def _results(instruction: Instruction) -> list[tuple[int, View]]:
    return [(buffer, instruction.op.out) for buffer in instruction.writes]


def _whole(a: View, b: View) -> bool:
    return bool(a.data == b.data and a.stride == b.stride and a.columns == b.columns)
