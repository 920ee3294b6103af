"""Memories that are named by a URL: fetched once into the cache folder, then opened from there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from filelock import FileLock

from phrasemem.artifacts import cache_dir
from phrasemem.memfmt import durable
from phrasemem.memfmt.manifest import MANIFEST_NAME
from phrasemem.memfmt.remote.lookup import resolve
from phrasemem.memfmt.remote.opening import open_store
from phrasemem.memfmt.remote.pull import pull
from phrasemem.memfmt.remote.reference import Reference, is_url
from phrasemem.memfmt.remote.retry import Patience
from phrasemem.memfmt.remote.version import Version

__all__ = ["is_url", "open_memory_path"]

_DIGITS = 32


def open_memory_path(
    source: str, *, cache: Path | None = None, patience: Patience | None = None
) -> Path:
    """Return the folder of a published memory, fetching it if it is not here yet.

    An alias such as ``latest`` is looked up each time. A version never changes, so one that was
    fetched before is opened without asking the registry.

    Parameters
    ----------
    source : str
        ``REGISTRY[@VERSION]``.
    cache : Path, optional
        :func:`phrasemem.artifacts.cache_dir` if not given.
    patience : Patience, optional

    Returns
    -------
    Path
        Complete and verified when it arrived. Not to be changed: others may have it open.

    Raises
    ------
    PhraseMemError
        As :func:`phrasemem.memfmt.remote.pull.pull`.

    Notes
    -----
    Safe between threads and processes: one fetches, the others wait.
    """
    reference = Reference.parse(source)
    base = (cache or cache_dir()) / "memories"
    note = base / "versions" / f"{_short(str(reference))}.json"
    if (folder := _noted(note, base)) is not None:
        return folder
    patience = patience or Patience()
    with open_store(reference.registry) as store:
        version = resolve(store, reference.name, patience)
    folder = _folder(base, version)
    base.mkdir(parents=True, exist_ok=True)
    with FileLock(base / f".{folder.name}.fetching"):
        if not (folder / MANIFEST_NAME).is_file():
            exact = Reference(reference.registry, version.version)
            others = [path.parent for path in sorted(base.glob(f"[!.]*/{MANIFEST_NAME}"))]
            pull(str(exact), folder, patience=patience, reuse=others)
    if version.version == reference.name:
        _write_note(note, folder)
    return folder


def _folder(base: Path, version: Version) -> Path:
    return base / version.content[:_DIGITS]


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _noted(note: Path, base: Path) -> Path | None:
    """Return the folder of a version that was fetched before, if it is still there."""
    try:
        folder = base / str(json.loads(note.read_bytes())["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return folder if (folder / MANIFEST_NAME).is_file() else None


def _write_note(note: Path, folder: Path) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    staging = durable.staging_for(note)
    durable.write_file(staging, json.dumps({"folder": folder.name}).encode())
    staging.replace(note)
