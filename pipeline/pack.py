"""Stage ``pack``: from the dealt catalogue and its vectors to a memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from numpy.typing import NDArray

from phrasemem.memfmt import writer
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.catalogue_table import catalogue_schema, key_matrix
from phrasemem.pipeline.embed import PAYLOAD
from phrasemem.pipeline.folding import key_map_of
from phrasemem.pipeline.layout import read_shard, records_of
from phrasemem.pipeline.stage import Report, appears

_ROWS_A_GROUP = 1 << 16
_HELD_OUT_LEVEL = 10


class PackError(PhraseMemError):
    """A shard that could not be written."""


def shard_part(
    folder: Path,
    key: str,
    *,
    number: int,
    dealt: str,
    vectors: Sequence[str],
    phrases_per_part: int,
    corpora: Sequence[str],
    layout: writer.Layout,
) -> Report:
    """Write one shard of the memory into ``folder``, the unfinished memory.

    Parameters
    ----------
    dealt : str
        What the stage ``layout`` dealt to this shard.
    """
    table = read_shard(Path(dealt))
    lengths, tokens = key_matrix(table, layout.n_max)
    rows = table["row"].to_numpy().astype(np.int64)
    entries = writer.Entries(
        lengths=lengths,
        tokens=tokens,
        records=records_of(table, corpora),
        payloads={PAYLOAD: _gather(vectors, rows, phrases_per_part, layout.payloads[0].dim)},
    )
    try:
        return {"entries": writer.write_shard(folder, number, entries, layout)}
    except lmdb.Error as error:
        raise PackError(f"the keys could not be written: {error}", where=folder) from error


def _gather(
    vectors: Sequence[str], rows: NDArray[np.int64], rows_a_part: int, dim: int
) -> NDArray[np.float16]:
    """Collect rows of the vectors, which lie in parts of ``rows_a_part`` rows."""
    gathered = np.empty((len(rows), dim), np.float16)
    parts = rows // rows_a_part
    for part, path in enumerate(vectors):
        here = np.flatnonzero(parts == part)
        if len(here):
            gathered[here] = np.load(path, mmap_mode="r")[rows[here] - part * rows_a_part]
    return gathered


def write_catalogue(target: Path, dealt: Sequence[Path], corpora: Sequence[str]) -> None:
    """Write the catalogue in the order of the memory's rows, of one shard after the other."""
    schema = catalogue_schema(corpora)
    # Rows count upwards and scores hardly repeat: with the encodings of such
    # columns the file is a quarter smaller than with dictionaries for all.
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    encodings = {"row": "DELTA_BINARY_PACKED"} | dict.fromkeys(floats, "BYTE_STREAM_SPLIT")
    with (
        appears(target) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if name not in {*encodings, "text"}],
            column_encoding=encodings,
        ) as parquet,
    ):
        for begun, table in _regrouped(dealt, schema.names):
            rows = np.arange(begun, begun + len(table), dtype=np.uint32)
            numbered = table.set_column(0, "row", pa.array(rows))
            parquet.write_table(numbered.cast(schema), row_group_size=_ROWS_A_GROUP)


def _regrouped(dealt: Sequence[Path], names: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of all shards in groups of one size, each with its first row."""
    begun = 0
    held: pa.Table | None = None
    for path in dealt:
        table = read_shard(path).select(list(names))
        held = table if held is None else pa.concat_tables([held, table])
        while len(held) >= _ROWS_A_GROUP:
            yield begun, held.slice(0, _ROWS_A_GROUP).combine_chunks()
            held = held.slice(_ROWS_A_GROUP)
            begun += _ROWS_A_GROUP
    if held is not None and len(held):
        yield begun, held.combine_chunks()


def write_held_out(target: Path, pieces: Sequence[Path]) -> None:
    """Join the held-out documents of all chunks, in order, into one zstd file.

    A piece may be such a file of an earlier memory.
    """
    compressor = zstandard.ZstdCompressor(level=_HELD_OUT_LEVEL, threads=0)
    with (
        appears(target) as temporary,
        temporary.open("wb") as file,
        compressor.stream_writer(file, closefd=False) as sink,
    ):
        for block in _blocks(pieces):
            sink.write(block)


def _blocks(pieces: Sequence[Path]) -> Iterator[bytes]:
    for piece in pieces:
        with piece.open("rb") as file:
            packed = piece.suffix == ".zst"
            source = zstandard.ZstdDecompressor().stream_reader(file) if packed else file
            while block := source.read(1 << 20):
                yield block


def header_of(
    *,
    tokenizer: tuple[str, str, int],
    encoder: tuple[str, str, int],
    how: str,
    n_max: int,
    corpora: Sequence[dict[str, Any]],
    folding_model: str | None = None,
) -> writer.Header:
    """Describe the memory.

    Parameters
    ----------
    tokenizer : (fingerprint, reference, vocabulary size)
    encoder : (reference, revision, dim)
    how : str
        How the encoder is used, part of the payload's source.
    corpora : sequence of dict
        name, kind, licence, source, documents, tokens.
    folding_model : str, optional
        The model whose tokenizer's ids are folded in keys.
    """
    fingerprint, name, vocab_size = tokenizer
    identity, revision, dim = encoder
    source = f"{identity} {revision} {how}"
    return writer.Header(
        tokenizer=writer.TokenizerInfo(fingerprint=fingerprint, name=name, vocab_size=vocab_size),
        n_max=n_max,
        payloads=[writer.PayloadSpec(name=PAYLOAD, dim=dim, dtype="float16", source=source)],
        corpora=[writer.CorpusInfo(**corpus) for corpus in corpora],
        encoder=writer.EncoderInfo(id=identity, revision=revision, dim=dim),
        key_map=None if folding_model is None else key_map_of(folding_model),
    )
