"""Adds payloads to a finished memory, whose own files never change, and removes them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from phrasemem.memfmt import durable
from phrasemem.memfmt.added_payload import (
    DESCRIPTION_NAME,
    AddedPayload,
    check_belongs,
    payload_folder,
    serialise,
)
from phrasemem.memfmt.checksums import check_blocks, file_info
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.files import check_lengths, finished_folders, read_manifest
from phrasemem.memfmt.layout import PayloadSpec, RowLayout, row_layout
from phrasemem.memfmt.manifest import (
    BLOCK_BYTES,
    PAYLOADS_NAME,
    Manifest,
    PayloadInfo,
    payload_info,
    used_features,
)
from phrasemem.memfmt.names import added_rows_name, rows_name
from phrasemem.memfmt.row_keys import read_row_keys
from phrasemem.memfmt.rows import write_rows
from phrasemem.memfmt.shard import Column

MakeColumn = Callable[[int, NDArray[np.uint8], NDArray[np.uint32]], Column]


def add_payload(memory: str | Path, spec: PayloadSpec, make: MakeColumn) -> AddedPayload:
    """Add a payload to a memory, in this process.

    Readers see it when it is complete. A kill leaves the memory as it was, with an unfinished
    folder that readers pass over and the next attempt replaces.

    Parameters
    ----------
    memory : path-like
    spec : PayloadSpec
        Of a name that the memory does not have.
    make : callable
        ``make(shard, lengths, tokens)`` gets the keys of one shard in row order, ``(n,) uint8``
        and ``(n, n_max) uint32``, and returns what is stored for them: ``(n, dim)`` vectors, or
        `Successors`. One shard at a time is in RAM.

    Returns
    -------
    AddedPayload

    Raises
    ------
    FormatError
        If the memory is damaged.
    PhraseMemError
        If the name is taken, or a column does not fit.
    """
    folder, manifest = Path(memory), read_manifest(Path(memory))
    info = _new_payload(folder, manifest, spec)
    final = payload_folder(folder, info.name)
    with _locked(final):
        staging = durable.fresh_staging(final)
        try:
            for shard in range(len(manifest.shards)):
                keys = _shard_keys(folder, manifest, shard)
                _write(folder, manifest, info, shard, keys, make(shard, *keys))
            return _seal(final, manifest, info)
        finally:
            # A full disk must not stay full of what was not finished.
            shutil.rmtree(staging, ignore_errors=True)


def shard_keys(memory: str | Path, shard: int) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Read the keys of a shard in row order, compared with their checksums.

    Returns
    -------
    lengths : (n,) uint8
    tokens : (n, n_max) uint32
    """
    return _shard_keys(Path(memory), read_manifest(Path(memory)), shard)


def write_payload_shard(memory: str | Path, spec: PayloadSpec, shard: int, column: Column) -> None:
    """Write the rows of one shard of a payload that is being added, and flush them.

    Takes plain data, so that it runs in any process, at the same time for different shards.
    Writing a shard again, after a kill, gives the same bytes.

    Parameters
    ----------
    memory : path-like
    spec : PayloadSpec
    shard : int
    column : (n, dim) float32 or float16, or Successors
        For the keys that :func:`shard_keys` gives, in their order.

    Raises
    ------
    FormatError
        If the memory is damaged.
    PhraseMemError
        If the name is taken, or the column does not fit.
    """
    folder, manifest = Path(memory), read_manifest(Path(memory))
    info = _new_payload(folder, manifest, spec)
    _write(folder, manifest, info, shard, _shard_keys(folder, manifest, shard), column)


def finish_payload(memory: str | Path, spec: PayloadSpec) -> AddedPayload:
    """Complete a payload all shards of which were written, and give it its name.

    What a killed attempt left of shards counts as written: whoever goes on from there must know
    that it is what they would write.

    Raises
    ------
    FormatError
        If a shard is missing, or was not written whole.
    PhraseMemError
        If the name is taken.
    """
    folder, manifest = Path(memory), read_manifest(Path(memory))
    info = _new_payload(folder, manifest, spec)
    final = payload_folder(folder, info.name)
    with _locked(final):
        for shard in range(len(manifest.shards)):
            path = durable.staging_for(final) / added_rows_name(shard)
            _check_written(folder, path, manifest, shard, info)
        return _seal(final, manifest, info)


