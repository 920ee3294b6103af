"""What decides the bytes of a shard: key length, hash seed, shards, payload rows."""

from __future__ import annotations

from dataclasses import dataclass

from phrasemem.memfmt.dense import DenseLayout
from phrasemem.memfmt.row_layout import RowLayout
from phrasemem.memfmt.sparse import SparseLayout

__all__ = ["BODY_OFFSET", "DENSE", "SPARSE", "Layout", "PayloadSpec", "RowLayout", "row_layout"]

BODY_OFFSET = 4096
"""Where the rows begin in a rows file: one page, so that rows never straddle more than needed."""

DENSE = "dense"
SPARSE = "sparse"


@dataclass(frozen=True)
class PayloadSpec:
    """One column of the rows.

    Parameters
    ----------
    name : str
    dim : int
        Width of a vector, or the largest number of successors in a row.
    dtype : str
        ``float16``, or, for vectors only, ``int8`` with one scale a row.
    source : str
        Fingerprint of what computed the values; free text.
    kind : {"dense", "sparse"}
        Vectors, or successors with their counts.
    """

    name: str
    dim: int
    dtype: str = "float16"
    source: str = ""
    kind: str = DENSE


@dataclass(frozen=True)
class Layout:
    """All that decides the bytes of a shard, besides its entries.

    Parameters
    ----------
    n_max : int
        Longest key, at most 15 tokens.
    vocab_size : int
        Tokens are below it.
    hash_seed : int
        From :func:`phrasemem.memfmt.writer.choose_seed`.
    shard_bits : int
        There are ``2 ** shard_bits`` shards.
    entries : int
        Keys of the whole memory, not of one shard.
    payloads : tuple of PayloadSpec
    corpora : tuple of str
        Names, in the order of the counts in a record.
    dictionary : bytes
        zstd dictionary of the records; empty for none.
    """

    n_max: int
    vocab_size: int
    hash_seed: int
    shard_bits: int
    entries: int
    payloads: tuple[PayloadSpec, ...]
    corpora: tuple[str, ...]
    dictionary: bytes = b""

    def rows(self, payload: PayloadSpec) -> RowLayout:
        """Row layout of a payload."""
        return row_layout(self.n_max, self.vocab_size, payload.kind, payload.dim, payload.dtype)


def row_layout(n_max: int, vocab_size: int, kind: str, dim: int, dtype: str) -> RowLayout:
    """Return the byte offsets inside the rows of a payload."""
    if kind == SPARSE:
        return SparseLayout(n_max, dim, vocab_size)
    return DenseLayout(n_max, dim, dtype)
