"""Rows of a payload, mapped from all shards without read-ahead."""

from __future__ import annotations

import mmap
import os
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt import gathering
from phrasemem.memfmt.layout import BODY_OFFSET

SMALL_BATCH = 1024
"""Up to this many rows are announced to the kernel before they are read."""

_CAN_ANNOUNCE = hasattr(os, "posix_fadvise")
_PAGE = 4096
_FORGET_SECONDS = 10.0


class MappedRows:
    """The row files of one payload. Threads may share it; it stays valid after a fork.

    Parameters
    ----------
    paths : sequence of Path
        One file a shard, whose lengths were checked: touching a page beyond the end of a
        file kills the process.
    first_rows : sequence of int
        First row of each shard.
    entries : int
        Rows of all shards.
    stride : int
        Bytes a row.
    """

    def __init__(
        self, paths: Sequence[Path], first_rows: Sequence[int], entries: int, stride: int
    ) -> None:
        self.stride = stride
        self._announced = np.zeros(entries // 8 + 1, dtype=np.uint8)
        if not _CAN_ANNOUNCE:
            self._announced[:] = 255
        self._announced_since = time.monotonic()
        self.first_rows = np.array(first_rows, dtype=np.int64)
        self._descriptors: list[int] = []
        # Descriptors are closed when nobody holds the rows any more, as mappings are.
        weakref.finalize(self, _close_all, self._descriptors)
        self._maps = [self._map(path) for path in paths]
        self.addresses = np.array(
            [whole.ctypes.data + BODY_OFFSET for whole in self._maps], dtype=np.int64
        )

    def _map(self, path: Path) -> NDArray[np.uint8]:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._descriptors.append(descriptor)
        mapping = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        # Read-ahead would read megabytes for every row of a random gather.
        mapping.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(mapping, dtype=np.uint8)

    def shard_rows(self, shard: int, count: int) -> NDArray[np.uint8]:
        """View the first `count` rows of a shard: ``(count, stride) uint8``, read-only."""
        body = self._maps[shard][BODY_OFFSET : BODY_OFFSET + count * self.stride]
        return body.reshape(count, self.stride)

    def will_need(self, rows: NDArray[np.int64]) -> None:
        """Ask the kernel to read rows into its page cache, without waiting.

        The device then works on all of them at once, where page faults come one by one. Rows
        that were announced seconds ago are passed over, since a system call for each row is
        dear where all are in the page cache. Negative rows are none.
        """
        fresh = np.empty(len(rows), dtype=np.int64)
        count = gathering.not_announced(self.announced(), rows, fresh)
        if count:
            self._announce(fresh[:count])

    def announced(self) -> NDArray[np.uint8]:
        """Return the bits of the rows that were announced of late; all where none can be."""
        if _CAN_ANNOUNCE:
            now = time.monotonic()
            if now - self._announced_since > _FORGET_SECONDS:
                self._announced[:] = 0
                self._announced_since = now
        return self._announced

    def _announce(self, rows: NDArray[np.int64]) -> None:
        shards = np.searchsorted(self.first_rows, rows, side="right") - 1
        begins = BODY_OFFSET + (rows - self.first_rows[shards]) * self.stride
        for shard, begin in zip(shards.tolist(), begins.tolist(), strict=True):
            page = begin // _PAGE * _PAGE
            length = begin + self.stride - page
            os.posix_fadvise(self._descriptors[shard], page, length, os.POSIX_FADV_WILLNEED)


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
