"""Stages ``layout`` and ``pack``: from the catalogue and its vectors to a memory."""

from __future__ import annotations

import base64
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
from phrasemem.memfmt.keys import tokens_hash
from phrasemem.memfmt.records import Record
from phrasemem.pipeline.catalogue_table import catalogue_schema, key_matrix
from phrasemem.pipeline.embed import PAYLOAD
from phrasemem.pipeline.folding import key_map_of
from phrasemem.pipeline.stage import Report, appears

_DICTIONARY_SAMPLES = 50_000
_ROWS_A_GROUP = 1 << 16
_HELD_OUT_LEVEL = 10


class PackError(PhraseMemError):
    """A shard that could not be written."""


def layout_part(
    folder: Path,
    key: str,
    *,
    catalogue: str,
    corpora: Sequence[str],
    n_max: int,
    seed: int,
    shard_bits: int,
) -> Report:
    """Choose the hash seed, order the rows and train the dictionary of the records.

    Returns
    -------
    dict
        ``entries``, ``hash_seed``, ``dictionary`` (base64), ``bounds`` (first row of each
        shard, and the end).
    """
    lengths, tokens = key_matrix(pq.read_table(catalogue, columns=["n", "tokens"]), n_max)
    hash_seed = writer.choose_seed(lengths, tokens, seed)
    hashes = tokens_hash(tokens, lengths, hash_seed)
    order = np.argsort(hashes, kind="stable")
    with appears(folder / "order.npy") as temporary, temporary.open("wb") as file:
        np.save(file, order, allow_pickle=False)
    shards = writer.shard_of(hashes[order], shard_bits)
    step = max(1, len(order) // _DICTIONARY_SAMPLES)
    sample = read_records(Path(catalogue), order[::step], corpora)
    dictionary = writer.train_dictionary(sample, list(corpora))
    return {
        "entries": len(order),
        "hash_seed": hash_seed,
        "dictionary": base64.b64encode(dictionary).decode(),
        "bounds": np.searchsorted(shards, np.arange((1 << shard_bits) + 1)).tolist(),
    }


def shard_part(
    folder: Path,
    key: str,
    *,
    number: int,
    order: str,
    start: int,
    stop: int,
    catalogue: str,
    vectors: Sequence[str],
    phrases_per_part: int,
    corpora: Sequence[str],
    layout: writer.Layout,
) -> Report:
    """Write one shard of the memory into ``folder``, the unfinished memory."""
    chosen: NDArray[np.int64] = np.load(order, mmap_mode="r")[start:stop]
    table = pq.read_table(catalogue, columns=["n", "tokens"]).take(pa.array(chosen))
    lengths, tokens = key_matrix(table, layout.n_max)
    entries = writer.Entries(
        lengths=lengths,
        tokens=tokens,
        records=read_records(Path(catalogue), chosen, corpora),
        payloads={PAYLOAD: _gather(vectors, chosen, phrases_per_part, layout.payloads[0].dim)},
    )
    try:
        return {"entries": writer.write_shard(folder, number, entries, layout)}
    except lmdb.Error as error:
        raise PackError(f"the keys could not be written: {error}", where=folder) from error


def read_records(catalogue: Path, rows: NDArray[np.int64], corpora: Sequence[str]) -> list[Record]:
    """Return the records of some rows of the catalogue."""
    names = ["text", "score", "documents", *(f"count_{corpus}" for corpus in corpora)]
    table = pq.read_table(catalogue, columns=names).take(pa.array(rows))
    columns = [table[name].to_pylist() for name in names]
    return [
        Record(text, score, dict(zip(corpora, counts, strict=True)), documents)
        for text, score, documents, *counts in zip(*columns, strict=True)
    ]


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


def write_catalogue(
    target: Path, catalogue: Path, order: NDArray[np.int64], corpora: Sequence[str]
) -> None:
    """Write the catalogue in the order of the memory's rows."""
    table = pq.read_table(catalogue).take(pa.array(order))
    table = table.set_column(0, "row", pa.array(np.arange(len(order), dtype=np.uint32)))
    table = table.cast(catalogue_schema(corpora)).combine_chunks()
    # Rows count upwards and scores hardly repeat: with the encodings of such
    # columns the file is a quarter smaller than with dictionaries for all.
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    encodings = {"row": "DELTA_BINARY_PACKED"} | dict.fromkeys(floats, "BYTE_STREAM_SPLIT")
    with appears(target) as temporary:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            row_group_size=_ROWS_A_GROUP,
            use_dictionary=[n for n in table.column_names if n not in {*encodings, "text"}],
            column_encoding=encodings,
        )


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
