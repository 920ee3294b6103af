"""A bound on what a parser may take in for one record."""

from __future__ import annotations

from typing import IO

from phrasemem.pipeline.read.document import DamageError


class Bounded:
    """A stream that ends in :class:`DamageError` where a record is longer than allowed.

    Parameters
    ----------
    stream : file
    limit : int
        Bytes between two calls of :meth:`record_ended`.
    """

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._position = self._record = 0

    def record_ended(self, back: int = 0) -> None:
        """Say that a record ended ``back`` bytes before the place of the stream."""
        self._record = self._position - back

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes."""
        data = self._stream.read(size)
        self._position += len(data)
        if self._position - self._record > self._limit:
            where = f"byte {self._record} of the content"
            raise DamageError("record-too-long", where, f"more than {self._limit} bytes")
        return data

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._position
