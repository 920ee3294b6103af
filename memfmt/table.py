"""The table of addresses that the kernels work from, and what keeps those addresses alive."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt import kernels
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
    """

    def __init__(self, manifest: Manifest, index: Index, rows: MappedRows) -> None:
        bases = rows.addresses - rows.first_rows * rows.stride
        first_rows = np.append(rows.first_rows, manifest.entries)
        self._held = (index, rows, bases, first_rows)
        self.values: NDArray[np.int64] = np.zeros(kernels.TABLE_SIZE, dtype=np.int64)
        self.values[kernels.DIRECTORY] = index.directory.ctypes.data
        self.values[kernels.REMAINDERS] = index.remainders.ctypes.data
        self.values[kernels.MASKS] = index.length_masks.ctypes.data
        self.values[kernels.MASKS_SIZE] = len(index.length_masks)
        self.values[kernels.BUCKET_BITS] = index.bucket_bits
        self.values[kernels.BASES] = bases.ctypes.data
        self.values[kernels.FIRST_ROWS] = first_rows.ctypes.data
        # Fixed point, 32 bits: with it, row numbers below 2^32 do not overflow.
        self.values[kernels.SHARDS_A_ROW] = (len(bases) << 32) // max(manifest.entries, 1)
        self.values[kernels.STRIDE] = rows.stride
        self.values[kernels.N_MAX] = manifest.n_max
        self.values[kernels.ENTRIES] = manifest.entries
        self.values[kernels.VOCAB_SIZE] = manifest.tokenizer.vocab_size
        self.values[kernels.INITIAL_STATE] = initial_state(manifest.hash_seed).astype(np.int64)
