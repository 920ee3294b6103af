"""The members of a gzip or bzip2 file one by one, with the byte at which each starts."""

from __future__ import annotations

import bz2
import io
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from phrasemem.pipeline.read.document import DamageError

_BLOCK = 1 << 16
_GZIP_HEAD = 4096
_BZIP2_BLOCK = 1 << 20  # no smaller part of a bzip2 file can be expanded


class _Inflate:
    """zlib with the interface of :class:`bz2.BZ2Decompressor`."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)

    @property
    def needs_input(self) -> bool:
        return not self._inflate.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)


class Member(io.RawIOBase):
    """What one member holds.

    Parameters
    ----------
    file : file
        Seekable.
    start : int
        Byte at which the member starts.
    bzip2 : bool
        Else gzip.

    Attributes
    ----------
    end : int or None
        Byte after the member, once it was read to its end.
    """

    def __init__(self, file: IO[bytes], start: int, bzip2: bool = False) -> None:
        self.start = start
        self.end: int | None = None
        self._file = file
        self._expander: Any = bz2.BZ2Decompressor() if bzip2 else _Inflate()
        file.seek(start)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill a part of the buffer; 0 at the end of the member."""
        while self.end is None:
            data = self._expand(len(target))
            if self._expander.eof:
                self.end = self._file.tell() - len(self._expander.unused_data)
            if data:
                target[: len(data)] = data
                return len(data)
        return 0

    def _expand(self, size: int) -> bytes:
        stored = b""
        if self._expander.needs_input:
            stored = self._file.read(_BLOCK)
            if not stored:
                raise DamageError("archive-cut-short", f"byte {self.start}", "a member has no end")
        try:
            data: bytes = self._expander.decompress(stored, size)
        except (zlib.error, OSError) as error:
            raise DamageError("archive-damaged", f"byte {self.start}", str(error)) from error
        return data


class Run:
    """The content of members that follow each other, as one stream.

    Parameters
    ----------
    file : file
        Seekable.
    start : int
        Byte at which the first member starts.
    ends_at : callable
        Whether the run ends before the member that starts at a byte.
    bzip2 : bool

    Attributes
    ----------
    member : Member
        The one that is read now.
    end : int or None
        Byte after the run, once it was read to its end.
    """

    def __init__(
        self, file: IO[bytes], start: int, ends_at: Callable[[int], bool], bzip2: bool = False
    ) -> None:
        self._size = file.seek(0, io.SEEK_END)
        self._file = file
        self._ends_at = ends_at
        self._bzip2 = bzip2
        self.member = Member(file, start, bzip2)
        self.end: int | None = None

    def read(self, size: int = _BLOCK) -> bytes:
        """Return up to ``size`` bytes; none at the end."""
        while self.end is None:
            data = self.member.read(size)
            if data:
                return data
            after = self.member.end or self._size
            if after >= self._size or self._ends_at(after):
                self.end = after
            else:
                self.member = Member(self._file, after, self._bzip2)
        return b""

    def pass_over(self) -> int:
        """Read to the end; return the byte after the run."""
        while self.end is None:
            self.read()
        return self.end


def begins(file: IO[bytes], position: int, content: bytes) -> bool:
    """Whether a gzip member stands at a byte and its content begins so."""
    expander = zlib.decompressobj(16 + zlib.MAX_WBITS)
    return _first_bytes(file, position, expander, _GZIP_HEAD).startswith(content)


def find_gzip_member(file: IO[bytes], start: int, content: bytes) -> int | None:
    """Return the byte of the next member whose content begins so, or None."""
    found = find_all(file, start, b"\x1f\x8b\x08")
    return next((position for position in found if begins(file, position, content)), None)


def find_bzip2_member(file: IO[bytes], start: int, accept: Callable[[bytes], bool]) -> int | None:
    """Return the byte of the next stream whose first bytes are accepted, or None."""
    # A stream begins with its block size, one digit, and the mark of its first block.
    for mark in find_all(file, start + 4, b"1AY&SY"):
        file.seek(mark - 4)
        if file.read(3) == b"BZh" and accept(
            _first_bytes(file, mark - 4, bz2.BZ2Decompressor(), _BZIP2_BLOCK)
        ):
            return mark - 4
    return None


def _first_bytes(file: IO[bytes], position: int, expander: Any, size: int) -> bytes:
    file.seek(position)
    try:
        data: bytes = expander.decompress(file.read(size), 64)
    except (zlib.error, OSError):
        return b""
    return data


def find_all(file: IO[bytes], start: int, pattern: bytes) -> Iterator[int]:
    """Yield every place of a pattern from a byte on; the file may be moved meanwhile."""
    overlap = len(pattern) - 1
    position, block = start, b""
    while True:
        file.seek(position + len(block))
        more = file.read(1 << 20)
        if not more:
            return
        block += more
        found = block.find(pattern)
        while found >= 0:
            yield position + found
            found = block.find(pattern, found + 1)
        # A pattern may stand across two blocks.
        done = max(0, len(block) - overlap)
        position, block = position + done, block[done:]
