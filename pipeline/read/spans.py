"""Cutting one large file into spans, so that it feeds all workers.

A span never changes what is read: a record belongs to the span in which it starts, its id names
its place in the file, and the spans follow each other in the order of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phrasemem.pipeline.config import Format
from phrasemem.pipeline.read.opening import BZIP2, GZIP, compression
from phrasemem.pipeline.read.source import Source

Span = tuple[int, int]
Spans = list[Span | None]
_WHOLE: Spans = [None]
# Each reader of a compressed WARC file expands what stands before its span.
_MOST_WARC_SPANS = 8


def spans_of(source: Source, format: Format, split_bytes: int) -> Spans:
    """Return the spans of a file in order; ``[None]`` if it is read as a whole.

    Parameters
    ----------
    source : Source
    format : Format
    split_bytes : int
        About the size of a span, of the file as it is stored.
    """
    size = source.size()
    cut = _CUTS.get(format)
    if size is None or size <= split_bytes or cut is None:
        return _WHOLE
    return cut(source, size, split_bytes)


def _even(size: int, step: int) -> Spans:
    return [(start, min(size, start + step)) for start in range(0, size, step)]


def _lines(source: Source, size: int, step: int) -> Spans:
    """Cut anywhere: a reader goes on to the next line."""
    return _even(size, step) if compression(source.magic()) is None else _WHOLE


def _text(source: Source, size: int, step: int) -> Spans:
    from phrasemem.pipeline.read.plain import DOCUMENT_BYTES, wide_encoding

    if wide_encoding(source) is not None:
        return _WHOLE
    return _lines(source, size, -(-step // DOCUMENT_BYTES) * DOCUMENT_BYTES)


def _warc(source: Source, size: int, step: int) -> Spans:
    """Cut anywhere: a reader finds its first record by passing over those before."""
    if compression(source.magic()) not in (None, GZIP):
        return _WHOLE
    return _even(size, max(step, -(-size // _MOST_WARC_SPANS)))


def _mediawiki(source: Source, size: int, step: int) -> Spans:
    """Cut anywhere, or, in a dump of many bzip2 streams, where one begins with a page."""
    from phrasemem.pipeline.read.mediawiki_pages import begins_with_page
    from phrasemem.pipeline.read.members import find_bzip2_member

    if compression(source.magic()) != BZIP2:
        return _lines(source, size, step)
    cuts = [0]
    with source.open() as file:
        while cuts[-1] + step < size:
            cut = find_bzip2_member(file, cuts[-1] + step, begins_with_page)
            if cut is None:
                break
            cuts.append(cut)
    return [*zip(cuts, [*cuts[1:], size], strict=True)] if len(cuts) > 1 else _WHOLE


def _parquet(source: Source, size: int, step: int) -> Spans:
    """Cut between row groups."""
    return _grouped(_sizes(source, _row_groups), step)


def _arrow(source: Source, size: int, step: int) -> Spans:
    """Cut between the record batches of a file; a stream has no list of them."""
    return _grouped(_sizes(source, _batches), step)


def _grouped(sizes: Sequence[int], most: int) -> Spans:
    """Return runs of ordinals that are at least ``most`` bytes together."""
    spans: Spans = []
    start = total = 0
    for ordinal, size in enumerate(sizes):
        total += size
        if total >= most:
            spans.append((start, ordinal + 1))
            start, total = ordinal + 1, 0
    if start < len(sizes):
        spans.append((start, len(sizes)))
    return spans or _WHOLE


def _sizes(source: Source, sizes_of: Callable[[Any], list[int]]) -> list[int]:
    """Return the stored bytes of each row group or batch; none where the file is not sound."""
    import pyarrow as pa

    with source.open() as file:
        try:
            return sizes_of(file)
        except (pa.ArrowException, OSError):
            return []


def _row_groups(file: Any) -> list[int]:
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file)
    groups = [metadata.row_group(ordinal) for ordinal in range(metadata.num_row_groups)]
    return [
        max(0, sum(group.column(one).total_compressed_size for one in range(group.num_columns)))
        for group in groups
    ]


def _batches(file: Any) -> list[int]:
    import pyarrow as pa

    count = pa.ipc.open_file(file).num_record_batches
    return [file.seek(0, 2) // max(1, count)] * count


_CUTS: dict[Format, Callable[[Source, int, int], Spans]] = {
    "arrow": _arrow,
    "arxiv-jsonl": _lines,
    "jsonl": _lines,
    "mediawiki-xml": _mediawiki,
    "parquet": _parquet,
    "s2orc-jsonl": _lines,
    "text": _text,
    "warc": _warc,
}
