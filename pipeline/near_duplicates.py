"""Near duplicates: MinHash signatures of word shingles, banded, verified, and grouped.

Broder 1997 (shingles, resemblance), and locality-sensitive hashing by bands as in Leskovec,
Rajaraman and Ullman, *Mining of Massive Datasets*, 3.4. The signatures are rensa's: without bias,
compiled, of hashes that are computed already, and the same for every number of threads. datasketch
takes 1.3 us a shingle where rensa takes 0.02-0.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phrasemem.pipeline.words import Hashes, Words, gram_hashes

PERMUTATIONS = 128
SHINGLE = 5
_SEED = 1
# A pair at the threshold shares a band, and so is compared, with at least this chance.
_RECALL = 0.995
SIGNATURE_BYTES = 4 * PERMUTATIONS
_STEP = np.uint64(0x9E3779B97F4A7C15)
_BATCH = 1 << 14


def algorithm() -> dict[str, Any]:
    """Return what signatures depend on besides the text."""
    from importlib.metadata import version

    return {"rensa": version("rensa"), "permutations": PERMUTATIONS, "shingle": SHINGLE}


def signatures_of(words: Words) -> NDArray[np.uint32]:
    """Return the MinHash signature of each text: (texts, PERMUTATIONS) uint32.

    The shingles are runs of SHINGLE words; a shorter text is one shingle. A text without words
    has the signature of the empty set, whose values are all 2**32 - 1.
    """
    from rensa import RMinHash

    bounds = words.bounds
    hashes, starts = gram_hashes(words, SHINGLE)
    rows = np.searchsorted(starts, bounds)
    short = np.flatnonzero((np.diff(rows) == 0) & (np.diff(bounds) > 0))
    at = rows[short]
    own = [words.hashes[bounds[text] : bounds[text + 1]].sum() for text in short.tolist()]
    hashes = np.insert(hashes, at, np.array(own, np.uint64))
    rows = rows + np.searchsorted(short, np.arange(len(rows)))
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        np.ascontiguousarray(hashes), rows.astype(np.uint64), PERMUTATIONS, _SEED
    )
    return np.array(matrix.to_rows(), np.uint32).reshape(len(rows) - 1, PERMUTATIONS)


def as_binary(signatures: NDArray[np.uint32]) -> pa.Array:
    """Return signatures as a column of SIGNATURE_BYTES bytes a text."""
    data = pa.py_buffer(np.ascontiguousarray(signatures).tobytes())
    return pa.Array.from_buffers(pa.binary(SIGNATURE_BYTES), len(signatures), [None, data])


def rows_of_band(threshold: float) -> int:
    """Return the most rows a band may have for pairs at the threshold still to be found."""
    for rows in range(16, 1, -1):
        if 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows) >= _RECALL:
            return rows
    return 1


def bands_of(signatures: NDArray[np.uint32], threshold: float) -> Hashes:
    """Return a hash of each band of each signature: (texts, bands) uint64."""
    rows = rows_of_band(threshold)
    bands = PERMUTATIONS // rows
    cut = signatures[:, : bands * rows].reshape(len(signatures), bands, rows).astype(np.uint64)
    value = np.broadcast_to(np.arange(bands, dtype=np.uint64), cut.shape[:2]).copy()
    for row in range(rows):
        value = (value ^ cut[:, :, row]) * _STEP
        value ^= value >> np.uint64(29)
    return value


def estimated_jaccard(
    left: Sequence[bytes] | pa.Array, right: Sequence[bytes] | pa.Array
) -> NDArray[np.float64]:
    """Return the share of equal values of each pair of signatures: (pairs,) float64."""
    shape = (-1, PERMUTATIONS)
    one = np.frombuffer(b"".join(left), np.uint32).reshape(shape)
    other = np.frombuffer(b"".join(right), np.uint32).reshape(shape)
    equal: NDArray[np.float64] = (one == other).mean(axis=1)
    return equal


def find_near_duplicates(database: Any, threshold: float) -> None:
    """Make the table ``near_losers`` (rank) out of the table ``fresh_signatures``.

    ``fresh_signatures`` has rank (in the order that decides), chars, signature and bands. In each
    bucket of a band a text is compared with the first one and with the one before it, so that a
    large bucket costs no square of its size. Pairs whose estimated Jaccard similarity reaches the
    threshold join a group; of a group the longest text stays, the first of these.
    """
    reader = database.sql(_PAIRS).to_arrow_reader(_BATCH)
    edges = [_similar(batch, threshold) for batch in reader]
    pairs = np.concatenate([np.zeros((0, 2), np.int64), *edges])
    ranks, groups = _groups(pairs)
    table = pa.table({"rank": pa.array(ranks, pa.int64()), "team": pa.array(groups, pa.int64())})
    database.register("near_groups", table)
    database.execute(_LOSERS)


def _similar(batch: pa.RecordBatch, threshold: float) -> NDArray[np.int64]:
    left, right = (batch.column(name).to_pylist() for name in ("left_sig", "right_sig"))
    close = estimated_jaccard(left, right) >= threshold
    ranks = [batch.column(name).to_numpy() for name in ("a", "b")]
    return np.stack(ranks, axis=1)[close]


def _groups(pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the texts that are in a pair, ascending, and the connected component of each."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ranks, places = np.unique(pairs, return_inverse=True)
    places = places.reshape(pairs.shape)
    ones = np.ones(len(pairs), np.bool_)
    graph = coo_array((ones, (places[:, 0], places[:, 1])), shape=(len(ranks), len(ranks)))
    labels = connected_components(graph, directed=False)[1] if len(ranks) else ranks
    return ranks, labels.astype(np.int64)


_PAIRS = """
WITH cut AS (
  SELECT rank, unnest(bands) AS bucket FROM fresh_signatures
), bucketed AS (
  SELECT rank, first_value(rank) OVER same AS first, lag(rank) OVER same AS previous
  FROM cut WINDOW same AS (PARTITION BY bucket ORDER BY rank)
), pairs AS (
  SELECT first AS a, rank AS b FROM bucketed WHERE first <> rank
  UNION SELECT previous, rank FROM bucketed WHERE previous IS NOT NULL
)
SELECT a, b, one.signature AS left_sig, other.signature AS right_sig
FROM pairs JOIN fresh_signatures one ON one.rank = a JOIN fresh_signatures other ON other.rank = b
"""
_LOSERS = """
CREATE TABLE near_losers AS
SELECT rank FROM (
  SELECT rank, row_number() OVER (PARTITION BY team ORDER BY chars DESC, rank) AS place
  FROM near_groups JOIN fresh_signatures USING (rank)
) WHERE place > 1
"""
