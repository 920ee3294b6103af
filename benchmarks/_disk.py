"""Bytes a phrase that a memory takes on disk, by what they are for."""

from __future__ import annotations

from pathlib import Path

from phrasemem.memfmt.files import read_manifest


def bytes_a_phrase(memory: Path) -> dict[str, float]:
    """Return the bytes of each kind of file, but the rows, divided by the number of entries."""
    manifest = read_manifest(memory)
    kinds = {"keys.mdb": "keys and records", "index.arrow": "index"}
    kinds |= {"catalogue.parquet": "catalogue", "heldout.jsonl.zst": "held-out text"}
    found: dict[str, float] = {}
    for name, info in manifest.files.items():
        last = name.rpartition("/")[2]
        if not last.startswith("rows-"):
            kind = kinds.get(last, "other")
            found[kind] = found.get(kind, 0.0) + info.bytes / manifest.entries
    return found
