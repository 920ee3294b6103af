"""Which key ends where in token sequences: the longest match at every position."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt import kernels, threads
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.keys import N_MAX_LIMIT
from phrasemem.memfmt.layout import RowLayout
from phrasemem.memfmt.mapped import SMALL_BATCH, MappedRows
from phrasemem.memfmt.table import Table

_SHARE = 4096
"""Positions that are worth a thread of their own."""

_NO_LIMIT = np.empty((0, 0), dtype=np.uint8)


class Match(NamedTuple):
    """Longest keys by position.

    Parameters
    ----------
    rows : (B, T - start) int64
        -1 where no key ends.
    lengths : (B, T - start) uint8
        0 where no key ends, and for the root.
    """

    rows: NDArray[np.int64]
    lengths: NDArray[np.uint8]


def find_candidates(
    table: Table,
    tokens: NDArray[np.int64],
    start: int = 0,
    *,
    shortest: int = 1,
    longest: NDArray[np.uint8] | None = None,
) -> Match:
    """Find, in RAM alone, the longest key that seems to end at each position.

    A candidate is wrong about once in a thousand million probes; its row tells, see
    :func:`agrees`.

    Parameters
    ----------
    table : Table
    tokens : (B, T) int64
        A negative id ends the history before it.
    start : int
        First position to answer; those before it are history.
    shortest : int
        Shorter keys are not considered; 0 admits the root.
    longest : (B, T - start) uint8, optional
        Longer keys are not considered at that position.

    Returns
    -------
    Match
    """
    tokens, shape = _checked(tokens, start)
    match, limit = _empty(shape), _NO_LIMIT if longest is None else longest
    kernels.find_longest(
        table.address, tokens, start, shortest, limit, kernels.BY_TAIL, match.rows, match.lengths
    )
    return match


def find_exact(
    table: Table, rows: MappedRows, tokens: NDArray[np.int64], start: int = 0, *, shortest: int = 1
) -> Match:
    """Find the longest key that ends at each position, by the tokens in the rows.

    Parameters
    ----------
    table : Table
    rows : MappedRows
        The ones of the table.
    tokens, start, shortest
        As for :func:`find_candidates`.

    Returns
    -------
    Match
    """
    tokens, shape = _checked(tokens, start)
    if shape[0] * shape[1] > SMALL_BATCH:
        return _search_shared(table, tokens, start, shape, shortest)
    match = _empty(shape)
    asked, found = (table.address, tokens, start, shortest), (match.rows, match.lengths)
    wrong = kernels.find_and_settle(*asked, _NO_LIMIT, *found, rows.announced())
    while wrong < 0:
        # The rows of a few positions may have to be read from the device: all of them at once.
        rows.will_need(match.rows.reshape(-1))
        wrong = kernels.settle(*asked, *found, rows.announced())
    return match


def _search_shared(
    table: Table, tokens: NDArray[np.int64], start: int, shape: tuple[int, int], shortest: int
) -> Match:
    """Prove all matches at once, parts of a long sequence or of many in a thread each."""
    match = _empty(shape)
    work = []
    if shape[0] == 1:
        for piece in threads.pieces(shape[1], _SHARE):
            # No key reaches further back than the first position's history.
            first = max(0, start + piece.start - N_MAX_LIMIT)
            part = tokens[:, first : start + piece.stop]
            work.append((part, start + piece.start - first, (slice(None), piece)))
    else:
        for piece in threads.pieces(shape[0], -(-_SHARE // max(shape[1], 1))):
            work.append((tokens[piece], start, (piece, slice(None))))
    threads.run_all(
        [
            partial(
                kernels.find_longest,
                *(table.address, part, begin, shortest, _NO_LIMIT, kernels.BY_ROW),
                *(match.rows[place], match.lengths[place]),
            )
            for part, begin, place in work
        ]
    )
    return match


def _empty(shape: tuple[int, int]) -> Match:
    """Return a match that a kernel is to write."""
    return Match(np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.uint8))


def agrees(
    raw: NDArray[np.uint8],
    layout: RowLayout,
    tokens: NDArray[np.int64],
    ends: NDArray[np.int64],
    lengths: NDArray[np.uint8],
) -> NDArray[np.bool_]:
    """Compare candidates with rows that the caller already holds.

    Parameters
    ----------
    raw : (k, stride) uint8
        Rows of the candidates.
    layout : RowLayout
    tokens : (k, T) int64
        The sequence of each candidate.
    ends : (k,) int64
        Position of each candidate's last token.
    lengths : (k,) uint8
        Length of each candidate.

    Returns
    -------
    (k,) bool
        False where the candidate is wrong: ask again with `longest` below its length.
    """
    stored_lengths, stored = layout.keys(raw)
    offsets = np.arange(layout.n_max)
    positions = ends[:, None] + 1 - lengths[:, None].astype(np.int64) + offsets
    inside = offsets < lengths[:, None]
    context = np.take_along_axis(tokens, np.where(inside, positions, 0), axis=1)
    same = (stored.astype(np.int64) == context) | ~inside
    agree: NDArray[np.bool_] = (stored_lengths == lengths) & same.all(axis=1)
    return agree


def _checked(tokens: NDArray[np.int64], start: int) -> tuple[NDArray[np.int64], tuple[int, int]]:
    if tokens.ndim != 2 or not 0 <= start <= tokens.shape[1]:
        raise PhraseMemError(
            "wrong tokens", expected=f"2 dimensions, at least {start} long", found=tokens.shape
        )
    tokens = np.ascontiguousarray(tokens, dtype=np.int64)
    return tokens, (tokens.shape[0], tokens.shape[1] - start)
