"""key_map.arrow: which token ids are one in keys, such as those of *New* and *new*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phrasemem.memfmt.arrow_file import read_one_batch
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason

EXACT = "exact"
ENGRAM = "engram-1"
FOLDED_KEYS = "folded-keys"
"""The reader feature of memories whose keys are folded."""

_SCHEMA = pa.schema([pa.field("id", pa.uint32(), nullable=False)])


@dataclass(frozen=True, eq=False)
class KeyMap:
    """Folds token ids: those of a class become its smallest. Threads may share it.

    Parameters
    ----------
    normalisation : str
        What made the classes; stands in the manifest.
    ids : (vocab_size,) uint32
        The id that stands for each id in keys.

    Raises
    ------
    PhraseMemError
        If an id does not stand for itself though others map to it, or is not the smallest.
    """

    normalisation: str
    ids: NDArray[np.uint32]

    def __post_init__(self) -> None:
        # Not above its own place, so inside the vocabulary too.
        wrong = np.flatnonzero(self.ids > np.arange(len(self.ids)))
        if not len(wrong):
            wrong = np.flatnonzero(self.ids[self.ids] != self.ids)
        if len(wrong):
            raise PhraseMemError(
                "a key map does not map to the smallest id of a class",
                where=f"id {wrong[0]}",
                found=self.ids[wrong[0]],
            )

    def fold(self, tokens: NDArray[Any]) -> NDArray[Any]:
        """Fold ids; what is negative or beyond the vocabulary stays as it is.

        Parameters
        ----------
        tokens : any shape, of integers

        Returns
        -------
        the same shape and dtype
        """
        known = (tokens >= 0) & (tokens < len(self.ids))
        folded = np.where(known, self.ids[np.where(known, tokens, 0)], tokens)
        return folded.astype(tokens.dtype, copy=False)

    def fold_key(self, tokens: Sequence[int]) -> list[int]:
        """Fold a single key, as :meth:`fold` does."""
        size = len(self.ids)
        return [int(self.ids[token]) if 0 <= token < size else token for token in tokens]

    def unfolded(self, tokens: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return which keys are not folded: ``(k, n_max) uint32 -> (wrong,) int64``.

        Zeros beyond a key's length do no harm: 0 always stands for itself.
        """
        return np.flatnonzero((self.ids[tokens] != tokens).any(axis=1))

    def check(self, tokens: NDArray[np.uint32]) -> None:
        """Refuse keys that are not folded.

        Raises
        ------
        PhraseMemError
            With the first such key, padded as it is.
        """
        wrong = self.unfolded(tokens)
        if len(wrong):
            raise PhraseMemError(
                "a key is not folded",
                expected=self.ids[tokens[wrong[0]]].tolist(),
                found=tokens[wrong[0]].tolist(),
                hint="fold tokens before they are counted as keys",
            )


def write_key_map(path: Path, key_map: KeyMap) -> None:
    """Write the table as an Arrow IPC file with one batch of one column."""
    ids = np.ascontiguousarray(key_map.ids, dtype=np.uint32)
    # From a buffer: for arrays of numpy, pyarrow would first import pandas.
    column = pa.Array.from_buffers(pa.uint32(), len(ids), [None, pa.py_buffer(ids)])
    with path.open("wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        writer.write_batch(pa.record_batch([column], schema=_SCHEMA))


def read_key_map(data: bytes, normalisation: str, vocab_size: int, where: object) -> KeyMap:
    """Read the table from the bytes of its file.

    Raises
    ------
    FormatError
        If the bytes are no such table, or it does not fit the vocabulary.
    """
    batch = read_one_batch(pa.py_buffer(data), _SCHEMA, Reason.KEY_MAP_DAMAGED, where)
    if batch.num_rows != vocab_size:
        raise FormatError(
            Reason.KEY_MAP_DAMAGED,
            "the key map has another size",
            expected=vocab_size,
            found=batch.num_rows,
            where=where,
        )
    try:
        return KeyMap(normalisation, batch.column(0).to_numpy())
    except PhraseMemError as error:
        raise FormatError(
            Reason.KEY_MAP_DAMAGED, f"a key map cannot be used: {error}", where=where
        ) from error
