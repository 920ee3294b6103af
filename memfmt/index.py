"""index.arrow: where a key's row is.

How many keys each bucket holds, by the top bits of the hash, and the 32 bits below them of each
key, in hash order. The position of a key is its row. Beside it, for each last token, which
lengths of keys end with it, so that a search for the longest match probes only lengths that
exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phrasemem.memfmt.arrow_file import read_one_batch
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.keys import UInt64s, bucket_and_remainder
from phrasemem.memfmt.lines import Lines, LinesBuilder

MAX_BUCKET = 255
_COLUMNS = {
    "bucket_counts": pa.uint8(),
    "remainders": pa.uint32(),
    "last_tokens": pa.uint32(),
    "length_masks": pa.uint16(),
}
_SCHEMA = pa.schema([pa.field(name, pa.large_list(kind)) for name, kind in _COLUMNS.items()])


@dataclass(frozen=True)
class ShardIndex:
    """The index of one shard, as it stands on disk.

    Parameters
    ----------
    bucket_counts : (2 ** (bucket_bits - shard_bits),) uint8
        Keys in each bucket.
    remainders : (entries,) uint32
        In hash order, so rising within a bucket.
    last_tokens : (tokens,) uint32
        Last tokens of keys, rising.
    length_masks : (tokens,) uint16
        Bit ``n`` is set if a key of ``n`` tokens ends with that token.
    """

    bucket_counts: NDArray[np.uint8]
    remainders: NDArray[np.uint32]
    last_tokens: NDArray[np.uint32]
    length_masks: NDArray[np.uint16]

    def equals(self, other: ShardIndex) -> bool:
        """Whether both say the same of every key."""
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in _COLUMNS)


def build_index(
    hashes: UInt64s,
    lengths: NDArray[np.uint8],
    tokens: NDArray[np.uint32],
    *,
    shard: int,
    shard_bits: int,
    bucket_bits: int,
) -> ShardIndex:
    """Index the keys of one shard, which are given in hash order.

    Raises
    ------
    PhraseMemError
        If two keys share bucket and remainder, or a bucket overflows: the seed is wrong.
    """
    buckets, remainders = bucket_and_remainder(hashes, bucket_bits)
    if np.any((buckets[1:] == buckets[:-1]) & (remainders[1:] == remainders[:-1])):
        raise PhraseMemError("two keys share their index entry", hint="use choose_seed")
    size = 1 << (bucket_bits - shard_bits)
    counts = np.bincount(buckets - shard * size, minlength=size)
    if counts.max(initial=0) > MAX_BUCKET:
        raise PhraseMemError(
            "a bucket of the index overflows",
            expected=f"<= {MAX_BUCKET}",
            found=counts.max(),
            hint="use choose_seed",
        )
    last_tokens, masks = _length_masks(lengths, tokens)
    return ShardIndex(counts.astype(np.uint8), remainders, last_tokens, masks)


def _length_masks(
    lengths: NDArray[np.uint8], tokens: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    rows = np.flatnonzero(lengths)
    last = tokens[rows, lengths[rows].astype(np.int64) - 1]
    unique, inverse = np.unique(last, return_inverse=True)
    masks = np.zeros(len(unique), dtype=np.uint16)
    np.bitwise_or.at(masks, inverse, np.uint16(1) << lengths[rows].astype(np.uint16))
    return unique, masks


def write_index(path: Path, index: ShardIndex) -> None:
    """Write the index of a shard as an Arrow IPC file of one row of lists."""
    columns = [_one_list(getattr(index, name), kind) for name, kind in _COLUMNS.items()]
    with path.open("wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))


def _one_list(values: NDArray[np.unsignedinteger], kind: pa.DataType) -> pa.Array:
    # From buffers: for arrays of numpy, pyarrow would first import pandas.
    flat = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
    offsets = pa.py_buffer(np.array([0, len(values)], dtype=np.int64))
    return pa.Array.from_buffers(pa.large_list(kind), 1, [None, offsets], children=[flat])


def read_index(data: bytes, where: object) -> ShardIndex:
    """Read the index of a shard from the bytes of its file; nothing is copied.

    Raises
    ------
    FormatError
        If the bytes are not an index.
    """
    batch = read_one_batch(pa.py_buffer(data), _SCHEMA, Reason.INDEX_DAMAGED, where)
    if batch.num_rows != 1:
        raise FormatError(
            Reason.INDEX_DAMAGED,
            "an index has not one row",
            expected=1,
            found=batch.num_rows,
            where=where,
        )
    parts = [column.flatten() for column in batch.columns]
    if any(part.null_count for part in parts):
        raise FormatError(Reason.INDEX_DAMAGED, "values of an index are missing", where=where)
    return ShardIndex(*(part.to_numpy() for part in parts))


@dataclass(frozen=True)
class Index:
    """The index of a whole memory, in RAM.

    Parameters
    ----------
    bucket_bits : int
    lines : Lines
    length_masks : (largest last token + 1,) uint16
    suffix_filter : (words,) uint64
        See :mod:`phrasemem.memfmt.suffix_filter`.
    """

    bucket_bits: int
    lines: Lines
    length_masks: NDArray[np.uint16]
    suffix_filter: UInt64s

    @property
    def nbytes(self) -> int:
        """Bytes of RAM that the index takes."""
        return self.lines.nbytes + self.length_masks.nbytes + self.suffix_filter.nbytes


class IndexBuilder:
    """Joins the indexes of shards, given in order, so that only one is held twice.

    Parameters
    ----------
    entries : int
    bucket_bits, shard_bits : int
    vocab_size : int
        Bounds what a damaged index can make us allocate.
    """

    def __init__(self, entries: int, bucket_bits: int, shard_bits: int, vocab_size: int) -> None:
        self._bucket_bits = bucket_bits
        self._buckets = 1 << (bucket_bits - shard_bits)
        self._vocab_size = vocab_size
        self._lines = LinesBuilder(entries, bucket_bits)
        self._masks = np.zeros(0, dtype=np.uint16)
        self._bucket = 0

    def add(self, shard: ShardIndex, entries: int, where: object) -> None:
        """Append a shard.

        Raises
        ------
        FormatError
            If it does not hold `entries` keys in the expected number of buckets, in order.
        """
        total = int(shard.bucket_counts.sum(dtype=np.int64))
        found = (len(shard.bucket_counts), total, len(shard.remainders))
        if found != (self._buckets, entries, entries):
            raise FormatError(
                Reason.INDEX_DAMAGED,
                "an index has the wrong size",
                expected=(self._buckets, entries, entries),
                found=found,
                where=where,
            )
        self._add_masks(shard, where)
        if not self._lines.add(shard.bucket_counts, shard.remainders, self._bucket):
            raise FormatError(Reason.INDEX_DAMAGED, "an index is not in order", where=where)
        self._bucket += self._buckets

    def _add_masks(self, shard: ShardIndex, where: object) -> None:
        size = int(shard.last_tokens.max(initial=0)) + 1
        if size > self._vocab_size or len(shard.last_tokens) != len(shard.length_masks):
            raise FormatError(
                Reason.INDEX_DAMAGED,
                "an index has wrong last tokens",
                expected=f"tokens < {self._vocab_size}",
                found=size - 1,
                where=where,
            )
        if size > len(self._masks):
            self._masks = np.pad(self._masks, (0, size - len(self._masks)))
        self._masks[shard.last_tokens] |= shard.length_masks

    def finish(self, suffix_filter: UInt64s) -> Index:
        """Return the index of all shards."""
        return Index(self._bucket_bits, self._lines.finish(), self._masks, suffix_filter)
