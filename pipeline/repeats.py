"""Stages ``lines`` and ``repeated``: the lines, sentences and long runs of words of many documents.

What stands in many documents of a corpus is a template's, not an author's: bars of links, calls to
subscribe, disclaimers, datelines. Counting is exact, by 64-bit hashes of folded words: pass one
counts a chunk, the merge keeps what is in enough documents, and the stage ``clean`` removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from phrasemem.pipeline.stage import Report, appears
from phrasemem.pipeline.words import (
    Hashes,
    Words,
    gram_hashes,
    members,
    run_hashes,
    split_words,
    tally_documents,
)
from phrasemem.pipeline.words_kernel import LINE

_COUNTS = pa.schema([("hash", pa.uint64()), ("documents", pa.uint32())])
_HASHES = pa.schema([("hash", pa.uint64())])
REMOVED = "\n"
EDGE_WORDS = 2
# The hash of a sentence that repeats as the first, or as the last, of texts.
_EDGES = np.uint64(0x5851F42D4C957F2D), np.uint64(0x14057B7EF767814F)


class Units(NamedTuple):
    """Runs of words that may repeat: first word and number of words of each, and its hash."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    hashes: Hashes


def lines_part(
    folder: Path,
    key: str,
    *,
    source: str,
    share: float,
    span_words: int | None,
    sentence_words: int,
) -> Report:
    """Count in how many documents of one chunk each unit is.

    Parameters
    ----------
    share : float
        Share of the documents that are looked at, by content hash.
    span_words, sentence_words : int
        See :func:`units_of`.

    Returns
    -------
    dict
        ``documents`` (looked at).
    """
    texts = pq.read_table(source, columns=["text"])["text"].to_pylist()
    texts = [text for text in texts if _is_sampled(text, share)]
    words = split_words(texts, fold_digits=True)
    hashes, documents = document_counts(words, units_of(words, span_words, sentence_words))
    table = pa.table([hashes, documents.astype(np.uint32)], schema=_COUNTS)
    with appears(folder / f"{key}.parquet") as temporary:
        pq.write_table(table, temporary, use_dictionary=["documents"], compression="zstd")
    return {"documents": len(texts)}


def repeated_part(
    folder: Path,
    key: str,
    *,
    sources: Sequence[str],
    least: int,
    memory_limit: str,
) -> Report:
    """Merge the counts of a corpus and keep the units of at least ``least`` documents, ascending.

    Returns
    -------
    dict
        ``units``: how many.
    """
    from phrasemem.pipeline.database import connect, stream

    kept = 0
    with (
        connect(folder / f".tmp-duckdb-{key}", memory_limit) as database,
        appears(folder / f"{key}.parquet") as temporary,
        pq.ParquetWriter(temporary, _HASHES) as writer,
    ):
        for batch in stream(database, _MERGE, [list(sources), least]) if sources else ():
            kept += len(batch)
            writer.write_table(pa.Table.from_batches([batch], schema=_HASHES))
    return {"units": kept}


_MERGE = """
SELECT hash FROM read_parquet(?, hive_partitioning = false)
GROUP BY hash HAVING sum(documents) >= ? ORDER BY hash
"""


def read_hashes(path: str) -> Hashes:
    """Read what :func:`repeated_part` wrote."""
    hashes: Hashes = pq.read_table(path)["hash"].to_numpy()
    return hashes


def least_documents(documents: int, least: int, share: float) -> int:
    """Return in how many of so many documents a unit must be to count as repeated."""
    return max(least, int(np.ceil(share * documents)))


def _is_sampled(text: str, share: float) -> bool:
    return share >= 1.0 or xxhash.xxh3_64_intdigest(text.encode()) < share * 2**64


def units_of(words: Words, span_words: int | None, sentence_words: int) -> Units:
    """Return the lines, the sentences and the spans of texts.

    Parameters
    ----------
    span_words : int, optional
        Length of the runs of words that count wherever they are; None for none.
    sentence_words : int
        A sentence that shares its line counts from this length on: shorter ones are fragments
        that an abbreviation cut off, as often as not. A line counts at any length, and the first
        and last sentence of a text from EDGE_WORDS on, as what repeats there: datelines, sources.
    """
    sentences = np.flatnonzero(words.gaps)
    lines = np.flatnonzero(words.gaps == LINE)
    parts = [_runs(words, lines)]
    shared = _runs(words, sentences)
    in_line = np.searchsorted(lines, shared.starts, side="right") - 1
    whole = shared.lengths == parts[0].lengths[in_line] if len(lines) else np.zeros(0, np.bool_)
    parts.append(_subset(shared, ~whole & (shared.lengths >= sentence_words)))
    bounds = words.bounds
    ends = shared.starts + shared.lengths
    edges = np.isin(shared.starts, bounds[:-1]), np.isin(ends, bounds[1:])
    for edge, salt in zip(edges, _EDGES, strict=True):
        own = _subset(shared, edge & ~whole & (shared.lengths >= EDGE_WORDS))
        parts.append(own._replace(hashes=own.hashes ^ salt))
    if span_words is not None:
        hashes, starts = gram_hashes(words, span_words)
        parts.append(Units(starts, np.full(len(starts), span_words), hashes))
    return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _runs(words: Words, starts: NDArray[np.int64]) -> Units:
    lengths = np.diff(np.append(starts, len(words.hashes)))
    return Units(starts, lengths, run_hashes(words.hashes, starts))


