"""Opening plain and compressed files; damage is one clear exception that names the place."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from phrasemem.pipeline.read.document import DamageError, is_of_the_content
from phrasemem.pipeline.read.source import Source

GZIP = b"\x1f\x8b"
BZIP2 = b"BZh"
# Arrow's streams lose what they expanded in the call that meets the damage: so small calls.
_ARROW_READ = 4096
# deflate stays below 1,032 to 1. The others reach tens of thousands, but not with text.
_MOST_EXPANSION = 2000
_ANY_EXPANSION_UP_TO = 1 << 28


def _arrow(codec: str) -> Callable[[IO[bytes]], Any]:
    def expander(file: IO[bytes]) -> Any:
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)

    return expander


# gzip, bz2 and lzma give out all that stands before a damage.
_EXPANDERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    GZIP: gzip.open,
    BZIP2: bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x28\xb5\x2f\xfd": _arrow("zstd"),
    b"\x04\x22\x4d\x18": _arrow("lz4"),
}


def compression(start: bytes) -> bytes | None:
    """Return the magic number that a file starts with, or None for a plain file."""
    return next((magic for magic in _EXPANDERS if start.startswith(magic)), None)


class Expanded(io.RawIOBase):
    """What a compressed file holds; :class:`DamageError` where it is cut short or damaged.

    Parameters
    ----------
    expander
        The open stream of a decompressor.
    stored : file
        The file below, for the place of a damage.
    """

    def __init__(self, expander: Any, stored: IO[bytes]) -> None:
        self._expander = expander
        self._stored = stored
        self._most = 1 << 16 if isinstance(expander, io.IOBase) else _ARROW_READ
        self._given = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill a part of the buffer; 0 at the end."""
        try:
            data = self._expander.read(min(len(target), self._most))
        except EOFError as error:
            raise self._damage("archive-cut-short", error) from error
        except (zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
            raise self._damage("archive-damaged", error) from error
        except OSError as error:
            if not is_of_the_content(error):
                raise
            cut = "Truncated" in str(error)
            reason = "archive-cut-short" if cut else "archive-damaged"
            raise self._damage(reason, error) from error
        target[: len(data)] = data
        self._given += len(data)
        self._check_expansion()
        return len(data)

    def _check_expansion(self) -> None:
        if self._given > _ANY_EXPANSION_UP_TO:
            stored = self._stored.tell()
            if self._given > _MOST_EXPANSION * stored:
                raise DamageError(
                    "expands-too-far", f"byte {stored}", f"{self._given} bytes of {stored}"
                )

    def _damage(self, reason: str, error: Exception) -> DamageError:
        return DamageError(reason, f"byte {self._stored.tell()}", str(error))


@contextmanager
def opened(source: Source) -> Iterator[io.BufferedReader]:
    """Open a plain or compressed file (gzip, bzip2, xz, zstd, lz4), by its content.

    The span of the source is not looked at.

    Raises
    ------
    ReadError
        If the file is missing.
    DamageError
        While it is read, if it turns out damaged.
    """
    magic = compression(source.magic())
    with source.open() as file:
        if magic is None:
            yield _buffered(file)
            return
        with _EXPANDERS[magic](file) as expander:
            yield io.BufferedReader(Expanded(expander, file), 1 << 16)


def _buffered(file: IO[bytes]) -> io.BufferedReader:
    if isinstance(file, io.BufferedReader):
        return file
    return io.BufferedReader(cast("io.RawIOBase", file), 1 << 16)


@contextmanager
def opened_in_zip(source: Source, suffix: str) -> Iterator[io.BufferedReader]:
    """Open the one member of a zip archive whose name ends in ``suffix``.

    It is read where it lies: nothing is unpacked, so the path that a member claims is not used.
    """
    with source.open() as file:
        try:
            archive = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise DamageError("archive-damaged", "byte 0", str(error)) from error
        with archive:
            names = [name for name in archive.namelist() if name.lower().endswith(suffix)]
            if len(names) != 1:
                found = f"{len(names)} members *{suffix} of {len(archive.namelist())}, not one"
                raise DamageError("wrong-members", "the archive", found)
            try:
                member = archive.open(names[0])
            except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
                raise DamageError("archive-damaged", "the archive", str(error)) from error
            with member:
                yield io.BufferedReader(Expanded(member, file), 1 << 16)
