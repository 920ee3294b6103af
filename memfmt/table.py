"""The table of addresses that the kernels work from, and what keeps those addresses alive."""

from __future__ import annotations

import numpy as np

from phrasemem.memfmt import probe
from phrasemem.memfmt.index import Index
from phrasemem.memfmt.keys import initial_state
from phrasemem.memfmt.manifest import Manifest
from phrasemem.memfmt.mapped import MappedRows


class Table:
    """Index and rows of one payload, as the kernels see them. Immutable; threads may share it.

    Parameters
    ----------
    manifest : Manifest
    index : Index
    rows : MappedRows
        Of any payload: all hold the tokens.

    Attributes
    ----------
    address : int
        What kernels take.
    entries : int
    """

    def __init__(self, manifest: Manifest, index: Index, rows: MappedRows) -> None:
        lines = index.lines
        bases = rows.addresses - rows.first_rows * rows.stride
        first_rows = np.append(rows.first_rows, manifest.entries)
        self.entries = manifest.entries
        values = np.zeros(probe.TABLE_SIZE, dtype=np.int64)
        values[probe.LINES] = lines.tags.ctypes.data
        values[probe.LINE_COUNT] = len(lines.tags)
        values[probe.TAILS] = lines.tails.ctypes.data
        values[probe.SPILLED] = lines.spilled.ctypes.data
        values[probe.SPILLED_ROWS] = lines.spilled_rows.ctypes.data
        values[probe.SPILLED_COUNT] = len(lines.spilled)
        values[probe.HASH_MASK] = -1 << (32 - index.bucket_bits)
        values[probe.LENGTH_MASKS] = index.length_masks.ctypes.data
        values[probe.LENGTH_MASKS_SIZE] = len(index.length_masks)
        values[probe.BASES] = bases.ctypes.data
        values[probe.FIRST_ROWS] = first_rows.ctypes.data
        # Fixed point, 32 bits: with it, row numbers below 2^32 do not overflow.
        values[probe.SHARDS_A_ROW] = (len(bases) << 32) // max(manifest.entries, 1)
        values[probe.STRIDE] = rows.stride
        values[probe.N_MAX] = manifest.n_max
        values[probe.ENTRIES] = manifest.entries
        values[probe.VOCAB_SIZE] = manifest.tokenizer.vocab_size
        values[probe.FILTER] = index.suffix_filter.ctypes.data
        values[probe.FILTER_WORDS] = len(index.suffix_filter)
        values[probe.INITIAL_STATE] = initial_state(manifest.hash_seed).astype(np.int64)
        self._held = (index, rows, bases, first_rows, values)
        self.address: int = values.ctypes.data
