"""From the sources of the corpora to pieces of work: one file, or one shard of a dataset."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from phrasemem import artifacts
from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read import ReadError, Source, format_of
from phrasemem.pipeline.read.hub import SCHEME
from phrasemem.pipeline.read.source import file_system, is_url

_LOCAL = "file://"
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Piece:
    """One source file, or a whole dataset that is streamed.

    Attributes
    ----------
    corpus : int
        Position of its corpus in the configuration.
    name : str
        Its file name, below the folder that a glob starts from, or the dataset's name: the same
        on every machine.
    location : str
        Local path, fsspec URL, or ``hf:NAME``.
    identity : str
        ``sha256:...`` of the file; of a remote one without a given checksum what its server says
        of it; of a dataset its name, configuration, split and revision.
    stamp : (int, int) or None
        Size and time of change, in ns, of a local file before its checksum was taken.
    """

    corpus: int
    name: str
    location: str
    identity: str
    stamp: tuple[int, int] | None = field(default=None, compare=False)

    @property
    def is_dataset(self) -> bool:
        """Whether it is streamed by the datasets package."""
        return self.location.startswith(SCHEME)


def find_pieces(corpora: list[Corpus], base: Path) -> list[Piece]:
    """Fetch, find and check every source.

    Parameters
    ----------
    corpora : list of Corpus
    base : Path
        The folder that relative paths start from.

    Raises
    ------
    ReadError
        If a file is missing, differs from its checksum, or has no known format.
    ArtifactError
        If a package member cannot be had.
    """
    pieces: list[Piece] = []
    for index, corpus in enumerate(corpora):
        for source, checksum in zip(corpus.sources, corpus.checksums, strict=True):
            pieces += _of_source(index, corpus, source, checksum, base)
    return _distinct(pieces)


def _distinct(pieces: Sequence[Piece]) -> list[Piece]:
    """Give each file of a corpus a name of its own: ids and fingerprints are made of it."""
    seen: Counter[tuple[int, str]] = Counter()
    distinct = []
    for piece in pieces:
        # The name of a file may be no text: bytes that are no UTF-8 are spelled out.
        name = piece.name.encode("utf-8", "backslashreplace").decode()
        seen[piece.corpus, name] += 1
        copies = seen[piece.corpus, name]
        name = name if copies == 1 else f"{name}~{copies}"
        distinct.append(replace(piece, name=name))
    return distinct


def _of_source(
    index: int, corpus: Corpus, source: str, checksum: str | None, base: Path
) -> Iterator[Piece]:
    if source.startswith(SCHEME):
        described = f"{source}|{corpus.config}|{corpus.split}|{corpus.revision}"
        yield Piece(index, source.removeprefix(SCHEME), source, described)
        return
    found = dict(_places(corpus, source, base))
    if not found:
        raise ReadError(f"corpus {corpus.name!r} has no such file", where=source)
    if checksum is not None and len(found) > 1:
        raise ReadError(
            f"corpus {corpus.name!r} has one sha256 for {len(found)} files", where=source
        )
    for name, location in sorted(found.items()):
        format_of(Source(location, name), corpus.format)
        stamp = stamp_of(location)
        yield Piece(index, name, location, _identity(corpus, location, checksum), stamp)


def _places(corpus: Corpus, source: str, base: Path) -> Iterator[tuple[str, str]]:
    """Yield name and location of each file: below the folder that a glob starts from."""
    if artifacts.is_reference(source):
        path = artifacts.fetch(source)
        yield path.name, str(path)
        return
    if is_url(source) and not source.startswith(_LOCAL):
        yield from _remote(source)
        return
    pattern = (base / Path(source.removeprefix(_LOCAL)).expanduser()).absolute()
    if not _WILDCARD.search(source):
        if not pattern.is_file():
            raise ReadError(f"corpus {corpus.name!r} has no such file", where=pattern)
        yield pattern.name, str(pattern)
        return
    fixed = next(parent for parent in pattern.parents if not _WILDCARD.search(str(parent)))
    for path in fixed.glob(str(pattern.relative_to(fixed))):
        if path.is_file():
            yield path.relative_to(fixed).as_posix(), str(path)


def _remote(source: str) -> Iterator[tuple[str, str]]:
    system, path = file_system(source)
    if not _WILDCARD.search(path):
        yield path.rpartition("/")[2], source
        return
    fixed = path[: _WILDCARD.search(path).start()].rpartition("/")[0]  # type: ignore[union-attr]
    for found in system.glob(path):
        yield found.removeprefix(fixed).lstrip("/"), system.unstrip_protocol(found)


def _identity(corpus: Corpus, location: str, checksum: str | None) -> str:
    """Return what changes with the content: the SHA-256, or what a server says of the file."""
    if is_url(location) and checksum is None:
        system, path = file_system(location)
        try:
            return f"fsspec:{system.checksum(path)}"
        except OSError as error:
            raise ReadError(
                f"corpus {corpus.name!r} has no such file: {error}", where=location
            ) from error
    found = sha256_of(location)
    if checksum not in (None, found):
        raise ReadError(
            f"the checksum of a source of corpus {corpus.name!r} differs",
            where=location,
            expected=checksum,
            found=found,
        )
    return f"sha256:{found}"


def stamp_of(location: str) -> tuple[int, int] | None:
    """Return what shows that a local file was written to; None of a remote or a missing one."""
    try:
        found = None if is_url(location) else Path(location).stat()
    except FileNotFoundError:
        return None
    return None if found is None else (found.st_size, found.st_mtime_ns)


def refuse_changed(pieces: Sequence[Piece]) -> None:
    """Fail if a local file was written to since its checksum was taken.

    Raises
    ------
    ReadError
    """
    for piece in pieces:
        if not piece.is_dataset and piece.stamp != stamp_of(piece.location):
            raise ReadError(
                "a source was changed while it was read",
                where=piece.location,
                hint="run the same command again: it is read anew",
            )


def sha256_of(location: str) -> str:
    """Return the SHA-256 of a file, here or behind a URL, in hexadecimal."""
    with Source(location, location).open() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
