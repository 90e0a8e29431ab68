"""Finding and loading the native library, and the signatures of its functions. Knows nothing of arrays or models."""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from pathlib import Path

from octavo.errors import ConfigError
from octavo.ops.native.abi import ABI, KV, NativeSampleBatch, Op, Step, Weight

NAME = "liboctavo.so"

_FUNCTIONS = {
    "octavo_team_create": (ctypes.c_void_p, [ctypes.c_int32, ctypes.c_char_p]),
    "octavo_team_free": (None, [ctypes.c_void_p]),
    "octavo_team_isa": (ctypes.c_char_p, [ctypes.c_void_p]),
    "octavo_isa_name": (ctypes.c_char_p, [ctypes.c_int32]),
    "octavo_isa_lacks": (ctypes.c_char_p, [ctypes.c_int32]),
    "octavo_cpu_features": (ctypes.c_char_p, []),
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
    "octavo_sample": (None, [ctypes.c_void_p, ctypes.POINTER(NativeSampleBatch)]),
    "octavo_sample_scratch": (ctypes.c_int64, [ctypes.c_int32]),
    "octavo_kv_block_bytes": (ctypes.c_int64, [ctypes.c_int32] * 4),
    "octavo_kv_read": (
        None,
        [ctypes.POINTER(KV), ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "octavo_attention_scratch_bytes": (ctypes.c_int64, [ctypes.c_int32] * 4),
}


def library_path() -> Path:
    """Where an installation puts the library (native/CMakeLists.txt)."""
    return Path(__file__).parent / NAME


@cache
def load_library() -> ctypes.CDLL:
    """The library, loaded once per process. ConfigError says why it cannot be: not built, or of another version."""
    path = library_path()
    if path.exists():
        return _load(path)
    raise ConfigError(
        f"the native library {NAME} is not part of this installation, because no C++20 compiler worked when it was "
        "made. Install one (Debian, Ubuntu: apt install g++), then Octavo again: `make serve` in its directory, or "
        "`pip install --force-reinstall --no-deps` of what you installed"
    )


def _load(path: Path) -> ctypes.CDLL:
    try:
        _refuse_if_cut_short(path)
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


def _refuse_if_cut_short(path: Path) -> None:
    """OSError for an ELF file that ends before its section headers, which linkers put last. The system's loader maps
    such a file all the same, and the process dies of it. Offsets: System V ABI, "ELF header", 64 bits.
    """
    with path.open("rb") as file:
        header = file.read(64)
    if header[:5] != b"\x7fELF\x02":
        return  # not Linux's kind, or not a library at all: the loader says so
    (table,) = struct.unpack_from("<Q", header.ljust(64, b"\0"), 40)
    entry_bytes, entries = struct.unpack_from("<HH", header.ljust(64, b"\0"), 58)
    if path.stat().st_size < max(table + entry_bytes * entries, 64):
        raise OSError("the file is cut short")
