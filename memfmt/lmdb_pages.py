"""Checks that the pages of an LMDB file form a tree inside the file.

LMDB trusts its file: a page number or an offset that is wrong is followed, and the process dies or
never ends. Checksums find what a disk has altered, not what somebody wrote. What is checked here
is all that LMDB follows when it reads; the order of keys is left to who reads them.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.errors import FormatError, Reason

_HEADER = struct.Struct("<QHHHH")  # number, -, flags, lower, upper; lower and upper of a run: pages
_META = struct.Struct("<IIQQ")  # magic, version, address, map size
_DATABASE = struct.Struct("<IHHQQQQQ")  # page size, flags, depth, pages of 3 kinds, entries, root
_LAST = struct.Struct("<QQ")  # last page, transaction
_NODE_BYTES = 8
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _RUN, _META_PAGE = 1, 2, 4, 8
_IN_RUN = 1
_NO_PAGE = (1 << 64) - 1
_PAGE_SIZES = [1 << bits for bits in range(9, 17)]
_DEEPEST = 30
_LONGEST_KEY = 511


class _Root(NamedTuple):
    transaction: int
    pages: int
    page_bytes: int
    root: int


def check_pages(path: Path) -> None:
    """Refuse a file that LMDB cannot read safely.

    Parameters
    ----------
    path : Path
        A file that LMDB wrote on a machine with 64 bits, little-endian.

    Raises
    ------
    FormatError
        With the first page that is wrong.
    """
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except ValueError as error:
            raise _refused(path, 0, "the file is empty") from error
    # Unmapped when nobody holds a page any more.
    _Tree(data, path).check()


def _refused(path: Path, page: int, message: str) -> FormatError:
    return FormatError(
        Reason.KEYS_DAMAGED,
        f"LMDB could not read the keys safely: {message}",
        where=f"{path}, page {page}",
        hint="fetch this file again",
    )


class _Tree:
    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self._path = data, path
        first = self._meta(0, 0)
        # As LMDB does it: of equal transactions the first counts.
        second = self._meta(1, first.page_bytes)
        if second.page_bytes != first.page_bytes:
            raise self._refused(1, "two page sizes")
        newest = second if second.transaction > first.transaction else first
        self._pages, self._page_bytes, self._root = newest[1:]
        self._seen = bytearray(self._pages)
        self._seen[:2] = b"\1\1"

    def check(self) -> None:
        """Follow all pages, level by level; all leaves are on the last."""
        level = [self._root] if self._root != _NO_PAGE else []
        for _ in range(_DEEPEST):
            if not level:
                return
            kinds = {self._flags(page) for page in level}
            if kinds == {_LEAF}:
                for page in level:
                    self._check_leaf(page)
                return
            if kinds != {_BRANCH}:
                raise self._refused(level[0], "branches and leaves on one level")
            level = [child for page in level for child in self._children(page)]
        raise self._refused(self._root, "too deep")

    def _meta(self, page: int, offset: int) -> _Root:
        try:
            header = _HEADER.unpack_from(self._data, offset)
            magic, version, *_ = _META.unpack_from(self._data, offset + _HEADER.size)
            place = offset + _HEADER.size + _META.size
            free = _DATABASE.unpack_from(self._data, place)
            main = _DATABASE.unpack_from(self._data, place + _DATABASE.size)
            last, transaction = _LAST.unpack_from(self._data, place + 2 * _DATABASE.size)
        except struct.error as error:
            raise self._refused(page, "the file is too short") from error
        if (header[2], magic, version) != (_META_PAGE, _MAGIC, _VERSION):
            raise self._refused(page, "not of LMDB")
        if free[0] not in _PAGE_SIZES or (last + 1) * free[0] > len(self._data) or last < 1:
            raise self._refused(page, "the file is too short for its pages")
        if main[1]:
            raise self._refused(page, "keys that stand more than once, or in another order")
        return _Root(transaction, last + 1, free[0], main[-1])

    def _flags(self, page: int) -> int:
        """Take a page into the tree, and return what it is."""
        if page >= self._pages:
            raise self._refused(page, "a page outside the file")
        if self._seen[page]:
            raise self._refused(page, "a page that stands in two places")
        self._seen[page] = 1
        number, _, flags, _, _ = _HEADER.unpack_from(self._data, page * self._page_bytes)
        if number != page:
            raise self._refused(page, f"it says that it is page {number}")
        return int(flags)

    def _nodes(
        self, page: int, least: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """Return a page, its nodes' four numbers, ``(n, 4)``, and where what follows each ends."""
        begin = page * self._page_bytes
        body = np.frombuffer(self._data, np.uint8, self._page_bytes, begin)
        count = (_HEADER.unpack_from(self._data, begin)[3] - _HEADER.size) // 2
        if not least <= count <= (self._page_bytes - _HEADER.size) // 2:
            raise self._refused(page, "a wrong number of keys")
        places = body[_HEADER.size : _HEADER.size + 2 * count].view("<u2").astype(np.int64)
        low, high = _HEADER.size + 2 * count, self._page_bytes - _NODE_BYTES
        if ((places < low) | (places > high)).any():
            raise self._refused(page, "a key outside its page")
        heads = body[places[:, None] + np.arange(_NODE_BYTES)].view("<u2").astype(np.int64)
        ends = places + _NODE_BYTES + heads[:, 3]
        if (heads[:, 3] > _LONGEST_KEY).any() or (ends > self._page_bytes).any():
            raise self._refused(page, "a key outside its page")
        return body, heads, ends

    def _children(self, page: int) -> list[int]:
        # With a single child LMDB would give up by ending the process.
        _, heads, _ = self._nodes(page, least=2)
        children: list[int] = (heads[:, 0] | heads[:, 1] << 16 | heads[:, 2] << 32).tolist()
        return children

    def _check_leaf(self, page: int) -> None:
        body, heads, ends = self._nodes(page, least=1)
        sizes, flags = heads[:, 0] | heads[:, 1] << 16, heads[:, 2]
        in_run = flags == _IN_RUN
        if (flags[~in_run] != 0).any():
            raise self._refused(page, "a value of an unknown kind")
        if (ends + np.where(in_run, 8, sizes) > self._page_bytes).any():
            raise self._refused(page, "a value outside its page")
        for end, size in zip(ends[in_run].tolist(), sizes[in_run].tolist(), strict=True):
            self._check_run(int(body[end : end + 8].view("<u8")[0]), size)

    def _check_run(self, page: int, size: int) -> None:
        """Check the pages of a value that is too long for a leaf."""
        if self._flags(page) != _RUN:
            raise self._refused(page, "no page of a long value")
        count = struct.unpack_from("<I", self._data, page * self._page_bytes + 12)[0]
        if page + count > self._pages or _HEADER.size + size > count * self._page_bytes:
            raise self._refused(page, "a long value outside its pages")

    def _refused(self, page: int, message: str) -> FormatError:
        return _refused(self._path, page, message)
