"""Records of phrases: msgpack, compressed one by one with a shared zstd dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import zstandard

from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason

MAX_RECORD_BYTES = 1 << 20
DICTIONARY_BYTES = 1 << 16
_SAMPLES = 50_000
_LEVEL = 3
_TRY_FROM_BYTES = 28
_ZSTD_RESERVED_BIT = 0x10


@dataclass(frozen=True)
class Record:
    """What is known of a phrase besides its vectors.

    Parameters
    ----------
    text : str
    score : float
        Kept in single precision.
    counts : mapping of str to int
        Occurrences per corpus; a corpus that is not named has none.
    documents : int
        Documents that hold the phrase, over all corpora.
    """

    text: str
    score: float
    counts: Mapping[str, int]
    documents: int


class RecordCodec:
    """Writes and reads records. Not thread-safe: one codec a thread.

    Parameters
    ----------
    corpora : sequence of str
        Names, in the order in which counts are stored.
    dictionary : bytes
        From :func:`train_dictionary`; empty for none.
    """

    def __init__(self, corpora: Sequence[str], dictionary: bytes) -> None:
        self._corpora = tuple(corpora)
        shared = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        parameters = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL,
            format=zstandard.FORMAT_ZSTD1_MAGICLESS,
            write_content_size=True,
            write_checksum=False,
            write_dict_id=False,
        )
        if shared is not None:
            shared.precompute_compress(compression_params=parameters)
        self._compress = zstandard.ZstdCompressor(
            dict_data=shared, compression_params=parameters
        ).compress
        self._decompress = zstandard.ZstdDecompressor(
            dict_data=shared, format=zstandard.FORMAT_ZSTD1_MAGICLESS
        ).decompress
        self._packer = msgpack.Packer(use_single_float=True)

    def encode(self, record: Record) -> bytes:
        """Write a record: compressed, or plain where that is not longer.

        Most phrases are short, and a zstd frame costs bytes of its own. The first byte tells
        the two apart: a msgpack array begins with 0x9X, 0xDC or 0xDD, all of which have set
        the bit that a zstd frame header must leave clear.

        Raises
        ------
        PhraseMemError
            If it counts a corpus that the memory does not name.
        """
        return next(self.encode_all([record]))

    def encode_all(self, records: Iterable[Record]) -> Iterator[bytes]:
        """Write many records, each as :meth:`encode` does, in less time."""
        compress = self._compress
        for plain in _pack_all(records, self._corpora, self._packer):
            # Compressing what is shorter takes most of the time and gains next to nothing.
            if len(plain) < _TRY_FROM_BYTES:
                yield plain
                continue
            compressed = compress(plain)
            yield compressed if len(compressed) < len(plain) else plain

    def decode(self, data: bytes) -> Record:
        """Read a record.

        Raises
        ------
        FormatError
            If the bytes are not a record of this memory.
        """
        try:
            raw = data if data[0] & _ZSTD_RESERVED_BIT else self._expand(data)
            text, score, *numbers = msgpack.unpackb(raw)
        except (zstandard.ZstdError, ValueError, TypeError, IndexError) as error:
            raise FormatError(Reason.KEYS_DAMAGED, f"a record cannot be read: {error}") from error
        documents, *counts = numbers or [None]
        if not (
            type(text) is str
            and type(score) is float
            and len(counts) == len(self._corpora)
            and all(type(number) is int and number >= 0 for number in numbers)
        ):
            raise FormatError(
                Reason.KEYS_DAMAGED,
                "a record is of something else",
                expected=f"text, score, documents, {len(self._corpora)} counts",
                found=ascii([text, score, *numbers])[:80],
            )
        named = {name: count for name, count in zip(self._corpora, counts, strict=True) if count}
        return Record(text, score, named, documents)

    def _expand(self, data: bytes) -> bytes:
        # zstd makes room for whatever a frame says of its size, whatever the limit.
        frame = zstandard.get_frame_parameters(data, format=zstandard.FORMAT_ZSTD1_MAGICLESS)
        known = frame.content_size != zstandard.CONTENTSIZE_UNKNOWN
        if known and frame.content_size > MAX_RECORD_BYTES:
            raise ValueError(f"it says that it has {frame.content_size} bytes")
        expanded: bytes = self._decompress(data, max_output_size=MAX_RECORD_BYTES)
        return expanded


def _pack_all(records: Iterable[Record], corpora: Sequence[str], packer: Any) -> Iterator[bytes]:
    pack, known, zeros = packer.pack, frozenset(corpora), (0,) * len(corpora)
    for record in records:
        counts = record.counts
        if not known.issuperset(counts):
            raise PhraseMemError(
                "a record counts an unknown corpus",
                expected=list(corpora),
                found=sorted(counts.keys() - known),
            )
        score, numbers = float(record.score), map(counts.get, corpora, zeros)
        try:
            yield pack((record.text, score, record.documents, *numbers))
        except TypeError:
            # Numbers of numpy, which msgpack does not know.
            numbers = map(int, map(counts.get, corpora, zeros))
            yield pack((record.text, score, int(record.documents), *numbers))


def train_dictionary(records: Sequence[Record], corpora: Sequence[str] | None = None) -> bytes:
    """Train the zstd dictionary that all records of a memory share.

    Parameters
    ----------
    records : sequence of Record
        A sample; more than 50,000 are thinned evenly, so the result depends on their order.
    corpora : sequence of str, optional
        Names in the memory's order; by default, those counted, sorted.

    Returns
    -------
    bytes
        Empty when there is too little to learn from.
    """
    step = max(1, len(records) // _SAMPLES)
    sample = records[::step]
    names = corpora or sorted({name for record in sample for name in record.counts})
    packer = msgpack.Packer(use_single_float=True)
    texts: list[bytes | bytearray | memoryview] = [*_pack_all(sample, names, packer)]
    size = min(DICTIONARY_BYTES, sum(map(len, texts)) // 10)
    try:
        return zstandard.train_dictionary(size, texts, level=_LEVEL).as_bytes()
    except zstandard.ZstdError:
        # zstd refuses to train on few or tiny samples; records then stand alone.
        return b""
