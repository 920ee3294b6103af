"""Which keys occur in a text: all of them, nested ones too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phrasemem.memfmt.keys import SHORTEST_PHRASE
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record


@dataclass(frozen=True)
class Occurrence:
    """A key of a memory inside a token sequence.

    Parameters
    ----------
    start : int
        Position of its first token.
    tokens : tuple of int
    row : int
    record : Record
    """

    start: int
    tokens: tuple[int, ...]
    row: int
    record: Record


def find_occurrences(
    reader: MemoryReader, tokens: Sequence[int], *, shortest: int = SHORTEST_PHRASE
) -> list[Occurrence]:
    """Find every key that occurs in `tokens`, by position, shorter keys first.

    Parameters
    ----------
    reader : MemoryReader
    tokens : sequence of int
    shortest : int
        1 finds single tokens that have rows too.

    Returns
    -------
    list of Occurrence
        Without the root.
    """
    spans = [
        (start, tuple(tokens[start : start + length]))
        for start in range(len(tokens))
        for length in range(max(shortest, 1), min(reader.n_max, len(tokens) - start) + 1)
    ]
    rows = reader.get_many([key for _, key in spans]).tolist()
    found = []
    for (start, key), row in zip(spans, rows, strict=True):
        record = reader.record(key) if row >= 0 else None
        if record is not None:
            found.append(Occurrence(start, key, row, record))
    return found
