"""Checks every byte of a memory, then everything that its parts say of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.added_payload import AddedPayload, read_added
from phrasemem.memfmt.checksums import check_file
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.files import check_lengths, check_nothing_else, read_manifest
from phrasemem.memfmt.index import build_index, read_index
from phrasemem.memfmt.key_map import KeyMap
from phrasemem.memfmt.keys import UInt64s, key_order, shard_of, token_key, tokens_hash
from phrasemem.memfmt.keystore import KeyStore
from phrasemem.memfmt.lmdb_pages import check_pages
from phrasemem.memfmt.manifest import MANIFEST_NAME, Manifest
from phrasemem.memfmt.names import (
    DICTIONARY_NAME,
    FILTER_NAME,
    index_name,
    keys_name,
    rows_name,
    shard_name,
)
from phrasemem.memfmt.reader import load_key_map
from phrasemem.memfmt.records import RecordCodec
from phrasemem.memfmt.row_keys import read_row_keys
from phrasemem.memfmt.suffix_filter import add_keys, empty_filter, read_filter


@dataclass(frozen=True)
class Report:
    """What was checked.

    Parameters
    ----------
    manifest : Manifest
    files : int
    bytes : int
        Of all files, without the manifests.
    added : tuple of AddedPayload
        The payloads that were added, by name.
    """

    manifest: Manifest
    files: int
    bytes: int
    added: tuple[AddedPayload, ...] = ()


def verify(path: str | Path) -> Report:
    """Check a memory completely, with the payloads that were added to it.

    First lengths, unlisted files and all checksums, so that nothing damaged is ever mapped;
    then, shard by shard, rows against Arrow, index against rows, and keys against rows, both
    ways. RAM: the keys of one shard.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    Report

    Raises
    ------
    FormatError
        At the first thing that is wrong, with the file, a reason, and what to fetch again.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    added = read_added(folder, manifest)
    listed = {MANIFEST_NAME, *(one.description for one in added)}
    for listing in (manifest, *added):
        check_lengths(folder, listing.paths)
        listed.update(listing.paths)
    check_nothing_else(folder, listed)
    for listing in (manifest, *added):
        for name, info in listing.paths.items():
            check_file(folder / name, info, listing.block_bytes)
    dictionary = (folder / DICTIONARY_NAME).read_bytes()
    key_map = load_key_map(folder, manifest)
    words = empty_filter(manifest.entries)
    for shard in range(len(manifest.shards)):
        lengths, tokens = _check_rows(folder, manifest, added, shard)
        _check_folded(folder, shard, tokens, key_map)
        _check_index(folder, manifest, shard, lengths, tokens)
        _check_keys(folder, manifest, shard, lengths, tokens, dictionary)
        add_keys(words, tokens, lengths, manifest.hash_seed)
    _check_filter(folder, manifest, words)
    sizes = [info.bytes for listing in (manifest, *added) for info in listing.paths.values()]
    return Report(manifest, len(sizes), sum(sizes), tuple(added))


def _check_rows(
    folder: Path, manifest: Manifest, added: Sequence[AddedPayload], shard: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Check the rows of all payloads of a shard, and return the keys they agree on."""
    files = [(info, rows_name(shard, info.name)) for info in manifest.payloads]
    first, *others = files + [(one.payload, one.rows(shard)) for one in added]
    lengths, tokens = read_row_keys(folder / first[1], manifest, shard, first[0])
    for payload, name in others:
        other = read_row_keys(folder / name, manifest, shard, payload)
        if not (np.array_equal(other[0], lengths) and np.array_equal(other[1], tokens)):
            raise FormatError(
                Reason.ROWS_DAMAGED,
                "two payloads hold different keys",
                expected=first[0].name,
                found=payload.name,
                where=folder / name,
            )
    return lengths, tokens


def _check_folded(
    folder: Path, shard: int, tokens: NDArray[np.uint32], key_map: KeyMap | None
) -> None:
    if key_map is not None and len(wrong := key_map.unfolded(tokens)):
        raise FormatError(
            Reason.KEY_NOT_FOLDED,
            "a key holds an id that another stands for",
            found=tokens[wrong[0]].tolist(),
            where=f"{folder / shard_name(shard)}, row {wrong[0]}",
        )


def _check_index(
    folder: Path,
    manifest: Manifest,
    shard: int,
    lengths: NDArray[np.uint8],
    tokens: NDArray[np.uint32],
) -> None:
    """Rebuild the index from the rows and compare."""
    path = folder / index_name(shard)
    stored = read_index(path.read_bytes(), path)
    hashes = tokens_hash(tokens, lengths, manifest.hash_seed)
    strays = np.flatnonzero(shard_of(hashes, manifest.shard_bits) != shard)
    falls = np.flatnonzero(hashes[1:] <= hashes[:-1]) + 1
    if len(wrong := np.union1d(strays, falls)):
        raise FormatError(
            Reason.INDEX_ROWS,
            "rows are not in hash order",
            where=f"{path.parent}, row {wrong[0]}",
        )
    try:
        rebuilt = build_index(
            hashes,
            lengths,
            tokens,
            shard=shard,
            shard_bits=manifest.shard_bits,
            bucket_bits=manifest.bucket_bits,
        )
    except PhraseMemError as error:
        raise FormatError(Reason.INDEX_ROWS, str(error), where=path) from error
    if not stored.equals(rebuilt):
        raise FormatError(Reason.INDEX_ROWS, "the index does not belong to the rows", where=path)


def _check_filter(folder: Path, manifest: Manifest, words: UInt64s) -> None:
    path = folder / FILTER_NAME
    if FILTER_NAME not in manifest.files:
        return
    if not np.array_equal(read_filter(path.read_bytes(), manifest.entries, path), words):
        raise FormatError(
            Reason.INDEX_ROWS, "the suffix filter does not belong to the rows", where=path
        )


def _check_keys(
    folder: Path,
    manifest: Manifest,
    shard: int,
    lengths: NDArray[np.uint8],
    tokens: NDArray[np.uint32],
    dictionary: bytes,
) -> None:
    """Walk through LMDB and the sorted keys of the rows side by side."""
    path = folder / keys_name(shard)
    check_pages(path)
    corpora = [corpus.name for corpus in manifest.corpora]
    store = KeyStore([path], [0], corpora, dictionary)
    codec = RecordCodec(corpora, dictionary)
    order = iter(key_order(tokens, lengths).tolist())
    previous = b""
    try:
        for key, row, packed in store.items(0):
            if key <= previous:
                raise FormatError(Reason.KEYS_ORDER, "keys are not in order", where=path)
            expected = next(order, None)
            if row != expected or key != token_key(tokens[row, : lengths[row]].tolist()):
                raise FormatError(
                    Reason.KEYS_ROWS,
                    "keys and rows differ",
                    expected=expected,
                    found=row,
                    where=path,
                )
            codec.decode(packed)
            previous = key
    finally:
        store.close()
    if (missing := next(order, None)) is not None:
        raise FormatError(Reason.KEYS_ROWS, "a row has no key", found=missing, where=path)
