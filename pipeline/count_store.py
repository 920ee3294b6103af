"""The count store beside a memory: what was counted, down to once, so that corpora can be added.

``OUT.counts`` is no part of the memory and is not published. It holds ``bucket-NNNNN.parquet``
(a row for each n-gram and corpus, by buckets of the n-gram's hash, sorted by tokens),
``documents.parquet`` (content hashes of the documents, hashes of their titles, and their corpora)
and, last, ``counts.json``, which names the memory it belongs to and every file with its checksum.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from phrasemem import artifacts
from phrasemem.memfmt import durable
from phrasemem.memfmt.canonical import checksum_of, sealed
from phrasemem.memfmt.errors import FormatError, PhraseMemError
from phrasemem.memfmt.manifest import MANIFEST_NAME, Manifest, parse_manifest
from phrasemem.memfmt.sealed import Kind, read_sealed

HEAD_FILE = "counts.json"
DOCUMENTS_FILE = "documents.parquet"
_KIND = Kind("phrasemem.counts", "1.0", frozenset(), "count store", HEAD_FILE)

_BUCKETS = [1 << bits for bits in range(17)]


class CountStoreError(PhraseMemError):
    """A count store that is damaged or belongs to another memory."""


@dataclass(frozen=True)
class CountStore:
    """A count store that was checked.

    Attributes
    ----------
    path : Path
    buckets : int
        A power of two.
    checksum : str
        Of the head, and so of everything.
    """

    path: Path
    buckets: int
    checksum: str

    def bucket(self, number: int) -> str:
        """Return the file of a bucket."""
        return str(self.path / bucket_name(number))

    @property
    def documents(self) -> str:
        """The file of the documents."""
        return str(self.path / DOCUMENTS_FILE)


def bucket_name(number: int) -> str:
    """Return the name of a bucket's file."""
    return f"bucket-{number:05d}.parquet"


def store_path(memory: Path) -> Path:
    """Return where the count store of a memory stands."""
    return memory.with_name(f"{memory.name}.counts")


def write_store(path: Path, memory: Manifest, buckets: Sequence[str], documents: str) -> None:
    """Copy what a build counted to its place; it appears whole or not at all.

    Parameters
    ----------
    path : Path
        A store that stands there is replaced.
    memory : Manifest
        Of the memory that it belongs to.
    buckets : sequence of str
        Files of the stage ``store``; their number is a power of two.
    documents : str
        File of the stage ``select``.
    """
    refuse_other_folder(path)
    staging = durable.fresh_staging(path)
    for number, source in enumerate(buckets):
        shutil.copyfile(source, staging / bucket_name(number))
    shutil.copyfile(documents, staging / DOCUMENTS_FILE)
    head = {
        "magic": _KIND.magic,
        "format_version": _KIND.version,
        "reader_features": [],
        "memory": memory.checksum,
        "tokenizer": memory.tokenizer.fingerprint,
        "n_max": memory.n_max,
        "buckets": len(buckets),
        "corpora": [corpus.model_dump(mode="json") for corpus in memory.corpora],
        "files": {
            file.name: {"bytes": file.stat().st_size, "sha256": artifacts.sha256_of(file)}
            for file in sorted(staging.iterdir())
        },
    }
    durable.sync_tree(staging)
    durable.write_file(staging / HEAD_FILE, sealed(head))
    durable.sync_path(staging)
    durable.move_into_place(staging, path)


def refuse_other_folder(path: Path) -> None:
    """Refuse to replace something that is no count store.

    Raises
    ------
    CountStoreError
    """
    if path.exists() and any(path.iterdir()) and not (path / HEAD_FILE).is_file():
        raise CountStoreError(
            "this folder holds something else than counts", where=path, hint="move it away"
        )


def stands_beside(memory: Path) -> bool:
    """Tell whether a memory has its count store; the store's files are not looked at."""
    path = memory / MANIFEST_NAME
    try:
        checksum = parse_manifest(path.read_bytes(), path).checksum
        return bool(_head(store_path(memory))["memory"] == checksum)
    except (FileNotFoundError, FormatError, CountStoreError):
        return False


def open_store(path: Path, memory: Manifest) -> CountStore | None:
    """Check the store of a memory, every byte of it; None if there is none.

    Raises
    ------
    CountStoreError
        If a file is damaged, or it belongs to another memory.
    FormatError
        If its head is damaged.
    """
    try:
        head = _head(path)
    except FileNotFoundError:
        return None
    if head["memory"] != memory.checksum:
        raise CountStoreError(
            "these counts belong to another memory",
            where=path,
            expected=memory.checksum,
            found=head["memory"],
            hint="move them away to do without, or build with --keep-counts again",
        )
    listed = {DOCUMENTS_FILE, *map(bucket_name, range(head["buckets"]))}
    if set(head["files"]) != listed:
        raise CountStoreError(
            "the counts list other files than they need",
            where=path,
            found=sorted(set(head["files"]) ^ listed)[0],
        )
    for name in sorted(listed):
        _check(path / name, head["files"][name])
    if "corpus" not in pq.read_schema(path / DOCUMENTS_FILE).names:
        raise CountStoreError(
            "these counts do not say which corpus a document is of",
            where=path,
            hint="build with --keep-counts again",
        )
    return CountStore(path, int(head["buckets"]), str(head["checksum"]))


def _head(path: Path) -> dict[str, Any]:
    """Read the head with its checksum; FileNotFoundError if there is none."""
    file = path / HEAD_FILE
    head = read_sealed(file.read_bytes(), file, _KIND)
    if not (
        isinstance(head.get("memory"), str)
        and isinstance(head.get("files"), dict)
        and head.get("buckets") in _BUCKETS
    ):
        raise CountStoreError("the head of the counts lacks something", where=file)
    return head | {"checksum": checksum_of(head)}


def _check(path: Path, entry: dict[str, Any]) -> None:
    found = path.stat().st_size if path.is_file() else None
    if found != entry["bytes"]:
        raise CountStoreError(
            "a file of the counts has another length",
            where=path,
            expected=entry["bytes"],
            found=found,
        )
    if artifacts.sha256_of(path) != entry["sha256"]:
        raise CountStoreError("a file of the counts was altered", where=path)
