"""ARC, the format of crawls before WARC: pages as their main text."""

from __future__ import annotations

from typing import Any

from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.bounded import Bounded
from phrasemem.pipeline.read.document import Document, LeftOut, Records
from phrasemem.pipeline.read.opening import opened
from phrasemem.pipeline.read.source import Source
from phrasemem.pipeline.read.webpage import HTTP_OK, document_of_payload


def read_arc(source: Source, corpus: Corpus) -> Records:
    """Read the records of an ARC file; fastwarc knows WARC alone, so warcio reads this one."""
    where, errors = "record 0", 0
    with opened(source) as stream:
        records = ArchiveIterator(_ShortLines(stream, source.max_record_bytes))
        records.INC_RECORD = ""  # what it would print; it is counted instead
        try:
            for ordinal, record in enumerate(records):
                if records.err_count > errors:
                    errors = records.err_count
                    yield LeftOut("bad-record", f"after {where}", detail="its length is wrong")
                where = f"record {ordinal}"
                yield _read(record, f"{source.name}#{ordinal}", where, source, corpus)
        except (ArchiveLoadFailed, ValueError) as error:
            yield LeftOut("bad-record", f"after {where}", detail=str(error))


class _ShortLines(Bounded):
    """Refuses what has no line end for too long: warcio would hold it all."""

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes."""
        data = super().read(size)
        last = data.rfind(b"\n")
        if last >= 0:
            self.record_ended(len(data) - last)
        return data


def _read(
    record: Any, identity: str, where: str, source: Source, corpus: Corpus
) -> Document | LeftOut:
    http = record.http_headers
    declared = record.rec_headers.get_header("length")
    if record.rec_type == "response" and not (declared.isdecimal() and record.length):
        return LeftOut("bad-length", where, detail=f"length {declared!r}")
    if record.rec_type != "response" or http is None:
        return LeftOut("no-page", where, bad=False)
    limit = source.max_record_bytes
    payload = record.content_stream().read(limit + 1)
    if len(payload) > limit:
        return LeftOut("record-too-long", where)
    if len(payload) < record.payload_length and not http.get_header("Content-Encoding"):
        return LeftOut("record-cut-short", where, detail=f"{len(payload)} bytes")
    if http.get_statuscode() != str(HTTP_OK):
        return LeftOut("http-status", where, bad=False)
    content_type = http.get_header("Content-Type") or ""
    return document_of_payload(payload, content_type, None, identity, where, corpus)
