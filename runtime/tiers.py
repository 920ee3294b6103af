"""Host memory over the SSD: whole rows, least recently used first out."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Bytes = NDArray[np.uint8]

# Of an OrderedDict entry with two ints, measured with tracemalloc on CPython 3.11 to 3.13
# while the table grows (a resize holds the old and the new table at once).
_BOOKKEEPING = 352


class RowSource(Protocol):
    """Where rows come from when the tier does not hold them."""

    @property
    def stride(self) -> int:
        """Bytes of a row."""

    def gather_raw(self, rows: Rows, /) -> Bytes:
        """Return (k, stride) uint8 for (k,) row ids; threads may call it at once."""


@dataclass(frozen=True)
class TierStats:
    """What a tier did since it was made; ``held`` and ``bytes`` are those of now."""

    hits: int
    misses: int
    evictions: int
    held: int
    capacity: int
    bytes: int


class HostTier:
    """An LRU cache of rows in one slab.

    Parameters
    ----------
    source : RowSource
    budget : int
        Bytes for slab and bookkeeping together; 0 holds nothing and always reads.
    rows : int
        Rows in the memory: the slab is never larger than all of them.

    Notes
    -----
    Thread-safe. Rows are read from the source outside the lock, so one thread's slow read
    does not stop another's hits; two threads that miss the same row at once both read it.
    """

    def __init__(self, source: RowSource, budget: int, rows: int) -> None:
        self._source = source
        self.capacity = min(rows, budget // (source.stride + _BOOKKEEPING))
        self._slab = np.empty((self.capacity, source.stride), dtype=np.uint8)
        self._slots: OrderedDict[int, int] = OrderedDict()
        self._lock = threading.Lock()
        self._hits = self._misses = self._evictions = 0

    def get(self, rows: Rows) -> Bytes:
        """Return the rows' bytes.

        Parameters
        ----------
        rows : (k,) int64
            Distinct row ids.

        Returns
        -------
        (k, stride) uint8
            A copy: later evictions do not change it.
        """
        out = np.empty((len(rows), self._source.stride), dtype=np.uint8)
        with self._lock:
            slots = self._touch(rows)
            held = slots >= 0
            out[held] = self._slab[slots[held]]
            self._hits += int(held.sum())
            self._misses += int((~held).sum())
        if not held.all():
            missing = rows[~held]
            raw = self._source.gather_raw(missing)
            out[~held] = raw
            with self._lock:
                self._insert(missing, raw)
        return out

    def prewarm(self, rows: Rows) -> int:
        """Load rows before they are asked for, the most wanted first; return how many fit."""
        chosen = rows[: self.capacity]
        raw = self._source.gather_raw(chosen)
        with self._lock:
            self._insert(chosen[::-1], raw[::-1])
        return len(chosen)

    def stats(self) -> TierStats:
        """Return counters and sizes."""
        with self._lock:
            held = len(self._slots)
            used = held * _BOOKKEEPING + self._slab.nbytes
            return TierStats(self._hits, self._misses, self._evictions, held, self.capacity, used)

    def held(self) -> list[int]:
        """Return the row ids in the tier, the next to be evicted first."""
        with self._lock:
            return list(self._slots)

    def _touch(self, rows: Rows) -> NDArray[np.int64]:
        slots = np.full(len(rows), -1, dtype=np.int64)
        for i, row in enumerate(rows.tolist()):
            slot = self._slots.get(row)
            if slot is not None:
                self._slots.move_to_end(row)
                slots[i] = slot
        return slots

    def _insert(self, rows: Rows, raw: Bytes) -> None:
        if self.capacity == 0:
            return
        for row, content in zip(rows.tolist(), raw, strict=True):
            if row in self._slots:  # another thread brought it meanwhile
                self._slots.move_to_end(row)
                continue
            if len(self._slots) < self.capacity:
                slot = len(self._slots)
            else:
                _, slot = self._slots.popitem(last=False)
                self._evictions += 1
            self._slots[row] = slot
            self._slab[slot] = content
