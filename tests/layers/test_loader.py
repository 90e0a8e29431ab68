"""Pull loading: merge order, shapes, one error for everything that is wrong, and progress."""

import numpy as np
import pytest
from memory_source import MemorySource

from octavo.errors import CheckpointError
from octavo.layers.loader import Loader
from octavo.ops.reference.backend import ReferenceBackend


def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "a.q.weight": rng.standard_normal((6, 4)),
        "a.q.bias": rng.standard_normal(6),
        "a.k.weight": rng.standard_normal((2, 4)),
        "a.k.bias": rng.standard_normal(2),
        "a.norm.weight": rng.standard_normal(4),
        "table": rng.standard_normal((5, 4)),
    }


def pull_all(load: Loader) -> tuple:
    scope = load.scope("a")
    return (
        scope.linear(["q", "k"], [6, 2], 4, bias=True),
        scope.norm("norm", 4, 1e-5),
        load.matrix("table", 5, 4),
    )


def test_parts_are_merged_in_the_order_named() -> None:
    source = MemorySource(tensors())
    load = Loader(source, ReferenceBackend())
    linear, norm, table = pull_all(load)
    load.finish()
    held = source.tensors
    np.testing.assert_array_equal(linear.weight, np.concatenate([held["a.q.weight"], held["a.k.weight"]]))
    np.testing.assert_array_equal(linear.bias_O, np.concatenate([held["a.q.bias"], held["a.k.bias"]]))
    np.testing.assert_array_equal(norm.weight_D, held["a.norm.weight"])
    np.testing.assert_array_equal(table, held["table"])


def test_weights_do_not_alias_the_file() -> None:
    source = MemorySource(tensors())
    table = Loader(source, ReferenceBackend()).matrix("table", 5, 4)
    assert not np.shares_memory(table, source.tensors["table"])


def test_one_error_names_everything() -> None:
    held = tensors()
    del held["a.q.bias"], held["table"]
    held["a.norm.weight"] = held["a.norm.weight"][:3]
    held["stray"] = np.zeros(3)
    load = Loader(MemorySource(held), ReferenceBackend())
    pull_all(load)
    with pytest.raises(CheckpointError) as caught:
        load.finish()
    assert str(caught.value) == (
        "the checkpoint does not fit its config. tensors missing: a.q.bias, table. "
        "tensors of the wrong shape: a.norm.weight in memory is [3], not [4]. "
        "tensors that this model does not use: stray"
    )


def test_long_lists_are_cut() -> None:
    load = Loader(MemorySource({}), ReferenceBackend())
    for layer in range(100):
        load.norm(f"{layer}", 4, 1e-5)
    with pytest.raises(CheckpointError, match=r"11\.weight and 88 more"):
        load.finish()


def test_ignored_tensors_are_no_fault() -> None:
    held = tensors() | {"a.rotary_emb.inv_freq": np.zeros(3), "b.rotary_emb.other": np.zeros(3)}
    load = Loader(MemorySource(held), ReferenceBackend())
    pull_all(load)
    with pytest.raises(CheckpointError, match=r"does not use: b\.rotary_emb\.other$"):
        load.finish(ignore=("*.rotary_emb.inv_freq",))


def test_progress_reaches_the_total() -> None:
    source = MemorySource(tensors())
    calls: list[tuple[int, int]] = []
    load = Loader(source, ReferenceBackend(), lambda done, total: calls.append((done, total)))
    pull_all(load)
    done = [d for d, _ in calls]
    assert done == sorted(done)
    assert calls[-1] == (source.total_bytes, source.total_bytes)


def test_nothing_is_packed_after_the_first_fault() -> None:
    class Counting(ReferenceBackend):
        packed = 0

        def pack(self, parts: list) -> np.ndarray:
            self.packed += 1
            return super().pack(parts)

    backend = Counting()
    load = Loader(MemorySource(tensors()), backend)
    load.norm("absent", 4, 1e-5)
    pull_all(load)
    assert backend.packed == 0
