"""Finding and loading the native library, and the signatures of its functions. Knows nothing of arrays or models."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from octavo.errors import ConfigError
from octavo.ops.native.abi import ABI, KV, Op, Step, Weight

NAME = "liboctavo.so"

_FUNCTIONS = {
    "octavo_team_create": (ctypes.c_void_p, [ctypes.c_int32, ctypes.c_char_p]),
    "octavo_team_free": (None, [ctypes.c_void_p]),
    "octavo_team_isa": (ctypes.c_char_p, [ctypes.c_void_p]),
    "octavo_run": (None, [ctypes.c_void_p, ctypes.POINTER(Op), ctypes.c_int32, ctypes.POINTER(Step)]),
    "octavo_weight_layout": (ctypes.c_int64, [ctypes.POINTER(Weight)]),
    "octavo_packing_of": (ctypes.c_int32, [ctypes.c_int32, ctypes.POINTER(Weight)]),
    "octavo_pack": (
        ctypes.c_int32,
        [ctypes.POINTER(Weight), ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32],
    ),
    "octavo_quantize_rows": (
        ctypes.c_int32,
        [ctypes.POINTER(Weight), ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32],
    ),
    "octavo_kv_block_bytes": (ctypes.c_int64, [ctypes.c_int32] * 4),
    "octavo_kv_read": (
        None,
        [ctypes.POINTER(KV), ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "octavo_attention_scratch_bytes": (ctypes.c_int64, [ctypes.c_int32] * 5),
}


@cache
def load_library() -> ctypes.CDLL:
    """The library, loaded once per process. ConfigError says why it cannot be: not built, or of another version."""
    for path in _places():
        if path.exists():
            return _load(path)
    raise ConfigError(
        f"the native library {NAME} is not part of this installation: it was installed without a C++ compiler. "
        "Install one (Debian: apt install g++) and run `pip install --force-reinstall --no-deps octavo` again"
    )


def _places() -> Iterator[Path]:
    """Beside this package; for an editable installation, where the installer put what it built."""
    yield Path(__file__).parent / NAME
    try:
        yield Path(str(distribution("octavo").locate_file(f"octavo/ops/native/{NAME}")))
    except PackageNotFoundError:
        return


def _load(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        abi = library.octavo_abi()
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ConfigError(f"the native library {path} cannot be loaded: {error}. Install Octavo again") from error
    if abi != ABI:
        raise ConfigError(
            f"the native library {path} is of another build (interface {abi}, wanted {ABI}). Install Octavo again"
        )
    return library
