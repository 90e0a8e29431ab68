"""Puts the front end together from a configuration: the model's files, its text, and a client whose engine has not been
started. What `serve` opens to the network and `run` asks directly.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from octavo.config import EngineConfig, ServerConfig, parse_bytes

if TYPE_CHECKING:
    from octavo.server.deps import Deps
    from octavo.service.early import EarlyEngine

ENGINE_FACTORY = "octavo.build:build_engine"


def default_name(model: str, path: Path) -> str:
    """The model's name in the API: as it was asked for, but for a local path only its last part without `.gguf`."""
    return path.name.removesuffix(".gguf") if Path(model).exists() else model


def front_end(
    engine: EngineConfig,
    server: ServerConfig,
    progress: Callable[[str, int, int], None],
    early: EarlyEngine | None = None,
) -> Deps:
    """Fetch the model if it is not here, and read its text; `progress(label, done, total)` hears of both and later
    of the engine's loading. StoreError, CheckpointError or UnsupportedModel. Without numpy: weights stay out."""
    from octavo.checkpoint.store import Store, default_store_dir
    from octavo.service.client import EngineClient
    from octavo.text.load import load_text

    path = Store(default_store_dir()).resolve(engine.model, offline=engine.offline, progress=progress)
    text = load_text(path)
    # The fields of build.BuildOrder, which lives beyond numpy.
    order = {"config": msgspec.to_builtins(engine), "path": str(path), "eos_ids": sorted(text.eos_ids)}
    client = EngineClient(ENGINE_FACTORY, order, on_progress=progress, queue=engine.queue, early=early)

    from octavo.server.deps import Deps  # while an early engine loads

    return Deps(
        client=client,
        text=text,
        model=server.served_name or default_name(engine.model, path),
        root=engine.model,
        max_body=parse_bytes(server.max_body),
    )
