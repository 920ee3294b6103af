"""Brings blobs to a registry: only those that it does not hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from phrasemem.memfmt.adapters import FileEntry
from phrasemem.memfmt.remote.errors import TransferError
from phrasemem.memfmt.remote.parallel import run_all
from phrasemem.memfmt.remote.retry import Patience
from phrasemem.memfmt.remote.store import Store
from phrasemem.memfmt.remote.version import blob_name


def send_blobs(
    store: Store,
    folder: Path,
    files: dict[str, FileEntry],
    check_blobs: bool,
    workers: int,
    patience: Patience,
) -> list[int]:
    """Write the blobs that are missing; return how many, and how many bytes."""
    sent: list[int] = []

    def job(path: str, entry: FileEntry) -> None:
        name = blob_name(entry.sha256)
        where = store.where(name)
        if not patience.call(where, lambda: _is_there(store, name, entry, check_blobs)):
            write(patience, where, lambda: _send(store, name, folder / path, entry))
            sent.append(entry.bytes)

    unique = {entry.sha256: (path, entry) for path, entry in files.items()}
    order = sorted(unique.values(), key=lambda item: (-item[1].bytes, item[0]))
    run_all([partial(job, *item) for item in order], store.writers or workers, patience)
    return [len(sent), sum(sent)]


def _is_there(store: Store, name: str, entry: FileEntry, check: bool) -> bool:
    if store.size(name) != entry.bytes:
        return False
    if not check:
        return True
    digest = hashlib.sha256()
    for piece in store.pieces(name, 0, entry.bytes):
        digest.update(piece)
    return digest.hexdigest() == entry.sha256


def _send(store: Store, name: str, path: Path, entry: FileEntry) -> None:
    store.put_file(name, path)
    if (found := store.size(name)) != entry.bytes:
        raise OSError(f"{entry.bytes} bytes were sent, but {found} are there")


def write(patience: Patience, where: str, action: Callable[[], None]) -> None:
    """Write something, trying again where that may help.

    Raises
    ------
    TransferError
        If it cannot be written, or the place, such as a bucket, is not there.
    """
    try:
        patience.call(where, action)
    except FileNotFoundError as error:
        raise TransferError("there is no such place to write to", where=where) from error
