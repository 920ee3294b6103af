"""The held-out documents of a memory: one reader for all that use them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

HELD_OUT_FILE = "heldout.jsonl.zst"


def held_out_lines(memory: Path) -> Iterator[bytes]:
    """Yield the lines of a memory's held-out documents as they stand, each with its line end.

    There are none where the memory has none or was published without them.
    """
    path = memory / HELD_OUT_FILE
    if not path.is_file():
        return
    with (
        path.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as plain,
    ):
        yield from io.BufferedReader(plain)


def held_out_documents(memory: Path) -> Iterator[dict[str, Any]]:
    """Yield the held-out documents: ``id``, ``corpus``, ``kind``, ``text``, ``split``."""
    yield from map(json.loads, held_out_lines(memory))
