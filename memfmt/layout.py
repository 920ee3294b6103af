"""What decides the bytes of a shard: key length, hash seed, shards, payload rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.key_map import KeyMap

BODY_OFFSET = 4096
"""Where the rows begin in a rows file: one page, so that rows never straddle more than needed."""

ROW_ALIGNMENT = 64
_FP16_MAX = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class PayloadSpec:
    """One vector column.

    Parameters
    ----------
    name : str
    dim : int
    dtype : str
        ``float16``, or ``int8`` with one scale a row.
    source : str
        Fingerprint of what computed the vectors; free text.
    """

    name: str
    dim: int
    dtype: str = "float16"
    source: str = ""


@dataclass(frozen=True)
class RowLayout:
    """Byte offsets in a row: ``n`` (u8), three zero bytes, tokens (u32), scale (f32), vector.

    Parameters
    ----------
    n_max, dim : int
    dtype : str
        ``float16`` or ``int8``.
    """

    n_max: int
    dim: int
    dtype: str

    tokens_offset = 4

    @property
    def scale_offset(self) -> int:
        """First byte of the scale."""
        return self.tokens_offset + 4 * self.n_max

    @property
    def vector_offset(self) -> int:
        """First byte of the vector."""
        return self.scale_offset + 4

    @property
    def stride(self) -> int:
        """Bytes a row takes, a multiple of 64."""
        used = self.vector_offset + self.dim * np.dtype(self.dtype).itemsize
        return -(-used // ROW_ALIGNMENT) * ROW_ALIGNMENT

    def encode(
        self, lengths: NDArray[np.uint8], tokens: NDArray[np.uint32], vectors: NDArray[np.floating]
    ) -> NDArray[np.uint8]:
        """Write rows.

        Parameters
        ----------
        lengths : (k,) uint8
        tokens : (k, n_max) uint32
        vectors : (k, dim) float16 or float32

        Returns
        -------
        (k, stride) uint8

        Raises
        ------
        PhraseMemError
            If a value is not finite, or too large for float16.
        """
        raw = np.zeros((len(lengths), self.stride), dtype=np.uint8)
        scales, values = _quantise(vectors, self.dtype)
        raw[:, 0] = lengths
        raw[:, self.tokens_offset : self.scale_offset].view("<u4")[:] = tokens
        raw[:, self.scale_offset : self.vector_offset].view("<f4")[:, 0] = scales
        self._vectors(raw)[:] = values
        return raw

    def decode(self, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Read the vectors of rows: ``(k, stride) uint8 -> (k, dim) float32``."""
        vectors = self._vectors(raw).astype(np.float32)
        if self.dtype == "int8":
            vectors *= raw[:, self.scale_offset : self.vector_offset].view("<f4")
        return vectors

    def keys(self, raw: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
        """Read the keys of rows: ``(k,) uint8`` lengths and ``(k, n_max) uint32`` tokens."""
        tokens = raw[:, self.tokens_offset : self.scale_offset].view("<u4")
        return raw[:, 0].copy(), tokens.astype(np.uint32)

    def well_formed(self, raw: NDArray[np.uint8]) -> bool:
        """Whether all padding is zero and all scales are what they may be."""
        used = self.vector_offset + self.dim * np.dtype(self.dtype).itemsize
        scales = raw[:, self.scale_offset : self.vector_offset].view("<f4")
        padded = raw[:, 1 : self.tokens_offset].any() or raw[:, used:].any()
        scaled = np.isfinite(scales) if self.dtype == "int8" else scales == 1
        return not padded and bool(scaled.all())

    def _vectors(self, raw: NDArray[np.uint8]) -> NDArray[np.generic]:
        itemsize = np.dtype(self.dtype).itemsize
        end = self.vector_offset + self.dim * itemsize
        dtype = "<f2" if self.dtype == "float16" else "i1"
        return raw[:, self.vector_offset : end].view(dtype)


def _quantise(
    vectors: NDArray[np.floating], dtype: str
) -> tuple[NDArray[np.float32], NDArray[np.generic]]:
    """Scales and stored values, such that vector = scale * value; scale is 1 for float16."""
    if vectors.dtype == dtype == "float16":
        # Nothing to round or to scale; numpy compares numbers of 16 bits one by one.
        finite = vectors.view(np.uint16) & np.uint16(0x7C00) != 0x7C00
        if not finite.all():
            raise PhraseMemError(
                "a vector is not finite", where=f"row {np.argmin(finite.all(axis=1))}"
            )
        return np.ones(len(vectors), dtype=np.float32), vectors
    largest = np.abs(vectors).max(axis=1, initial=0).astype(np.float32)
    if not np.isfinite(largest).all():
        raise PhraseMemError(
            "a vector is not finite", where=f"row {np.argmin(np.isfinite(largest))}"
        )
    if dtype == "float16":
        if len(largest) and float(largest.max()) > _FP16_MAX:
            raise PhraseMemError(
                "a vector is too large for float16", found=largest.max(), hint="store it as int8"
            )
        return np.ones(len(vectors), dtype=np.float32), vectors.astype("<f2")
    scales = largest / np.float32(127)
    # A scale that is not a normal number has lost its digits; such a vector is zero.
    scales = np.where(scales >= np.finfo(np.float32).tiny, scales, np.float32(1))
    return scales, np.rint(vectors / scales[:, None]).astype(np.int8)


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
    key_map : KeyMap, optional
        Keys must be folded by it; without one they are ids as they are.
    """

    n_max: int
    vocab_size: int
    hash_seed: int
    shard_bits: int
    entries: int
    payloads: tuple[PayloadSpec, ...]
    corpora: tuple[str, ...]
    dictionary: bytes = b""
    key_map: KeyMap | None = None

    def rows(self, payload: PayloadSpec) -> RowLayout:
        """Row layout of a payload."""
        return RowLayout(self.n_max, payload.dim, payload.dtype)
