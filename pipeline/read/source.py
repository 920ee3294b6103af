"""Where a reader reads: one file, here or behind any fsspec URL, or a span of it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from phrasemem.pipeline.read.document import ReadError

MAX_RECORD_BYTES = 1 << 26


def is_url(location: str) -> bool:
    """Whether a location names a file system that fsspec opens."""
    return "://" in location


@dataclass(frozen=True)
class Source:
    """One file, or the part of it that one task reads.

    Attributes
    ----------
    location : str
        Local path, or an fsspec URL.
    name : str
        What document ids are made of: it must not depend on the machine.
    span : (int, int) or None
        Start and end; a record belongs to the span in which it starts. Bytes of the file as it is
        stored, or ordinals of row groups or batches. None for the whole file.
    max_record_bytes : int
        Longer lines and records are left out; bounds the memory of a reader.
    """

    location: str
    name: str
    span: tuple[int, int] | None = None
    max_record_bytes: int = MAX_RECORD_BYTES

    @property
    def start(self) -> int:
        """Where the span starts."""
        return self.span[0] if self.span else 0

    def holds(self, position: int) -> bool:
        """Whether what starts at a position belongs to the span."""
        return self.span is None or self.span[0] <= position < self.span[1]

    def ends_before(self, position: int) -> bool:
        """Whether all that starts from a position on belongs to later spans."""
        return self.span is not None and position >= self.span[1]

    def open(self) -> IO[bytes]:
        """Open the file as it is stored.

        Raises
        ------
        ReadError
            If it is missing or cannot be read.
        """
        try:
            if not is_url(self.location):
                return Path(self.location).open("rb")
            import fsspec

            return cast("IO[bytes]", fsspec.open(self.location, "rb").open())
        except OSError as error:
            reason = error.strerror or str(error)
            raise ReadError(f"cannot read the source: {reason}", where=self.location) from error

    def open_seekable(self) -> IO[bytes]:
        """Open the file for a reader that goes back and forth.

        Raises
        ------
        ReadError
            If it is missing, or its server sends it from its start only.
        """
        file = self.open()
        try:
            file.seek(0, io.SEEK_END)
            file.seek(0)
        except (ValueError, OSError) as error:
            file.close()
            raise ReadError(
                "the server of this file cannot be asked for a part of it",
                where=self.location,
                hint="fetch the file first",
            ) from error
        return file

    def size(self) -> int | None:
        """Return the bytes of the file, or None where its server does not tell."""
        if not is_url(self.location):
            return Path(self.location).stat().st_size
        system, path = file_system(self.location)
        size = system.info(path).get("size")
        return None if size is None else int(size)

    def magic(self, length: int = 6) -> bytes:
        """Return the first bytes of the file."""
        with self.open() as file:
            return file.read(length)


def file_system(location: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(location)
    except (ValueError, ImportError) as error:
        raise ReadError(
            f"no file system for this URL: {error}",
            where=location,
            hint='pip install "phrasemem[remote]", [s3] or [hub]',
        ) from error
    return system, str(path)
