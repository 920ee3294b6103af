"""Counts of single tokens, a corpus: ``unigrams.parquet`` of a memory.

With them, and with the counts in the catalogue, the scores of a memory can be computed again
without the text that it was built from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.stage import Report, appears

UNIGRAMS_FILE = "unigrams.parquet"


class UnigramsError(PhraseMemError):
    """A memory without counts of single tokens."""


@dataclass(frozen=True)
class Unigrams:
    """Counts of all tokens that occur.

    Attributes
    ----------
    corpora : tuple of str
    tokens : (k,) uint32, rising
    counts : (k, corpora) uint64
    documents : (k, corpora) uint32
        Documents that hold the token.
    """

    corpora: tuple[str, ...]
    tokens: NDArray[np.uint32]
    counts: NDArray[np.uint64]
    documents: NDArray[np.uint32]

    def totals(self) -> pa.Table:
        """Return a table of token and count, summed over the corpora."""
        totals = self.counts.sum(axis=1, dtype=np.int64)
        return pa.table({"token": self.tokens, "count": totals})

    def corpus_tokens(self) -> list[int]:
        """Return the tokens of each corpus."""
        return [int(total) for total in self.counts.sum(axis=0, dtype=np.uint64)]

    def write(self, path: Path) -> None:
        """Write ``unigrams.parquet``."""
        columns: dict[str, NDArray[np.generic]] = {"token": self.tokens}
        for place, name in enumerate(self.corpora):
            columns[f"count_{name}"] = self.counts[:, place]
        for place, name in enumerate(self.corpora):
            columns[f"documents_{name}"] = self.documents[:, place]
        # Ids mostly rise by one and small counts repeat: 75 KB where dictionaries for all take 186.
        with appears(path) as temporary:
            pq.write_table(
                pa.table(columns),
                temporary,
                compression="zstd",
                use_dictionary=[name for name in columns if name != "token"],
                column_encoding={"token": "DELTA_BINARY_PACKED"},
            )


def read_unigrams(path: Path, corpora: Sequence[str]) -> Unigrams:
    """Read the counts of some corpora.

    Raises
    ------
    UnigramsError
        If the file is missing or damaged, lacks one of the corpora, or its tokens do not rise.
    """
    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise UnigramsError(
            "the memory keeps no counts of single tokens", where=path, hint="build it again"
        ) from error
    except (pa.ArrowException, OSError) as error:
        first = " ".join(str(error).split())
        raise UnigramsError(
            f"the counts of single tokens cannot be read: {first}", where=path
        ) from error
    wanted = [f"{kind}_{name}" for kind in ("count", "documents") for name in corpora]
    if missing := [name for name in ("token", *wanted) if name not in table.column_names]:
        raise UnigramsError("columns are missing", where=path, expected=wanted, found=missing)
    for name in ("token", *wanted):
        column = table[name]
        if not pa.types.is_unsigned_integer(column.type) or column.null_count:
            raise UnigramsError(
                f"{name} is not a number in every row", where=path, found=column.type
            )
    tokens = table["token"].to_numpy()
    if (tokens[1:] <= tokens[:-1]).any():
        raise UnigramsError("single tokens do not rise", where=path)
    columns = [table[name].to_numpy() for name in wanted]
    shape = (len(table), len(corpora))
    return Unigrams(
        tuple(corpora),
        tokens,
        np.array(columns[: len(corpora)], np.uint64).reshape(shape[::-1]).T,
        np.array(columns[len(corpora) :], np.uint32).reshape(shape[::-1]).T,
    )


def unigrams_part(
    folder: Path,
    key: str,
    *,
    sources: Sequence[str],
    corpora: Sequence[str],
    vocab_size: int,
    earlier: tuple[str, Sequence[str]] | None = None,
) -> Report:
    """Stage ``unigrams``: sum the unigram files of the stage ``hashes``, one a chunk.

    ``earlier``, a file and its corpora, stands before them.
    """
    found = merge_parts(sources, corpora, vocab_size)
    if earlier is not None:
        found = joined([read_unigrams(Path(earlier[0]), earlier[1]), found])
    found.write(folder / UNIGRAMS_FILE)
    return {"tokens": len(found.tokens)}


def joined(parts: Sequence[Unigrams]) -> Unigrams:
    """Put corpora side by side; their names differ. Tokens that none of them has are out."""
    tokens = np.unique(np.concatenate([part.tokens for part in parts]))
    corpora = tuple(name for part in parts for name in part.corpora)
    counts = np.zeros((len(tokens), len(corpora)), np.uint64)
    documents = np.zeros((len(tokens), len(corpora)), np.uint32)
    start = 0
    for part in parts:
        place = np.searchsorted(tokens, part.tokens)
        stop = start + len(part.corpora)
        counts[place, start:stop] = part.counts
        documents[place, start:stop] = part.documents
        start = stop
    kept = counts.any(axis=1)
    return Unigrams(corpora, tokens[kept], counts[kept], documents[kept])


def merge_parts(parts: Sequence[str], corpora: Sequence[str], vocab_size: int) -> Unigrams:
    """Sum the unigram files of chunks."""
    counts = np.zeros((vocab_size, len(corpora)), np.uint64)
    documents = np.zeros((vocab_size, len(corpora)), np.uint32)
    for path in parts:
        table = pq.read_table(path)
        place = table["token"].to_numpy(), table["corpus"].to_numpy()
        counts[place] += table["count"].to_numpy()
        documents[place] += table["documents"].to_numpy()
    tokens = np.flatnonzero(counts.any(axis=1)).astype(np.uint32)
    return Unigrams(tuple(corpora), tokens, counts[tokens], documents[tokens])
