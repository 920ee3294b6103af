"""One payload of a memory: its rows, raw or decoded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt import kernels
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.layout import RowLayout
from phrasemem.memfmt.manifest import PayloadInfo
from phrasemem.memfmt.mapped import MappedRows
from phrasemem.memfmt.table import Table

SMALL_BATCH = 1024
"""Up to this many rows are announced to the kernel before they are read."""


class PayloadReader:
    """Reads vectors by row id. Threads may share it; it stays valid after a fork.

    Parameters
    ----------
    info : PayloadInfo
    layout : RowLayout
    mapped : MappedRows
    table : Table
    """

    def __init__(
        self, info: PayloadInfo, layout: RowLayout, mapped: MappedRows, table: Table
    ) -> None:
        self.info = info
        self.layout = layout
        self.mapped = mapped
        self.table = table

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self.info.dim

    @property
    def dtype(self) -> str:
        """Stored type, ``float16`` or ``int8``."""
        return self.info.dtype

    @property
    def stride(self) -> int:
        """Bytes a row takes."""
        return self.info.stride

    def __len__(self) -> int:
        return int(self.table.values[kernels.ENTRIES])

    def will_need(self, rows: NDArray[np.int64]) -> None:
        """Start reading rows from the device, without waiting for them.

        Parameters
        ----------
        rows : (k,) int64
        """
        self.mapped.will_need(self._checked(rows))

    def gather_raw(
        self, rows: NDArray[np.int64], out: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8]:
        """Copy whole rows: key, scale and vector.

        Parameters
        ----------
        rows : (k,) int64
        out : (k, stride) uint8, optional
            Written and returned; C-contiguous and 8-byte aligned.

        Returns
        -------
        (k, stride) uint8

        Raises
        ------
        PhraseMemError
            If a row is not in the memory.
        """
        rows = self._checked(rows)
        if out is None:
            out = np.empty((len(rows), self.stride), dtype=np.uint8)
        if len(rows) <= SMALL_BATCH:
            self.mapped.will_need(rows)
        kernels.gather_rows(self.table.values, rows, out.view(np.int64))
        return out

    def decode(self, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Read the vectors of raw rows: ``(k, stride) uint8 -> (k, dim) float32``."""
        return self.layout.decode(raw)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read vectors: ``(k,) int64 -> (k, dim) float32``."""
        return self.decode(self.gather_raw(rows))

    def _checked(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise PhraseMemError(
                "a row is not in the memory",
                expected=f"0..{len(self) - 1}",
                found=f"{rows.min()}..{rows.max()}",
            )
        return rows
