"""Brings one blob here: continued where it was cut, each block checked as it arrives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import xxhash

from phrasemem.memfmt.adapters import FileEntry, entry_of
from phrasemem.memfmt.manifest import Listing
from phrasemem.memfmt.remote.errors import TransferError
from phrasemem.memfmt.remote.retry import Patience, UnfinishedError, failure_types, is_hopeless
from phrasemem.memfmt.remote.store import Store
from phrasemem.memfmt.remote.version import blob_name

_HINT = "publish this version again with: phrasemem push --check-blobs"

_ALTERED_IN_A_ROW = 3


class _AlteredError(UnfinishedError):
    """Bytes that are not those that were published."""


@dataclass(frozen=True)
class Blocks:
    """The checksums of a file's blocks, 16 hex digits each; none where only the whole has one."""

    size: int = 1 << 20
    digests: str = ""

    def agrees(self, number: int, block: bytes) -> bool:
        """Tell whether a block is as it was published; where there is no checksum, it is."""
        expected = self.digests[16 * number : 16 * number + 16]
        return not expected or xxhash.xxh3_64_hexdigest(block) == expected


def blocks_of(listing: Listing) -> dict[str, Blocks]:
    """Return those of all files that a manifest names, by path."""
    return {name: Blocks(listing.block_bytes, info.blocks) for name, info in listing.paths.items()}


def download(
    store: Store, entry: FileEntry, target: Path, blocks: Blocks, patience: Patience
) -> int:
    """Fetch a blob into a file.

    What stands in the file already, from a transfer that was cut, is kept as far as it is right.

    Parameters
    ----------
    store : Store
    entry : FileEntry
    target : Path
        Complete and equal to the published bytes afterwards; not flushed to the device.
    blocks : Blocks
    patience : Patience

    Returns
    -------
    int
        Bytes that travelled.

    Raises
    ------
    TransferError
        If the blob is missing, shorter, altered, or cannot be had.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()
    position = _right_prefix(target, entry, blocks)
    travelled = _fill(store, entry, target, blocks, patience, position)
    if entry_of(target) != entry and position:
        # What was kept had no checksums of its own: begin anew.
        travelled += _fill(store, entry, target, blocks, patience, 0)
    if (found := entry_of(target)) != entry:
        target.unlink()
        raise TransferError(
            "a blob was altered",
            expected=entry.sha256,
            found=found.sha256,
            where=store.where(blob_name(entry.sha256)),
            hint=_HINT,
        )
    return travelled


def _right_prefix(target: Path, entry: FileEntry, blocks: Blocks) -> int:
    """Return up to where a file that stands there is right, at a border of blocks."""
    length = target.stat().st_size
    if length > entry.bytes:
        return 0
    position = 0
    with target.open("rb") as file:
        while block := file.read(blocks.size):
            whole = len(block) == blocks.size or position + len(block) == entry.bytes
            if not whole or not blocks.agrees(position // blocks.size, block):
                break
            position += len(block)
    return position


def _fill(
    store: Store,
    entry: FileEntry,
    target: Path,
    blocks: Blocks,
    patience: Patience,
    position: int,
) -> int:
    """Fetch the bytes from `position` on; return how many were fetched."""
    name = blob_name(entry.sha256)
    first, failed = position, 0
    with target.open("r+b") as file:
        file.truncate(position)
        while position < entry.bytes:
            before = position
            try:
                for block in _blocks(
                    store.pieces(name, position, entry.bytes), blocks, entry, position
                ):
                    _write(file, block, position)
                    position += len(block)
                    _stop_if_told(patience, store.where(name))
            except FileNotFoundError as error:
                raise TransferError(
                    "a blob is missing", where=store.where(name), hint=_HINT
                ) from error
            except failure_types() as error:
                failed = 1 if position > before else failed + 1
                _refuse_wrong_blob(store, name, entry, error, failed)
                patience.after(failed, error, store.where(name))
        file.flush()
    return position - first


def _write(file: IO[bytes], block: bytes, position: int) -> None:
    file.seek(position)
    file.write(block)


def _stop_if_told(patience: Patience, where: str) -> None:
    if patience.stop.is_set():
        raise TransferError("stopped, since another transfer failed", where=where)


def _blocks(
    pieces: Iterator[bytes], blocks: Blocks, entry: FileEntry, position: int
) -> Iterator[bytes]:
    """Cut pieces into blocks that were found right.

    Of a cut transfer, the blocks that were complete are given out before the error is raised.
    """
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= blocks.size or position + len(held) == entry.bytes:
            block = bytes(held[: blocks.size])
            if not block:
                break
            if not blocks.agrees(position // blocks.size, block):
                raise _AlteredError(f"block {position // blocks.size} arrived altered")
            yield block
            position += len(block)
            del held[: len(block)]


def _refuse_wrong_blob(
    store: Store, name: str, entry: FileEntry, error: Exception, failed: int
) -> None:
    """Say so where the blob itself is wrong, instead of asking again and again."""
    if isinstance(error, _AlteredError):
        if failed >= _ALTERED_IN_A_ROW:
            raise TransferError(str(error), where=store.where(name), hint=_HINT) from error
        return
    if failed > 1 or not (isinstance(error, UnfinishedError) or is_hopeless(error)):
        return
    try:
        found = store.size(name)
    except failure_types():
        return  # it cannot be told now
    if found is not None and found != entry.bytes:
        raise TransferError(
            "a blob has the wrong length",
            expected=entry.bytes,
            found=found,
            where=store.where(name),
            hint=_HINT,
        ) from error
