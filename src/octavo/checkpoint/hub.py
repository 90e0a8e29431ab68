"""Pulling from a Hugging Face model hub: which files of a repository are needed, and fetching them resumably.

`huggingface_hub` does the transfer and is imported only here and only then.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.checkpoint.installed import Manifest, StoredModel, place
from octavo.checkpoint.transfer import Progress, bytes_in, disk_errors, require_space, watched
from octavo.errors import StoreError

REFERENCE = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?::(?P<file>[^:\\]+\.gguf))?", re.ASCII)

# Beside the weights: config, tokenizer and chat template.
SIDE_FILES = re.compile(r"[^/]*\.(json|jinja)|tokenizer\.model|merges\.txt|vocab\.txt")
# Mistral's repositories hold the same weights twice; these are the copy in the other layout.
WEIGHTS = re.compile(r"(?!consolidated)[^/]*\.safetensors")


@dataclass(frozen=True, slots=True)
class HubReference:
    """`org/name`, or `org/name:file.gguf` for one GGUF file of the repository."""

    repo: str
    file: str | None

    @property
    def name(self) -> str:
        return self.repo if self.file is None else f"{self.repo}:{self.file}"

    @classmethod
    def parse(cls, name: str) -> HubReference | None:
        match = REFERENCE.fullmatch(name)
        return match and cls(match["repo"], match["file"])


def pull_hub_model(
    root: Path, partial: Path, reference: HubReference, progress: Progress, endpoint: str | None = None
) -> StoredModel:
    """Fetch the needed files into the store; the caller holds the lock. Files that an earlier, broken pull left
    whole in `partial` are not fetched again.

    `endpoint` is another hub's URL. StoreError when there is no network, no such repository or file, no
    permission, or no space.
    """
    info = _ask_hub(reference, endpoint)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    wanted = needed_files(reference, list(sizes))
    total = sum(sizes[file] for file in wanted)
    require_space(partial, total - bytes_in(partial), reference.name)
    with disk_errors(root, total, reference.name):
        for file in wanted:
            (partial / file).parent.mkdir(parents=True, exist_ok=True)
        with watched(partial, f"Downloading {reference.name}", total, progress):
            _fetch(reference, info.sha, wanted, partial, endpoint)
        _remove_all_but(partial, wanted)
        manifest = Manifest(
            name=reference.name,
            file=wanted[0] if wanted[0].endswith(".gguf") else "",
            bytes=bytes_in(partial),
            license=_license(info),
            source=f"{reference.repo} at {(info.sha or 'unknown')[:12]}",
        )
        return place(root, partial, manifest)


def needed_files(reference: HubReference, files: list[str]) -> list[str]:
    """Of a repository's `files`: the named GGUF, or safetensors with config and tokenizer, or the only GGUF."""
    ggufs = [file for file in files if file.endswith(".gguf")]
    if reference.file is not None:
        if reference.file not in files:
            raise StoreError(f"{reference.repo} has no file {reference.file}. {_choices(reference, ggufs)}")
        return [reference.file]
    if any(WEIGHTS.fullmatch(file) for file in files):
        return [file for file in files if WEIGHTS.fullmatch(file) or SIDE_FILES.fullmatch(file)]
    if len(ggufs) == 1:
        return ggufs
    raise StoreError(f"{reference.repo} holds no safetensors weights. {_choices(reference, ggufs)}")


def _choices(reference: HubReference, ggufs: list[str]) -> str:
    if not ggufs:
        return "It has no GGUF file either; other formats are not read."
    shown = ", ".join(f"{reference.repo}:{file}" for file in ggufs[:8])
    return f"Its GGUF files are: {shown}{', ...' if len(ggufs) > 8 else ''}"


def _ask_hub(reference: HubReference, endpoint: str | None) -> Any:
    from huggingface_hub import HfApi

    try:
        return HfApi(endpoint=endpoint).model_info(reference.repo, files_metadata=True)
    except Exception as error:  # which network library the hub client uses, and so raises from, varies by version
        raise _hub_failure(reference, error) from error


def _fetch(reference: HubReference, revision: str, files: list[str], partial: Path, endpoint: str | None) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()  # we show our own
    for file in files:
        try:
            hf_hub_download(reference.repo, file, revision=revision, local_dir=partial, endpoint=endpoint)
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk's, not the network's
            raise _hub_failure(reference, error) from error


def _hub_failure(reference: HubReference, error: Exception) -> StoreError:
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, GatedRepoError):
        return StoreError(f"{reference.repo} wants its licence accepted: do so on its hub page, then `hf auth login`.")
    if isinstance(error, RepositoryNotFoundError | HFValidationError):
        return StoreError(f"{reference.repo}: no such model on the hub, or it is private (then: `hf auth login`).")
    return StoreError(
        f"{reference.name}: the model hub cannot be reached ({first_line}). Check the network and pull again, which "
        "resumes; or copy the model's files here by other means and give their path."
    )


def _remove_all_but(directory: Path, wanted: list[str]) -> None:
    """Drop the hub client's bookkeeping, and files of an earlier pull that are wanted no more."""
    keep = {directory / file for file in wanted}
    for path in directory.iterdir():
        if path.is_dir() and not any(path in file.parents for file in keep):
            shutil.rmtree(path)
        elif path.is_file() and path not in keep:
            path.unlink()


def _license(info: Any) -> str:
    for tag in info.tags or ():
        if tag.startswith("license:"):
            return str(tag.removeprefix("license:"))
    return "unknown"