def remove_payload(memory: str | Path, name: str) -> None:
    """Remove a payload that was added, also one that does not belong to the memory.

    Readers that have it open keep it.

    Raises
    ------
    FormatError
        If no payload of that name was added.
    """
    there = {path.name: path for path in finished_folders(Path(memory), PAYLOADS_NAME)}
    if name not in there:
        raise FormatError(
            Reason.PAYLOAD_MISSING,
            "no such payload was added to this memory",
            expected=sorted(there),
            found=name,
            where=memory,
        )
    with _locked(there[name]):
        # Under its name it is whole, or it is not there.
        there[name].rename(durable.replaced_by(there[name]))
        durable.sync_path(there[name].parent)
        _remove_aside(there[name])


@contextmanager
def _locked(final: Path) -> Iterator[None]:
    """Keep others from writing the same payload, and remove what a killed removal left."""
    final.parent.mkdir(exist_ok=True)
    with FileLock(final.with_name(f".{final.name}.lock")):
        _remove_aside(final)
        yield


def _remove_aside(final: Path) -> None:
    shutil.rmtree(durable.replaced_by(final), ignore_errors=True)


def _new_payload(memory: Path, manifest: Manifest, spec: PayloadSpec) -> PayloadInfo:
    info = payload_info(spec, _layout(manifest, spec))
    taken = {payload.name for payload in manifest.payloads}
    taken |= {path.name for path in finished_folders(memory, PAYLOADS_NAME)}
    if info.name in taken:
        raise PhraseMemError(
            "the memory has a payload of this name already",
            found=repr(info.name),
            where=memory,
            hint="choose another, or remove it",
        )
    return info


def _layout(manifest: Manifest, payload: PayloadSpec | PayloadInfo) -> RowLayout:
    vocab_size = manifest.tokenizer.vocab_size
    return row_layout(manifest.n_max, vocab_size, payload.kind, payload.dim, payload.dtype)


def _shard_keys(
    memory: Path, manifest: Manifest, shard: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    # The narrowest rows hold the same keys in the fewest bytes.
    payload = min(manifest.payloads, key=lambda payload: payload.stride)
    name = rows_name(shard, payload.name)
    info = manifest.files[name]
    check_lengths(memory, {name: info})
    check_blocks(memory / name, info, manifest.block_bytes)
    return read_row_keys(memory / name, manifest, shard, payload)


def _write(
    memory: Path,
    manifest: Manifest,
    info: PayloadInfo,
    shard: int,
    keys: tuple[NDArray[np.uint8], NDArray[np.uint32]],
    column: Column,
) -> None:
    layout = _layout(manifest, info)
    layout.check_column(column, len(keys[0]), info.name)
    path = durable.staging_for(payload_folder(memory, info.name)) / added_rows_name(shard)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path, layout.encode(*keys, column))
    durable.sync_tree(path.parent)


def _seal(final: Path, manifest: Manifest, info: PayloadInfo) -> AddedPayload:
    """Describe what was written, flush it all, the description last, and give it its name."""
    staging = durable.staging_for(final)
    names = [added_rows_name(shard) for shard in range(len(manifest.shards))]
    # Hashing releases the GIL; files are large, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        infos = pool.map(lambda name: file_info(staging / name, BLOCK_BYTES), names)
        files = dict(zip(names, infos, strict=True))
    added = AddedPayload(
        reader_features=used_features([info]),
        base=manifest.checksum,
        payload=info,
        block_bytes=BLOCK_BYTES,
        files=files,
    )
    check_belongs(added, info.name, manifest, manifest.checksum, staging)
    durable.remove_unlisted(staging, set(names))
    durable.sync_tree(staging)
    durable.write_file(staging / DESCRIPTION_NAME, serialise(added))
    durable.sync_path(staging)
    durable.move_into_place(staging, final)
    return added


def _check_written(
    memory: Path, path: Path, manifest: Manifest, shard: int, info: PayloadInfo
) -> None:
    """Refuse rows that a kill has cut short, or that are of other keys."""
    if not path.is_file():
        raise FormatError(
            Reason.FILE_MISSING,
            "a shard of the payload was not written",
            where=path,
            hint="write it again",
        )
    lengths, tokens = read_row_keys(path, manifest, shard, info)
    own = _shard_keys(memory, manifest, shard)
    if not (np.array_equal(lengths, own[0]) and np.array_equal(tokens, own[1])):
        raise FormatError(
            Reason.ROWS_DAMAGED,
            "the rows have other keys than the memory",
            where=path,
            hint="write it again",
        )
