"""Opening plain and compressed files; a damaged archive is one clear error that names the file."""

from __future__ import annotations

import bz2
import gzip
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from phrasemem.pipeline.read.document import ReadError

_GZIP = b"\x1f\x8b"
_BZIP2 = b"BZh"
_ZIP = b"PK\x03\x04"


def magic(path: Path) -> bytes:
    """Return the first bytes of a file.

    Raises
    ------
    ReadError
        If the file is missing or cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(4)
    except OSError as error:
        raise ReadError(f"cannot read the source: {error.strerror}", where=path) from error


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a plain, gzip or bzip2 file for reading, by its content and not its name.

    Raises
    ------
    ReadError
        If the file is missing, or the archive turns out damaged while it is read.
    """
    start = magic(path)
    with archive_errors(path):
        if start.startswith(_GZIP):
            with gzip.open(path) as file:
                yield cast("IO[bytes]", file)
        elif start.startswith(_BZIP2):
            with bz2.open(path) as file:
                yield cast("IO[bytes]", file)
        else:
            with path.open("rb") as plain:
                yield plain


@contextmanager
def opened_in_zip(path: Path, suffix: str) -> Iterator[IO[bytes]]:
    """Open the one member of a zip archive whose name ends in ``suffix``."""
    if not magic(path).startswith(_ZIP):
        raise ReadError("not a zip archive, or an empty one", where=path)
    with archive_errors(path), zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.lower().endswith(suffix)]
        if len(names) != 1:
            raise ReadError(
                "the archive must have one member of its kind",
                expected=f"one *{suffix}",
                found=names or archive.namelist(),
                where=path,
            )
        with archive.open(names[0]) as member:
            yield member


@contextmanager
def archive_errors(path: Path) -> Iterator[None]:
    """Turn what gzip, bz2 and zipfile raise on damage into one clear error."""
    try:
        yield
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise ReadError(
            f"the archive is damaged or cut short: {error}",
            where=path,
            hint="fetch the file again",
        ) from error
    except OSError as error:
        # bz2 has no error class of its own: an OSError without errno is its.
        if error.errno is not None:
            raise
        raise ReadError(
            f"the archive is damaged: {error}", where=path, hint="fetch the file again"
        ) from error
