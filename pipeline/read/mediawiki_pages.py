"""The pages of a MediaWiki dump as bytes, found by their tags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from phrasemem.pipeline.read.document import DamageError, LeftOut
from phrasemem.pipeline.read.members import Run, find_bzip2_member
from phrasemem.pipeline.read.opening import BZIP2, compression, opened
from phrasemem.pipeline.read.source import Source

OPEN, CLOSE = b"<page>", b"</page>"
_BLOCK = 1 << 20
_NAME = re.compile(rb"<title>([^<]{0,200})</title>")
_NAME_WITHIN = 4096

RawPages = Iterator[bytes | LeftOut]


def pages_of(source: Source) -> RawPages:
    """Yield the ``<page>`` elements that start in the span of a source.

    The text of a page is escaped, so that the tags of a page stand nowhere else. A span of a dump
    that is many bzip2 streams is made of the streams that start in it.
    """
    magic = compression(source.magic())
    if magic == BZIP2:
        yield from _of_streams(source)
        return
    with opened(source) as file:
        if source.start:
            file.seek(source.start)
        yield from _scan(file.read1, source.start, source.ends_before, source.max_record_bytes)


def begins_with_page(content: bytes) -> bool:
    """Whether a dump can be entered at a bzip2 stream with this content."""
    return content.lstrip().startswith(OPEN)


def _of_streams(source: Source) -> RawPages:
    with source.open_seekable() as file:
        start: int | None = source.start
        while start is not None and not source.ends_before(start):
            run = Run(file, start, source.ends_before, bzip2=True)
            try:
                yield from _scan(run.read, 0, lambda _: False, source.max_record_bytes)
                return
            except DamageError as damage:
                yield damage.as_left_out()
                start = find_bzip2_member(file, run.member.start + 1, begins_with_page)


def name_of(page: bytes | bytearray) -> str:
    """Return where a page is, in words."""
    title = _NAME.search(page, 0, _NAME_WITHIN)
    return f"page {title[1].decode('utf-8', 'replace')!r}" if title else "a page without title"


def _scan(
    read: Callable[[int], bytes],
    position: int,
    ends_before: Callable[[int], bool],
    limit: int,
) -> RawPages:
    """Cut a stream, which starts at byte ``position``, into pages of up to ``limit`` bytes."""
    buffer = bytearray()
    while block := read(_BLOCK):
        buffer += block
        while True:
            start = buffer.find(OPEN)
            # A tag may stand across two blocks.
            passed = start if start >= 0 else max(0, len(buffer) - len(OPEN) + 1)
            position += passed
            del buffer[:passed]
            if start < 0:
                break
            if ends_before(position):
                return
            found = _first_page(buffer, limit)
            if found is None:
                break
            page, size = found
            yield page
            position += size
            del buffer[:size]
    if buffer.startswith(OPEN):
        yield LeftOut("page-cut-short", name_of(buffer))


def _first_page(buffer: bytearray, limit: int) -> tuple[bytes | LeftOut, int] | None:
    """Return the page at the start of a buffer and its length, or None if it goes on."""
    stop = buffer.find(CLOSE)
    again = buffer.find(OPEN, len(OPEN), stop if stop >= 0 else len(buffer))
    if again >= 0:
        reason = "page-cut-short" if again <= limit else "record-too-long"
        return LeftOut(reason, name_of(buffer)), again
    if stop >= 0 and stop + len(CLOSE) <= limit:
        return bytes(buffer[: stop + len(CLOSE)]), stop + len(CLOSE)
    if stop >= 0 or len(buffer) > limit:
        return LeftOut("record-too-long", name_of(buffer)), len(OPEN)
    return None
