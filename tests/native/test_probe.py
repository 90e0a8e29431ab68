"""What the library says about the machine: levels and features against /proc/cpuinfo, sums, and plausible speeds."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from native_ops import NativeTeam, view

from octavo.ops.native.abi import PROBE_CHAINS, OpKind
from octavo.ops.native.probe import cpu_features, isa_levels, measure_speed

# Where Linux writes a feature otherwise than the compiler does.
LINUX_NAMES = {"avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16"}


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="reads /proc/cpuinfo")
def test_features_are_those_that_the_system_sees() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    named = set(cpu_features().split())
    lacking = {name for level in isa_levels() for name in level.lacks.split()}
    assert {LINUX_NAMES.get(name, name) for name in named} <= flags
    assert not {LINUX_NAMES.get(name, name) for name in lacking} & flags
    assert not named & lacking


def test_the_plain_level_is_last_and_runs_everywhere() -> None:
    levels = isa_levels()
    assert (levels[-1].name, levels[-1].lacks) == ("scalar", "")


def test_every_byte_is_read(team: NativeTeam) -> None:
    rows, columns = 5, 512
    data = np.random.default_rng(1).integers(0, 1000, (rows, columns // 4), np.int32)
    out = np.zeros((rows, 16), np.float32)
    x = view(data)
    x.stride, x.columns = columns, columns  # in bytes
    team.run(OpKind.PROBE_READ, rows, x=x, out=out)
    np.testing.assert_array_equal(out, data.reshape(rows, -1, 16).sum(axis=1))


def test_the_chains_do_the_products_that_are_counted(team: NativeTeam) -> None:
    operand, rounds = np.ones((1, 256), np.uint8), 37
    out = np.zeros((1, 16), np.float32)
    team.run(OpKind.PROBE_INT8, 1, x=operand_view(operand), out=out, extra=rounds)
    assert (out == rounds * PROBE_CHAINS * 4).all()
    ones_bf16 = np.full((1, 128), 0x3F80, np.uint16)
    team.run(OpKind.PROBE_BF16, 1, x=operand_view(ones_bf16.view(np.uint8)), out=out, extra=rounds)
    assert (out == rounds * PROBE_CHAINS * 2).all()


def operand_view(operand: np.ndarray) -> object:
    x = view(operand)
    x.stride = 0  # every task has the same
    return x


@pytest.mark.skipif(sys.platform != "linux", reason="asks for huge pages")
def test_speeds_are_positive_and_below_any_machine() -> None:
    speed = measure_speed(1)
    assert speed.threads == 1
    assert 0.01 < speed.read < 10_000
    assert 0.01 < speed.bf16 < 1e6
    assert 0.01 < speed.int8 < 1e6
