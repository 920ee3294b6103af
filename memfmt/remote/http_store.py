"""A registry on a web server: read-only, streamed, continued by range where the server can."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from phrasemem.memfmt.remote.retry import UnfinishedError
from phrasemem.memfmt.remote.store import Store

_PIECE_BYTES = 1 << 20


class HttpStore(Store):
    """Files behind URLs."""

    read_only = True

    def _head(self, name: str, size: int) -> bytes:
        data = b""
        with closing(self._get(name, 0)) as body:
            while len(data) < size and (piece := body.read(size - len(data))):
                data += piece
        return data

    def pieces(self, name: str, start: int, stop: int) -> Iterator[bytes]:
        """Read the bytes ``start..stop-1`` of a file in one request, in order.

        Where the server knows no ranges, what comes before `start` is read and thrown away.

        Raises
        ------
        UnfinishedError
            If the body ends before.
        """
        with closing(self._get(name, start)) as body:
            position = _first_byte(body.r)
            while position < stop:
                piece = bytes(body.read(min(_PIECE_BYTES, stop - position)))
                if not piece:
                    raise UnfinishedError(f"the file ends at byte {position} of {stop}")
                if position + len(piece) > start:
                    yield piece[max(0, start - position) :]
                position += len(piece)

    def size(self, name: str) -> int | None:
        """Return the length of a file; None if it is not there or the server does not tell."""
        try:
            with closing(self._get(name, 0)) as body:
                length = body.r.headers.get("Content-Length", "")
        except FileNotFoundError:
            return None
        return int(length) if length.isdecimal() else None

    def _get(self, name: str, start: int) -> Any:
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        # block_size 0: a stream, which is bounded by what is read from it, unlike cat_file.
        return self.filesystem.open(self.path(name), "rb", block_size=0, size=1, headers=headers)


def _first_byte(response: Any) -> int:
    """Return which byte of the file a response begins with."""
    if response.status != 206:
        return 0
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if found is None:
        raise UnfinishedError("a partial answer does not say which part it is")
    return int(found[1])
