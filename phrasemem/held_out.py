"""The held-out documents of a memory: one reader for all that use them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

from phrasemem.memfmt.errors import PhraseMemError

HELD_OUT_FILE = "heldout.jsonl.zst"
LONGEST_LINE = 1 << 26
"""Bytes: a few compressed kilobytes could hold one line of gigabytes."""

_TEXTS = ("corpus", "kind", "split", "text")


class HeldOutError(PhraseMemError):
    """Held-out documents that are damaged, or in another form."""


def held_out_lines(memory: Path) -> Iterator[bytes]:
    """Yield the lines of a memory's held-out documents as they stand, each with its line end.

    There are none where the memory has none or was published without them.

    Raises
    ------
    HeldOutError
        If one cannot be read, or lacks something.
    """
    for line, _ in _entries(memory):
        yield line


def held_out_documents(memory: Path) -> Iterator[dict[str, Any]]:
    """Yield the held-out documents: ``id``, ``corpus``, ``kind``, ``text``, ``split``.

    Raises
    ------
    HeldOutError
        As :func:`held_out_lines`.
    """
    for _, document in _entries(memory):
        yield document


def _entries(memory: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    path = memory / HELD_OUT_FILE
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _refused(f"it is no JSON: {error}", f"{path}, line {number}") from error
        if not isinstance(document, dict) or not all(
            isinstance(document.get(name), str) for name in _TEXTS
        ):
            raise _refused(f"it lacks one of {', '.join(_TEXTS)}", f"{path}, line {number}")
        yield line.removesuffix(b"\n") + b"\n", document


def _lines(path: Path) -> Iterator[bytes]:
    if not path.is_file():
        return
    with (
        path.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as plain,
    ):
        reader = io.BufferedReader(plain)
        try:
            while line := reader.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise _refused(f"it has {LONGEST_LINE} bytes or more", path)
                yield line
        except zstandard.ZstdError as error:
            raise _refused(str(error), path) from error


def _refused(message: str, where: object) -> HeldOutError:
    return HeldOutError(f"a held-out document cannot be read: {message}", where=where)
