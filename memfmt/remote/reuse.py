"""Takes what is on this machine already from other memories."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from phrasemem.memfmt.adapters import FileEntry, entry_of
from phrasemem.memfmt.added_payload import read_added
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.files import read_manifest


def known_files(memories: Sequence[Path]) -> dict[str, Path]:
    """Return the files of memories on this machine by their sha256."""
    known: dict[str, Path] = {}
    for memory in memories:
        try:
            manifest = read_manifest(memory)
            added = read_added(memory, manifest)
        except (PhraseMemError, OSError):
            continue  # nothing to reuse there
        for listing in (manifest, *added):
            known |= {info.sha256: memory / name for name, info in listing.paths.items()}
    return known


def copied(entry: FileEntry, target: Path, known: dict[str, Path]) -> bool:
    """Take a file from a memory on this machine, if one has it and it is still right."""
    source = known.get(entry.sha256)
    if source is None or not source.is_file() or source.stat().st_size != entry.bytes:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return entry_of(target) == entry
