"""What is added to a finished memory: adapters and payloads, with manifests of their own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from phrasemem.memfmt.adapters import FileEntry, adapter_files, entry_of
from phrasemem.memfmt.added_payload import AddedPayload
from phrasemem.memfmt.manifest import ADDITIONS


def is_addition(name: str) -> bool:
    """Whether a path, relative to the memory, lies where additions are."""
    return name.partition("/")[0] in ADDITIONS


def addition_files(memory: Path, added: Iterable[AddedPayload]) -> dict[str, FileEntry]:
    """List the files of all additions of a memory, their manifests included.

    Adapters are checked against their descriptions here.

    Parameters
    ----------
    memory : Path
    added : iterable of AddedPayload
        As :func:`phrasemem.memfmt.verify.verify` has found them right.

    Returns
    -------
    dict of str to FileEntry
        By path relative to the memory, sorted.

    Raises
    ------
    AdapterFilesError
        If an adapter is damaged.
    """
    files = adapter_files(memory)
    for one in added:
        files[one.description] = entry_of(memory / one.description)
        for name, info in one.paths.items():
            files[name] = FileEntry(bytes=info.bytes, sha256=info.sha256)
    return dict(sorted(files.items()))
