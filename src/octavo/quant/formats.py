"""The table of tensor storage formats: how many elements and bytes a block has, and its GGML type number.

Pure data, without numpy, so that the front end may read file headers. Decoding lives in `dequantize.py`.
Source of the GGML numbers and block sizes: the GGUF specification (ggml/docs/gguf.md) and ggml-common.h.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """One way to store numbers: rows are cut into blocks of `block` elements, each stored in `block_bytes`.

    `ggml` is the GGML type number by which GGUF files name it. `plain` formats hold one IEEE or bfloat16
    number per block and need no decoding.
    """

    name: str
    ggml: int
    block: int
    block_bytes: int

    @property
    def plain(self) -> bool:
        return self.block == 1

    def row_bytes(self, elements: int) -> int:
        """Bytes of a row of `elements`. ValueError when the row is not a whole number of blocks."""
        blocks, rest = divmod(elements, self.block)
        if rest:
            raise ValueError(f"a row of {elements} elements is no multiple of the {self.name} block of {self.block}")
        return blocks * self.block_bytes


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("f32", 0, 1, 4),
        Format("f16", 1, 1, 2),
        Format("q4_0", 2, 32, 18),
        Format("q4_1", 3, 32, 20),
        Format("q5_0", 6, 32, 22),
        Format("q5_1", 7, 32, 24),
        Format("q8_0", 8, 32, 34),
        Format("q2_k", 10, 256, 84),
        Format("q3_k", 11, 256, 110),
        Format("q4_k", 12, 256, 144),
        Format("q5_k", 13, 256, 176),
        Format("q6_k", 14, 256, 210),
        Format("iq2_xxs", 16, 256, 66),
        Format("iq2_xs", 17, 256, 74),
        Format("iq3_xxs", 18, 256, 98),
        Format("iq1_s", 19, 256, 50),
        Format("iq4_nl", 20, 32, 18),
        Format("iq3_s", 21, 256, 110),
        Format("iq2_s", 22, 256, 82),
        Format("iq4_xs", 23, 256, 136),
        Format("f64", 28, 1, 8),
        Format("iq1_m", 29, 256, 56),
        Format("bf16", 30, 1, 2),
        Format("tq1_0", 34, 256, 54),
        Format("tq2_0", 35, 256, 66),
        Format("mxfp4", 39, 32, 17),
        Format("nvfp4", 40, 64, 36),
    )
}
"""Every format Octavo can read, by name: the plain floats and all GGML types that the `gguf` package decodes."""

GGML_FORMATS: dict[int, Format] = {f.ggml: f for f in FORMATS.values()}
"""The same formats by GGML type number."""
