"""Lines of a file with the byte at which each starts; a line that is too long takes no memory."""

from __future__ import annotations

import io
from collections.abc import Iterator

from phrasemem.pipeline.read.opening import compression, opened
from phrasemem.pipeline.read.source import Source

_SKIP = 1 << 20


def lines_of(source: Source) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines that start in the span of a source.

    Yields
    ------
    (int, bytes or None)
        Byte of the expanded file at which the line starts; the line with its end, or None where
        it is longer than ``max_record_bytes``.
    """
    with opened(source) as file:
        offset = 0
        if source.start:
            # From the byte before: a span may start exactly at a line.
            file.seek(source.start - 1)
            offset = source.start - 1 + _skip_line(file)
        while not source.ends_before(offset):
            line = file.readline(source.max_record_bytes + 1)
            if not line:
                return
            if len(line) > source.max_record_bytes:
                rest = 0 if line.endswith(b"\n") else _skip_line(file)
                yield offset, None
                offset += len(line) + rest
            else:
                yield offset, line
                offset += len(line)


def _skip_line(file: io.BufferedReader) -> int:
    """Go to the start of the next line; return how many bytes that is."""
    skipped = 0
    while part := file.readline(_SKIP):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def is_plain(source: Source) -> bool:
    """Whether the bytes of the file are its lines: a compressed file cannot be entered midway."""
    return compression(source.magic()) is None
