"""WARC and WET: pages of a crawl as their main text, and what a crawl has converted to text."""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterator
from typing import IO, Any

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import (
    DamageError,
    Document,
    LeftOut,
    Records,
    is_of_the_content,
)
from phrasemem.pipeline.read.forward import Forward
from phrasemem.pipeline.read.members import Run, begins, find_all, find_gzip_member
from phrasemem.pipeline.read.opening import GZIP, compression, opened
from phrasemem.pipeline.read.source import Source
from phrasemem.pipeline.read.webpage import HTTP_OK, document_of_payload

_VERSION = b"WARC/"
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_MOST_HEAD = 1 << 16
_PAGES = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.conversion


def read_warc(source: Source, corpus: Corpus) -> Records:
    """Read the records of a span, plain or compressed.

    After a damage the reader goes on with the next record that it finds, where the records are
    not compressed or each is a gzip member of its own, as in the files of crawls. A span is found
    by passing over what stands before it: where a record starts is known from the one before.
    """
    magic = compression(source.magic())
    if magic == GZIP:
        yield from _members(source, corpus)
    elif magic is None:
        yield from _plain(source, corpus)
    else:
        with opened(source) as stream:
            yield from _stream(stream, 0, source, corpus)


def _members(source: Source, corpus: Corpus) -> Records:
    """Read runs of members: one starts with a record, and goes on where a record does."""
    with source.open_seekable() as file:
        size = file.seek(0, io.SEEK_END)
        start: int | None = 0
        while start is not None and start < size and not source.ends_before(start):
            run = Run(file, start, lambda after: begins(file, after, _VERSION))
            try:
                if source.holds(start):
                    yield from _stream(run, start, source, corpus)
                start = run.pass_over()
            except DamageError as damage:
                if source.holds(start):
                    yield damage.as_left_out()
                start = find_gzip_member(file, start + 1, _VERSION)


def _stream(stream: Any, start: int, source: Source, corpus: Corpus) -> Records:
    """Read the records of one compressed stream that stands at a byte of the file."""
    for record in _iterate(Forward(stream), start):
        inner = record.stream_pos
        yield _read(record, f"{start}+{inner}" if inner else str(start), source, corpus)


def _plain(source: Source, corpus: Corpus) -> Records:
    with source.open_seekable() as file, source.open_seekable() as probe:
        size = file.seek(0, io.SEEK_END)
        start: int | None = 0
        while start is not None and start < size and not source.ends_before(start):
            damage = yield from _plain_run(file, probe, start, size, source, corpus)
            if damage is None:
                return
            place, left_out = damage
            if source.holds(place):
                yield left_out
            start = next(find_all(probe, place + 1, b"\n" + _VERSION), None)
            start = None if start is None else start + 1


def _plain_run(
    file: IO[bytes], probe: IO[bytes], start: int, size: int, source: Source, corpus: Corpus
) -> Generator[Document | LeftOut, None, tuple[int, LeftOut] | None]:
    """Read records from a byte up to the first damage; return where and what it is."""
    file.seek(start)
    end = start
    try:
        for record in _iterate(file, start):
            place = record.stream_pos
            if source.ends_before(place):
                return None
            end = _end(record, probe)
            if end > size:
                return place, LeftOut("record-cut-short", f"byte {place}", detail=f"of {end}")
            if source.holds(place):
                yield _read(record, str(place), source, corpus)
    except DamageError as damage:
        return end, LeftOut(damage.reason, f"byte {end}", detail=damage.detail)
    return None


def _iterate(stream: Any, start: int) -> Iterator[WarcRecord]:
    records = ArchiveIterator(stream, parse_http=False, stream_detect=False)
    while True:
        try:
            yield next(records)
        except StopIteration:
            return
        except OSError as error:
            if not is_of_the_content(error):
                raise
            raise DamageError("bad-record", f"byte {start}", str(error)) from error


def _end(record: WarcRecord, probe: IO[bytes]) -> int:
    """Return the byte of a plain file at which a record says that it ends."""
    probe.seek(record.stream_pos)
    head = _HEAD_END.search(probe.read(_MOST_HEAD))
    return int(record.stream_pos + record.content_length + (head.end() if head else 0))


def _read(record: WarcRecord, place: str, source: Source, corpus: Corpus) -> Document | LeftOut:
    where = f"byte {place}"
    if not record.record_type & _PAGES:
        return LeftOut("no-page", where, bad=False)
    length, limit = record.content_length, source.max_record_bytes
    if length > limit:
        return LeftOut("record-too-long", where, detail=f"{length} bytes")
    block = _all(record.reader, length)
    if len(block) < length:
        return LeftOut("record-cut-short", where, detail=f"{len(block)} of {length} bytes")
    identity = f"{source.name}@{place}"
    try:
        record.set_bytes_content(block)
        return _page(record, limit, identity, where, corpus)
    except (OSError, ValueError) as error:
        return LeftOut("bad-record", where, detail=str(error))


def _all(reader: Any, size: int) -> bytes:
    """Return ``size`` bytes, or all there are: one read may give fewer."""
    parts = []
    while size > 0 and (part := reader.read(min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _page(
    record: WarcRecord, limit: int, identity: str, where: str, corpus: Corpus
) -> Document | LeftOut:
    content_type, declared = record.headers.get("Content-Type") or "", None
    if record.is_http:
        record.parse_http(auto_decode="all")
        if record.http_headers.status_code != HTTP_OK:
            return LeftOut("http-status", where, bad=False)
        content_type, declared = record.http_content_type or "", record.http_charset
    payload = _all(record.reader, limit + 1)
    if len(payload) > limit:
        return LeftOut("record-too-long", where, detail="once decoded")
    return document_of_payload(payload, content_type, declared, identity, where, corpus)
