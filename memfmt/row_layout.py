"""Byte offsets inside a row: the head that all kinds of payload share, then the values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.errors import PhraseMemError

ROW_ALIGNMENT = 64


@dataclass(frozen=True)
class RowLayout(ABC):
    """A row: ``n`` (u8), three bytes, tokens (u32), scale (f32), values.

    A column is what a payload has for some rows; its type is that of the kind.

    Parameters
    ----------
    n_max, dim : int
    """

    n_max: int
    dim: int

    tokens_offset: ClassVar[int] = 4
    column_type: ClassVar[type[Any]]

    @property
    def scale_offset(self) -> int:
        """First byte of the scale."""
        return self.tokens_offset + 4 * self.n_max

    @property
    def values_offset(self) -> int:
        """First byte of the values."""
        return self.scale_offset + 4

    @property
    @abstractmethod
    def used_bytes(self) -> int:
        """Bytes of a row up to the end of its values."""

    @property
    def stride(self) -> int:
        """Bytes a row takes, a multiple of 64."""
        return -(-self.used_bytes // ROW_ALIGNMENT) * ROW_ALIGNMENT

    @abstractmethod
    def encode(
        self, lengths: NDArray[np.uint8], tokens: NDArray[np.uint32], column: Any
    ) -> NDArray[np.uint8]:
        """Write rows.

        Parameters
        ----------
        lengths : (k,) uint8
        tokens : (k, n_max) uint32
        column : of type `column_type`
            What is stored for these keys.

        Returns
        -------
        (k, stride) uint8

        Raises
        ------
        PhraseMemError
            If a value cannot be stored.
        """

    @abstractmethod
    def decode(self, raw: NDArray[np.uint8]) -> Any:
        """Read the column of rows, ``(k, stride) uint8``."""

    @abstractmethod
    def well_formed(self, raw: NDArray[np.uint8]) -> bool:
        """Whether all padding is zero, and scales and values are what they may be."""

    def keys(self, raw: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
        """Read the keys of rows: ``(k,) uint8`` lengths and ``(k, n_max) uint32`` tokens."""
        tokens = raw[:, self.tokens_offset : self.scale_offset].view("<u4")
        return raw[:, 0].copy(), tokens.astype(np.uint32)

    def check_column(self, column: Any, count: int, name: str) -> None:
        """Refuse what cannot be the column of `count` rows of the payload `name`.

        Raises
        ------
        PhraseMemError
        """
        if not isinstance(column, self.column_type):
            raise PhraseMemError(
                "wrong type of a payload's column",
                expected=self.column_type.__name__,
                found=type(column).__name__,
                where=name,
            )
        if column.shape != (count, self.dim):
            raise PhraseMemError(
                "wrong vectors", expected=(count, self.dim), found=column.shape, where=name
            )

    def _heads(
        self,
        lengths: NDArray[np.uint8],
        tokens: NDArray[np.uint32],
        scales: NDArray[np.floating],
    ) -> NDArray[np.uint8]:
        """Rows with keys and scales, and zero where the values will stand."""
        raw = np.zeros((len(lengths), self.stride), dtype=np.uint8)
        raw[:, 0] = lengths
        raw[:, self.tokens_offset : self.scale_offset].view("<u4")[:] = tokens
        self._scales(raw)[:] = scales
        return raw

    def _scales(self, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        return raw[:, self.scale_offset : self.values_offset].view("<f4")[:, 0]
