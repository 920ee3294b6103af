"""Checksums of files: sha256 of the whole, xxh3-64 of each block."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import xxhash

from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.manifest import FileInfo


def file_info(path: Path, block_bytes: int) -> FileInfo:
    """Read a file once and return its length and checksums."""
    whole = hashlib.sha256()
    blocks, length = [], 0
    for block in _blocks(path, block_bytes):
        whole.update(block)
        blocks.append(xxhash.xxh3_64_hexdigest(block))
        length += len(block)
    return FileInfo(bytes=length, sha256=whole.hexdigest(), blocks="".join(blocks))


def check_blocks(path: Path, info: FileInfo, block_bytes: int) -> None:
    """Compare each block of a file with its checksum; the first that differs is named.

    Raises
    ------
    FormatError
        With the bytes to fetch again.
    """
    for number, block in enumerate(_blocks(path, block_bytes)):
        _check_block(block, number, path, info, block_bytes)


def check_bytes(data: bytes, path: Path, info: FileInfo, block_bytes: int) -> None:
    """Compare each block of a file that was read as a whole with its checksum.

    Raises
    ------
    FormatError
        With the bytes to fetch again.
    """
    view = memoryview(data)
    for number in range(-(-len(data) // block_bytes)):
        block = view[number * block_bytes : (number + 1) * block_bytes]
        _check_block(block, number, path, info, block_bytes)


def check_file(path: Path, info: FileInfo, block_bytes: int) -> None:
    """Compare each block and the whole of a file with its checksums.

    Raises
    ------
    FormatError
        With the bytes to fetch again.
    """
    whole = hashlib.sha256()
    for number, block in enumerate(_blocks(path, block_bytes)):
        _check_block(block, number, path, info, block_bytes)
        whole.update(block)
    if whole.hexdigest() != info.sha256:
        raise FormatError(
            Reason.FILE_CHECKSUM,
            "a file was altered",
            expected=info.sha256,
            found=whole.hexdigest(),
            where=path,
            hint="fetch this file again",
        )


def _check_block(
    block: bytes | memoryview, number: int, path: Path, info: FileInfo, block_bytes: int
) -> None:
    expected = info.blocks[16 * number : 16 * number + 16]
    found = xxhash.xxh3_64_hexdigest(block)
    if found != expected:
        begin = number * block_bytes
        raise FormatError(
            Reason.BLOCK_CHECKSUM,
            f"block {number} was altered",
            expected=expected,
            found=found,
            where=path,
            hint=f"fetch bytes {begin}-{begin + len(block) - 1} of this file again",
        )


def _blocks(path: Path, block_bytes: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while block := file.read(block_bytes):
            yield block
