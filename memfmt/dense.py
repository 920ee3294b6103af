"""Rows of a dense payload: a vector of half precision, or of bytes with a scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.row_layout import RowLayout

_FP16_MAX = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class DenseLayout(RowLayout):
    """A vector of `dim` numbers; its column is an array, ``(k, dim) float16 or float32``.

    Parameters
    ----------
    n_max, dim : int
    dtype : str
        ``float16`` or ``int8``.
    """

    dtype: str

    column_type: ClassVar[type] = np.ndarray

    @property
    def used_bytes(self) -> int:
        """Bytes of a row up to the end of its vector."""
        return self.values_offset + self.dim * np.dtype(self.dtype).itemsize

    def encode(
        self, lengths: NDArray[np.uint8], tokens: NDArray[np.uint32], column: NDArray[np.floating]
    ) -> NDArray[np.uint8]:
        """Write rows; see :meth:`RowLayout.encode`.

        Raises
        ------
        PhraseMemError
            If a value is not finite, or too large for float16.
        """
        scales, values = _quantise(column, self.dtype)
        raw = self._heads(lengths, tokens, scales)
        self._vectors(raw)[:] = values
        return raw

    def decode(self, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Read the vectors of rows: ``(k, stride) uint8 -> (k, dim) float32``."""
        vectors = self._vectors(raw).astype(np.float32)
        if self.dtype == "int8":
            vectors *= self._scales(raw)[:, None]
        return vectors

    def well_formed(self, raw: NDArray[np.uint8]) -> bool:
        """Whether all padding is zero and all scales are what they may be."""
        scales = self._scales(raw)
        padded = raw[:, 1 : self.tokens_offset].any() or raw[:, self.used_bytes :].any()
        scaled = np.isfinite(scales) if self.dtype == "int8" else scales == 1
        return not padded and bool(scaled.all())

    def _vectors(self, raw: NDArray[np.uint8]) -> NDArray[np.generic]:
        dtype = "<f2" if self.dtype == "float16" else "i1"
        return raw[:, self.values_offset : self.used_bytes].view(dtype)


def _quantise(
    vectors: NDArray[np.floating], dtype: str
) -> tuple[NDArray[np.float32], NDArray[np.generic]]:
    """Scales and stored values, such that vector = scale * value; scale is 1 for float16."""
    if vectors.dtype == dtype == "float16":
        # Nothing to round or to scale; numpy compares numbers of 16 bits one by one.
        finite = vectors.view(np.uint16) & np.uint16(0x7C00) != 0x7C00
        if not finite.all():
            raise PhraseMemError(
                "a vector is not finite", where=f"row {np.argmin(finite.all(axis=1))}"
            )
        return np.ones(len(vectors), dtype=np.float32), vectors
    largest = np.abs(vectors).max(axis=1, initial=0).astype(np.float32)
    if not np.isfinite(largest).all():
        raise PhraseMemError(
            "a vector is not finite", where=f"row {np.argmin(np.isfinite(largest))}"
        )
    if dtype == "float16":
        if len(largest) and float(largest.max()) > _FP16_MAX:
            raise PhraseMemError(
                "a vector is too large for float16", found=largest.max(), hint="store it as int8"
            )
        return np.ones(len(vectors), dtype=np.float32), vectors.astype("<f2")
    scales = largest / np.float32(127)
    # A scale that is not a normal number has lost its digits; such a vector is zero.
    scales = np.where(scales >= np.finfo(np.float32).tiny, scales, np.float32(1))
    return scales, np.rint(vectors / scales[:, None]).astype(np.int8)
