"""Stage ``layout``: deals the catalogue out to shards, so that each is packed by itself.

A key's hash chooses its shard, by its top bits, and so its row. What is held in memory is a batch
of the catalogue, or one shard of it, whatever the size of the whole.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.memfmt import writer
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.keys import UInt64s, tokens_hash
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.seed import MAX_SEEDS, refuse_duplicates, told_apart
from phrasemem.pipeline.catalogue_table import key_matrix
from phrasemem.pipeline.stage import Report, appears

ENTRIES_A_SHARD = 1 << 18
"""Where the number of shards is not given: a worker then needs some 1 GB for 1,024 float16."""

_MOST_SHARD_BITS = 12
_BATCH_ROWS = 1 << 18
# Of the files that a process may have open, most systems allow 1,024.
_OPEN_FILES = 256
_DICTIONARY_SAMPLES = 50_000
_COMPRESSION = pa.ipc.IpcWriteOptions(compression="lz4")


def layout_part(
    folder: Path,
    key: str,
    *,
    catalogue: str,
    corpora: Sequence[str],
    n_max: int,
    seed: int,
    shard_bits: int | None,
) -> Report:
    """Choose the hash seed, deal the catalogue out, and train the dictionary of the records.

    Writes ``SHARD.arrow`` for each shard: the columns of the catalogue, where ``row`` is the row
    of the catalogue, and ``hash``; in the catalogue's order.

    Parameters
    ----------
    seed : int
        First seed to try.
    shard_bits : int or None
        None for as many shards as keep each below ``ENTRIES_A_SHARD``, or nearly.

    Returns
    -------
    dict
        ``entries``, ``hash_seed``, ``shard_bits``, ``dictionary`` (base64).
    """
    entries = pq.read_metadata(catalogue).num_rows
    bits = bits_for(entries) if shard_bits is None else shard_bits
    shards = [folder / shard_file(number) for number in range(1 << bits)]
    hash_seed = _deal_with_good_seed(Path(catalogue), shards, entries, n_max, seed)
    dictionary = writer.train_dictionary(_sample(shards, entries, corpora), list(corpora))
    return {
        "entries": entries,
        "hash_seed": hash_seed,
        "shard_bits": bits,
        "dictionary": base64.b64encode(dictionary).decode(),
    }


def bits_for(entries: int) -> int:
    """Return the fewest bits that leave a shard ``ENTRIES_A_SHARD`` on average."""
    return min(_MOST_SHARD_BITS, max(0, (entries - 1) // ENTRIES_A_SHARD).bit_length())


def shard_file(number: int) -> str:
    """Return the name of what the stage writes of a shard."""
    return f"{number:05d}.arrow"


def read_shard(path: Path) -> pa.Table:
    """Read what was dealt to a shard, in the order of the memory's rows."""
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_stream(file).read_all()
    order = np.argsort(table["hash"].to_numpy(), kind="stable")
    return table.take(pa.array(order)).combine_chunks()


def records_of(table: pa.Table, corpora: Sequence[str]) -> list[Record]:
    """Return the records of some rows of the catalogue."""
    names = ["text", "score", "documents", *(f"count_{corpus}" for corpus in corpora)]
    columns = [table[name].to_pylist() for name in names]
    return [
        Record(text, score, dict(zip(corpora, counts, strict=True)), documents)
        for text, score, documents, *counts in zip(*columns, strict=True)
    ]


def _deal_with_good_seed(
    catalogue: Path, shards: Sequence[Path], entries: int, n_max: int, first_seed: int
) -> int:
    """Deal with one seed after the other, until the index tells the keys of all shards apart.

    Keys of different shards differ in bits that the index knows, so each shard tells for itself.
    """
    for seed in range(first_seed, first_seed + MAX_SEEDS):
        _deal(catalogue, shards, n_max, seed)
        if all(_is_told_apart(path, entries, n_max, seed == first_seed) for path in shards):
            return seed
    raise PhraseMemError("no seed tells all keys apart", found=f"{MAX_SEEDS} seeds tried")


def _deal(catalogue: Path, shards: Sequence[Path], n_max: int, seed: int) -> None:
    bits = len(shards).bit_length() - 1
    schema = pq.read_schema(catalogue).append(pa.field("hash", pa.uint64()))
    for first in range(0, len(shards), _OPEN_FILES):
        some = shards[first : first + _OPEN_FILES]
        with ExitStack() as stack:
            sinks = [_sink(stack, path, schema) for path in some]
            for table, hashes in _hashed(catalogue, n_max, seed):
                places = writer.shard_of(hashes, bits) - first
                for number, sink in enumerate(sinks):
                    here = np.flatnonzero(places == number)
                    if len(here):
                        sink.write_table(table.take(pa.array(here)).combine_chunks())


def _sink(stack: ExitStack, path: Path, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
    temporary = stack.enter_context(appears(path))
    file = stack.enter_context(pa.OSFile(str(temporary), "wb"))
    return stack.enter_context(pa.ipc.new_stream(file, schema, options=_COMPRESSION))


def _hashed(catalogue: Path, n_max: int, seed: int) -> Iterator[tuple[pa.Table, UInt64s]]:
    with pq.ParquetFile(catalogue) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            table = pa.Table.from_batches([batch])
            lengths, tokens = key_matrix(table, n_max)
            hashes = tokens_hash(tokens, lengths, seed)
            yield table.append_column("hash", pa.array(hashes)), hashes


def _is_told_apart(path: Path, entries: int, n_max: int, check_twins: bool) -> bool:
    table = read_shard(path)
    hashes = table["hash"].to_numpy()
    if told_apart(hashes, entries):
        return True
    if check_twins:
        lengths, tokens = key_matrix(table, n_max)
        refuse_duplicates(hashes, lengths, tokens)
    return False


def _sample(shards: Sequence[Path], entries: int, corpora: Sequence[str]) -> list[Record]:
    """Return the records of evenly spaced rows of the memory."""
    step = max(1, entries // _DICTIONARY_SAMPLES)
    sample: list[Record] = []
    begun = 0
    for path in shards:
        table = read_shard(path)
        rows = np.arange(-begun % step, len(table), step)
        sample += records_of(table.take(pa.array(rows)), corpora)
        begun += len(table)
    return sample