def _subset(units: Units, kept: NDArray[np.bool_]) -> Units:
    return Units(units.starts[kept], units.lengths[kept], units.hashes[kept])


def document_counts(words: Words, units: Units) -> tuple[Hashes, NDArray[np.int64]]:
    """Return the distinct hashes, and in how many texts each is."""
    documents = words.documents[units.starts]
    order = np.argsort(documents, kind="stable")
    counted = tally_documents(units.hashes[order], documents[order])
    return counted.hashes, counted.documents


class Stripped(NamedTuple):
    """Texts without what is repeated, the number of spans removed, and of their characters."""

    texts: list[str]
    spans: int
    chars: int


def strip_repeated(
    texts: Sequence[str],
    repeated: Hashes,
    *,
    span_words: int | None,
    sentence_words: int,
    most: float,
) -> Stripped:
    """Remove the units whose hash is known as repeated; a line end stands where each was.

    What is left of a sentence goes too where it is shorter than ``sentence_words``. A text of
    whose words more than the share ``most`` would go is left whole: it is a copy of another text,
    and left to the search for duplicates, which keeps one.
    """
    if len(repeated) == 0:
        return Stripped(list(texts), 0, 0)
    words = split_words(texts, fold_digits=True)
    marked = _covered(words, units_of(words, span_words, sentence_words), repeated)
    _mark_leftovers(words, marked, sentence_words)
    bounds = words.bounds
    gone = np.diff(np.append(0, np.cumsum(marked))[bounds])
    copies = gone > most * np.diff(bounds)
    marked &= ~copies[words.documents]
    return _cut(texts, words, marked)


def _covered(words: Words, units: Units, repeated: Hashes) -> NDArray[np.bool_]:
    """Whether each word is in a repeated unit."""
    hit = members(units.hashes, repeated)
    change = np.zeros(len(words.hashes) + 1, np.int64)
    np.add.at(change, units.starts[hit], 1)
    np.add.at(change, units.starts[hit] + units.lengths[hit], -1)
    return np.cumsum(change)[:-1] > 0


def _mark_leftovers(words: Words, marked: NDArray[np.bool_], shortest: int) -> None:
    starts = np.flatnonzero(words.gaps)
    if len(starts) == 0:
        return
    gone = np.add.reduceat(marked, starts, dtype=np.int64)
    lengths = np.diff(np.append(starts, len(marked)))
    marked |= np.repeat((gone > 0) & (lengths - gone < shortest), lengths)


def _cut(texts: Sequence[str], words: Words, marked: NDArray[np.bool_]) -> Stripped:
    """Cut the runs of marked words out, with the marks that hang on them."""
    before = np.append(False, marked[:-1]) & (words.documents == np.roll(words.documents, 1))
    after = np.append(marked[1:], False) & (words.documents == np.roll(words.documents, -1))
    firsts, lasts = np.flatnonzero(marked & ~before), np.flatnonzero(marked & ~after)
    found = list(texts)
    pieces: dict[int, list[tuple[int, int]]] = {}
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        document = int(words.documents[first])
        offset = int(words.offsets[document])
        span = int(words.starts[first]) - offset, int(words.ends[last]) - offset
        pieces.setdefault(document, []).append(span)
    chars = 0
    for document, spans in pieces.items():
        found[document] = _without(texts[document], spans)
        chars += len(texts[document]) - len(found[document])
    return Stripped(found, len(firsts), chars)


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Leave spans out, and the marks next to them as far as the next letter or space."""
    kept, place = [], 0
    for first, last in spans:
        start, end = max(first, place), last
        while start > place and _is_mark(text[start - 1]):
            start -= 1
        while end < len(text) and _is_mark(text[end]):
            end += 1
        kept.append(text[place:start])
        place = end
    kept.append(text[place:])
    return REMOVED.join(kept)


def _is_mark(character: str) -> bool:
    return not (character.isspace() or character.isalnum())
