"""A stream that cannot go back, for libraries that ask it where it stands."""

from __future__ import annotations

import io
from typing import IO


class Forward:
    """Counts what is read; ``seek`` goes forward only.

    fastwarc takes a panic, which is no Exception, from a stream without ``seek`` and ``tell``.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; none at the end."""
        data = self._stream.read(size)
        self._position += len(data)
        return data

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Read up to a position."""
        target = offset + (self._position if whence == io.SEEK_CUR else 0)
        while self._position < target and self.read(min(1 << 16, target - self._position)):
            pass
        if whence == io.SEEK_END or self._position != target:
            raise OSError(f"cannot go to {target} from {self._position}")
        return self._position
