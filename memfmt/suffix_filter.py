"""The suffix filter: which last three tokens can end a key of which length.

A key of three tokens or more sets one bit of a word that the hash state of its last three tokens
chooses. A search for the longest match reads one word and passes over the lengths whose bits are
clear: four of five that would cost a cache line of the index each. The filter may say yes
wrongly, and never no.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phrasemem.memfmt.arrow_file import read_one_batch
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.keys import UInt64s, suffix_states
from phrasemem.memfmt.probe import FILTER_STEP, FILTERED_BY

KEYS_A_WORD = 20
"""0.4 bytes a key, and a bit in five is set."""

_COLUMN = "words"
_SCHEMA = pa.schema([pa.field(_COLUMN, pa.uint64(), nullable=False)])
_CHUNK = 1 << 18


def no_filter() -> UInt64s:
    """Return the filter that excludes nothing: one word with all bits set."""
    return np.full(1, (1 << 64) - 1, dtype=np.uint64)


def empty_filter(entries: int) -> UInt64s:
    """Return the filter of a memory to which no key was added yet."""
    return np.zeros(entries // KEYS_A_WORD + 1, dtype=np.uint64)


def add_keys(
    words: UInt64s, tokens: NDArray[np.uint32], lengths: NDArray[np.uint8], seed: int
) -> None:
    """Set the bits of keys; those of one or two tokens have none.

    Parameters
    ----------
    words : (entries // 20 + 1,) uint64
        Changed in place.
    tokens : (k, n_max) uint32
    lengths : (k,) uint8
    seed : int
        The memory's hash seed.
    """
    for begin in range(0, len(lengths), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        long = np.flatnonzero(lengths[part] >= FILTERED_BY) + begin
        states = suffix_states(tokens[long], lengths[long], seed, FILTERED_BY)
        places = ((states >> np.uint64(32)) * np.uint64(len(words))) >> np.uint64(32)
        bits = (states + np.uint64(FILTER_STEP) * lengths[long]) & np.uint64(63)
        np.bitwise_or.at(words, places.astype(np.int64), np.uint64(1) << bits)


def write_filter(path: Path, words: UInt64s) -> None:
    """Write a filter as an Arrow IPC file of one column."""
    # From buffers: for arrays of numpy, pyarrow would first import pandas.
    column = pa.Array.from_buffers(pa.uint64(), len(words), [None, pa.py_buffer(words)])
    with path.open("wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        writer.write_batch(pa.record_batch([column], schema=_SCHEMA))


def read_filter(data: bytes, entries: int, where: object) -> UInt64s:
    """Read a filter from the bytes of its file; nothing is copied.

    Raises
    ------
    FormatError
        If the bytes are no filter, or one of another size.
    """
    batch = read_one_batch(pa.py_buffer(data), _SCHEMA, Reason.INDEX_DAMAGED, where)
    words: UInt64s = batch.column(0).to_numpy()
    if len(words) != len(empty_filter(entries)):
        raise FormatError(
            Reason.INDEX_DAMAGED,
            "the suffix filter has the wrong size",
            expected=len(empty_filter(entries)),
            found=len(words),
            where=where,
        )
    return words
