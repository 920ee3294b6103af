"""One payload of a memory: its rows, raw or decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt import gathering
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.layout import SPARSE, RowLayout
from phrasemem.memfmt.manifest import PayloadInfo
from phrasemem.memfmt.mapped import SMALL_BATCH, MappedRows
from phrasemem.memfmt.sparse import Successors
from phrasemem.memfmt.table import Table


class PayloadReader(ABC):
    """Reads what rows hold, by row id. Threads may share it; it stays valid after a fork.

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
        """Width of a vector, or the largest number of successors of a row."""
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
        return self.table.entries

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
        """Copy whole rows: key, scale and values.

        Parameters
        ----------
        rows : (k,) int64
        out : (k, stride) uint8, optional
            Written and returned; C-contiguous.

        Returns
        -------
        (k, stride) uint8

        Raises
        ------
        PhraseMemError
            If a row is not in the memory, or `out` has another form.
        """
        rows = self._checked(rows)
        if out is None:
            out = np.empty((len(rows), self.stride), dtype=np.uint8)
        self._check_raw(out, len(rows))
        self._announce_few(rows)
        gathering.gather_rows(self.table.address, rows, out)
        return out

    @abstractmethod
    def decode(self, raw: NDArray[np.uint8]) -> Any:
        """Read the values of raw rows, ``(k, stride) uint8``.

        Raises
        ------
        PhraseMemError
            If these are not rows of this payload, C-contiguous.
        """

    @abstractmethod
    def gather(self, rows: NDArray[np.int64]) -> Any:
        """Read the values of rows, ``(k,) int64``.

        Raises
        ------
        PhraseMemError
            If a row is not in the memory.
        """

    def _check_raw(self, raw: NDArray[np.uint8], count: int) -> None:
        # The kernels go by addresses: a wrong form would be a read or write elsewhere.
        right = raw.shape == (count, self.stride) and raw.dtype == np.uint8
        if not (right and raw.flags.c_contiguous):
            raise PhraseMemError(
                "wrong form of raw rows",
                expected=f"({count}, {self.stride}) uint8, C-contiguous",
                found=f"{raw.shape} {raw.dtype}",
            )

    def _announce_few(self, rows: NDArray[np.int64]) -> None:
        if len(rows) <= SMALL_BATCH:
            self.mapped.will_need(rows)

    def _checked(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise PhraseMemError(
                "a row is not in the memory",
                expected=f"0..{len(self) - 1}",
                found=f"{rows.min()}..{rows.max()}",
            )
        return rows


class VectorReader(PayloadReader):
    """Reads the vectors of a dense payload."""

    def decode(self, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Read the vectors of raw rows: ``(k, stride) uint8 -> (k, dim) float32``."""
        self._check_raw(raw, len(raw))
        out = np.empty((len(raw), self.dim), dtype=np.float32)
        if self.dtype == "int8":
            gathering.decode_int8(raw, self.layout.scale_offset, out)
        else:
            gathering.decode_float16(raw, self.layout.values_offset, out)
        return out

    def gather(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read vectors: ``(k,) int64 -> (k, dim) float32``."""
        rows = self._checked(rows)
        self._announce_few(rows)
        out = np.empty((len(rows), self.dim), dtype=np.float32)
        if self.dtype == "int8":
            gathering.gather_int8(self.table.address, rows, self.layout.scale_offset, out)
        else:
            gathering.gather_float16(self.table.address, rows, self.layout.values_offset, out)
        return out


class SuccessorReader(PayloadReader):
    """Reads the successors of a sparse payload."""

    def decode(self, raw: NDArray[np.uint8]) -> Successors:
        """Read the successors of raw rows, ``(k, stride) uint8``; counts as float32."""
        self._check_raw(raw, len(raw))
        successors: Successors = self.layout.decode(raw)
        return successors

    def gather(self, rows: NDArray[np.int64]) -> Successors:
        """Read the successors of rows, ``(k,) int64``; counts as float32."""
        return self.decode(self.gather_raw(rows))


def open_payload(
    info: PayloadInfo, layout: RowLayout, mapped: MappedRows, table: Table
) -> PayloadReader:
    """Return the reader of a payload of either kind."""
    kind = SuccessorReader if info.kind == SPARSE else VectorReader
    return kind(info, layout, mapped, table)
