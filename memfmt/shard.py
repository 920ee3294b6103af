"""Writes one shard: its keys, its index and the rows of each payload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lmdb
import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.durable import sync_tree
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.index import build_index, write_index
from phrasemem.memfmt.keys import (
    ROOT_KEY,
    bucket_bits_for,
    check_keys,
    key_order,
    shard_of,
    tokens_hash,
)
from phrasemem.memfmt.layout import Layout
from phrasemem.memfmt.names import index_name, keys_name, rows_name, shard_name
from phrasemem.memfmt.records import Record, RecordCodec
from phrasemem.memfmt.rows import write_rows
from phrasemem.memfmt.sparse import Successors

Column = NDArray[np.floating] | Successors
"""What a payload has for some keys: vectors, or successors."""

_PAGE = 4096
_BATCH = 50_000


@dataclass(frozen=True)
class Entries:
    """Keys with what they map to, in any order.

    Parameters
    ----------
    lengths : (n,) uint8
    tokens : (n, n_max) uint32
        Zero beyond the length.
    records : sequence of Record
    payloads : mapping of str to (n, dim) float32 or float16, or to Successors
    """

    lengths: NDArray[np.uint8]
    tokens: NDArray[np.uint32]
    records: Sequence[Record]
    payloads: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, order: NDArray[np.int64]) -> Entries:
        """Return some of the entries, in another order."""
        return Entries(
            self.lengths[order],
            self.tokens[order],
            [self.records[i] for i in order.tolist()],
            {name: _take(column, order) for name, column in self.payloads.items()},
        )


def write_shard(folder: Path, number: int, entries: Entries, layout: Layout) -> int:
    """Write a shard and flush it to the device.

    Takes and returns plain data, so that it runs in any process. Writing a shard again, after
    a kill, gives the same bytes. RAM: one payload of this shard, or its encoded records, besides
    `entries`.

    Parameters
    ----------
    folder : Path
        The unfinished memory.
    number : int
        All keys must hash to it, see :func:`phrasemem.memfmt.keys.shard_of`.
    entries : Entries
        In any order.
    layout : Layout

    Returns
    -------
    int
        Number of entries.

    Raises
    ------
    PhraseMemError
        If keys, records or vectors do not fit the layout or each other.
    """
    _check_entries(entries, layout)
    hashes = tokens_hash(entries.tokens, entries.lengths, layout.hash_seed)
    if np.any(shard_of(hashes, layout.shard_bits) != number):
        raise PhraseMemError("a key belongs to another shard", where=shard_name(number))
    order = np.argsort(hashes, kind="stable")
    lengths, tokens = entries.lengths[order], entries.tokens[order]
    (folder / shard_name(number)).mkdir(parents=True, exist_ok=True)
    index = build_index(
        hashes[order],
        lengths,
        tokens,
        shard=number,
        shard_bits=layout.shard_bits,
        bucket_bits=bucket_bits_for(layout.entries, layout.shard_bits),
    )
    write_index(folder / index_name(number), index)
    for payload in layout.payloads:
        column = _take(entries.payloads[payload.name], order)
        raw = layout.rows(payload).encode(lengths, tokens, column)
        write_rows(folder / rows_name(number, payload.name), raw)
    _write_keys(folder / keys_name(number), entries, order, layout)
    sync_tree(folder / shard_name(number))
    return len(entries)


def _check_entries(entries: Entries, layout: Layout) -> None:
    check_keys(entries.tokens, entries.lengths, layout.n_max, layout.vocab_size)
    if len(entries.records) != len(entries):
        raise PhraseMemError("records missing", expected=len(entries), found=len(entries.records))
    names = sorted(payload.name for payload in layout.payloads)
    if names != sorted(entries.payloads):
        raise PhraseMemError("wrong payloads", expected=names, found=sorted(entries.payloads))
    for payload in layout.payloads:
        layout.rows(payload).check_column(
            entries.payloads[payload.name], len(entries), payload.name
        )


def _take(column: Column, order: NDArray[np.int64]) -> Column:
    return column.take(order) if isinstance(column, Successors) else column[order]


def _write_keys(path: Path, entries: Entries, order: NDArray[np.int64], layout: Layout) -> None:
    rows = np.empty(len(order), dtype=np.uint32)
    rows[order] = np.arange(len(order))
    sorted_by_key = key_order(entries.tokens, entries.lengths)
    # In the order in which they came, and so lie in memory: in that of the keys, following the
    # references of records takes longer than writing them.
    records = [*RecordCodec(layout.corpora, layout.dictionary).encode_all(entries.records)]
    path.unlink(missing_ok=True)
    try:
        with _create_lmdb(path, _map_size(entries)) as environment:
            for begin in range(0, len(order), _BATCH):
                chosen = sorted_by_key[begin : begin + _BATCH]
                with environment.begin(write=True) as transaction:
                    items = _items(entries, chosen, rows, records)
                    transaction.cursor().putmulti(items, dupdata=False, append=True)
    except lmdb.Error as error:
        # On a full disk LMDB reports a short write as an input/output error.
        raise PhraseMemError(
            f"LMDB cannot write the keys: {error}", where=path, hint="is the disk full?"
        ) from error


def _create_lmdb(path: Path, map_size: int) -> lmdb.Environment:
    return lmdb.open(
        str(path), subdir=False, map_size=map_size, lock=False, sync=False, readahead=False
    )


def _items(
    entries: Entries, chosen: NDArray[np.int64], rows: NDArray[np.uint32], records: list[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of LMDB: local row, then the record."""
    width = 4 * entries.tokens.shape[1]
    big_endian = entries.tokens[chosen].astype(">u4").tobytes()
    begins = range(0, width * len(chosen), width)
    ends = (np.array(begins) + 4 * entries.lengths[chosen].astype(np.int64)).tolist()
    local_rows = rows[chosen].astype(">u4").tobytes()
    places = range(0, 4 * len(chosen), 4)
    for entry, begin, end, place in zip(chosen.tolist(), begins, ends, places, strict=True):
        key = big_endian[begin:end] or ROOT_KEY
        yield key, local_rows[place : place + 4] + records[entry]


def _map_size(entries: Entries) -> int:
    """Upper bound of the file, a pure function of the entries since it is written into it."""
    text = sum(len(record.text) for record in entries.records)
    return _PAGE * (64 + (8 * text + 512 * len(entries)) // _PAGE)
