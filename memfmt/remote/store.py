"""The files of a registry, over any fsspec file system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from phrasemem.memfmt.remote.errors import RegistryError
from phrasemem.memfmt.remote.retry import UnfinishedError

PIECE_BYTES = 8 << 20


class Store:
    """A folder on a file system whose writes appear whole or not at all, as on object stores.

    Errors are those of the file system: see :class:`phrasemem.memfmt.remote.retry.Patience`.
    Threads may share it.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
    root : str
        As that file system spells it.
    url : str
        For messages.
    writers : int, optional
        How many files may be written at once; as many as one likes if not given.
    """

    read_only = False

    def __init__(self, filesystem: Any, root: str, url: str, writers: int | None = None) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/")
        self.url = url
        self.writers = writers

    def where(self, name: str) -> str:
        """Return the URL of a file, for messages."""
        return f"{self.url}/{name}"

    def path(self, name: str) -> str:
        """Return the path of a file, for the file system."""
        return f"{self.root}/{name}"

    def read(self, name: str, limit: int) -> bytes:
        """Read a small file.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        RegistryError
            If it is longer than `limit`.
        """
        data = self._head(name, limit + 1)
        if len(data) > limit:
            raise RegistryError(
                "a file is too long", expected=f"<= {limit}", found="more", where=self.where(name)
            )
        return data

    def _head(self, name: str, size: int) -> bytes:
        self.filesystem.invalidate_cache()
        size = min(size, int(self.filesystem.info(self.path(name))["size"]))
        return bytes(self.filesystem.cat_file(self.path(name), start=0, end=size)) if size else b""

    def pieces(self, name: str, start: int, stop: int) -> Iterator[bytes]:
        """Read the bytes ``start..stop-1`` of a file, in order, a piece at a time.

        Raises
        ------
        UnfinishedError
            If the file ends before.
        """
        while start < stop:
            end = min(stop, start + PIECE_BYTES)
            piece = bytes(self.filesystem.cat_file(self.path(name), start=start, end=end))
            if not piece:
                raise UnfinishedError(f"the file ends at byte {start} of {stop}")
            yield piece[: end - start]
            start += min(len(piece), end - start)

    def size(self, name: str) -> int | None:
        """Return the length of a file; None if it is not there or the length is not told."""
        self.filesystem.invalidate_cache()
        try:
            info = self.filesystem.info(self.path(name))
        except FileNotFoundError:
            return None
        return None if info.get("type") == "directory" else info.get("size")

    def names(self, folder: str) -> list[str]:
        """Return the names of what stands in a folder, sorted; none if there is no such folder."""
        self.filesystem.invalidate_cache()
        try:
            found = self.filesystem.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Surround the writes of one push."""
        yield

    def put_file(self, name: str, source: Path) -> None:
        """Write a file from one on this machine."""
        self.filesystem.put_file(str(source), self.path(name))

    def put(self, name: str, data: bytes) -> None:
        """Write a small file, in place of one that stands there."""
        self.filesystem.pipe_file(self.path(name), data)

    def create(self, name: str, data: bytes) -> None:
        """Write a small file that must not be there yet.

        Raises
        ------
        FileExistsError
        """
        if self.size(name) is not None:
            raise FileExistsError(self.where(name))
        self.filesystem.pipe_file(self.path(name), data, mode="create")

    def close(self) -> None:
        """Let go of connections."""
