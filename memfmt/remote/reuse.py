"""Takes what is on this machine already from other memories."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from phrasemem.memfmt.adapters import FileEntry, entry_of
from phrasemem.memfmt.added_payload import read_added
from phrasemem.memfmt.additions import addition_files
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.files import read_manifest


def known_files(memories: Sequence[Path]) -> dict[str, Path]:
    """Return the files of memories on this machine, additions included, by their sha256."""
    known: dict[str, Path] = {}
    for memory in memories:
        for listed in (_own_files, _added_files):
            try:
                known |= {sha256: memory / name for name, sha256 in listed(memory).items()}
            except (PhraseMemError, OSError):
                break  # nothing to reuse there
    return known


def _own_files(memory: Path) -> dict[str, str]:
    return {name: info.sha256 for name, info in read_manifest(memory).files.items()}


def _added_files(memory: Path) -> dict[str, str]:
    files = addition_files(memory, read_added(memory, read_manifest(memory)))
    return {name: entry.sha256 for name, entry in files.items()}


def copied(entry: FileEntry, target: Path, known: dict[str, Path]) -> bool:
    """Take a file from a memory on this machine, if one has it and it is still right."""
    source = known.get(entry.sha256)
    if source is None or not source.is_file() or source.stat().st_size != entry.bytes:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return entry_of(target) == entry
