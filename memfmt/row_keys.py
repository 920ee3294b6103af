"""The keys of a shard, out of the rows of any payload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.keys import check_keys
from phrasemem.memfmt.manifest import Manifest, PayloadInfo
from phrasemem.memfmt.mapped import MappedRows
from phrasemem.memfmt.rows import check_rows

_CHUNK = 1 << 16


def read_row_keys(
    path: Path, manifest: Manifest, shard: int, payload: PayloadInfo
) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Check the rows of one shard, and return their keys.

    Parameters
    ----------
    path : Path
        A rows file, as long as it must be.
    manifest : Manifest
    shard : int
    payload : PayloadInfo

    Returns
    -------
    lengths : (n,) uint8
    tokens : (n, n_max) uint32

    Raises
    ------
    FormatError
        If Arrow says otherwise, or a row breaks the format.
    """
    count = manifest.shards[shard].entries
    layout = manifest.row_layout(payload)
    check_rows(path, count, layout)
    rows = MappedRows([path], [0], count, payload.stride).shard_rows(0, count)
    lengths = np.empty(count, dtype=np.uint8)
    tokens = np.empty((count, manifest.n_max), dtype=np.uint32)
    for begin in range(0, count, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        lengths[part], tokens[part] = layout.keys(rows[part])
        if not layout.well_formed(rows[part]):
            raise FormatError(
                Reason.ROWS_DAMAGED,
                "padding is not zero, or a scale is wrong, or a value",
                where=f"{path}, rows from {begin}",
            )
    try:
        check_keys(tokens, lengths, manifest.n_max, manifest.tokenizer.vocab_size)
    except PhraseMemError as error:
        raise FormatError(Reason.ROWS_DAMAGED, str(error), where=path) from error
    return lengths, tokens
