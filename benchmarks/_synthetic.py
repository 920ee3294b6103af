"""A synthetic memory, and a py-lmdb database with the same keys, for benchmarks.

Tokens follow Zipf's law, and the keys are n-grams of one long stream of them, so that keys
share their last tokens, and suffixes of keys are keys or not, as in text.
"""

from __future__ import annotations

import gc
import multiprocessing
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import lmdb
import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.keys import key_order, shard_of, tokens_hash
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.writer import (
    CorpusInfo,
    Entries,
    Header,
    Layout,
    PayloadSpec,
    TokenizerInfo,
    choose_seed,
    finish_memory,
    train_dictionary,
    write_shard,
)

VOCAB_SIZE = 49_152
N_MAX = 6
DIM = 16
_SHARD_BITS = 3
FOLDER = Path("build/bench/synthetic")
_SMALL = 2_000_000
_RECORD = Record("", 0.0, {}, 1)


@dataclass(frozen=True)
class Keys:
    """Distinct keys, and the stream that they came from."""

    lengths: NDArray[np.uint8]
    tokens: NDArray[np.uint32]
    stream: NDArray[np.uint32]


def make_keys(entries: int, seed: int = 0) -> Keys:
    """Draw distinct n-grams of 2 to 6 tokens from a Zipfian stream."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, VOCAB_SIZE + 1)
    ranks = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(2 * entries))
    stream = rng.permutation(VOCAB_SIZE).astype(np.uint32)[np.minimum(ranks, VOCAB_SIZE - 1)]
    starts = rng.integers(0, len(stream) - N_MAX, 3 * entries)
    lengths = rng.choice([2, 3, 4, 5, 6], len(starts), p=[0.35, 0.3, 0.2, 0.1, 0.05])
    tokens = np.lib.stride_tricks.sliding_window_view(stream, N_MAX)[starts]
    tokens = np.where(np.arange(N_MAX) < lengths[:, None], tokens, 0).astype(np.uint32)
    lengths = lengths.astype(np.uint8)
    _, first = np.unique(tokens_hash(tokens, lengths, 0), return_index=True)
    chosen = np.sort(first)[:entries]
    if len(chosen) < entries:
        raise ValueError(f"the stream holds only {len(chosen)} of {entries} keys")
    return Keys(lengths[chosen], tokens[chosen], stream)


def numbered_keys(numbers: NDArray[np.integer]) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Lengths and tokens of keys of 3 to 6 tokens; different numbers give different keys."""
    lengths = (3 + numbers % 4).astype(np.uint8)
    # A factor without a common divisor permutes the numbers below VOCAB_SIZE ** 3.
    rest = numbers.astype(np.uint64) * np.uint64(0x9E3779B1) % np.uint64(VOCAB_SIZE**3)
    tokens = np.zeros((len(numbers), N_MAX), dtype=np.uint32)
    for column in range(3):
        tokens[:, column] = rest % np.uint64(VOCAB_SIZE)
        rest //= np.uint64(VOCAB_SIZE)
    for column in range(3, N_MAX):
        tokens[:, column] = np.where(lengths > column, tokens[:, column - 3] ^ 1, 0)
    return lengths, tokens


def memory(entries: int, keys: Keys, dim: int = DIM) -> MemoryReader:
    """Open the memory of these keys, writing it first if it is not there."""
    path = FOLDER / (f"memory-{entries}" if dim == DIM else f"memory-{entries}x{dim}")
    if not path.exists():
        write_memory(path, keys.lengths, keys.tokens, vectors=vector_table(dim))
    return MemoryReader.open(path)


def vector_table(dim: int) -> NDArray[np.float16]:
    """Vectors of keys: key `i` has the one at ``i % len``."""
    return np.random.default_rng(dim).standard_normal((4096, dim)).astype(np.float16)


def write_memory(
    path: Path,
    lengths: NDArray[np.uint8],
    tokens: NDArray[np.uint32],
    *,
    vectors: NDArray[np.float16],
    records: Sequence[Record] | None = None,
    corpora: Sequence[str] = (),
    shard_bits: int = _SHARD_BITS,
    workers: int = 2,
) -> float:
    """Write a memory by several processes.

    Returns
    -------
    float
        Seconds, from the choice of the seed to the final name, without those in which the
        processes take their share of what is given.
    """
    begin = time.perf_counter()
    known = [
        CorpusInfo(name=name, kind="web", licence="CC0", source="", documents=1, tokens=1)
        for name in corpora
    ]
    tokenizer = TokenizerInfo(fingerprint="synthetic", name="synthetic", vocab_size=VOCAB_SIZE)
    header = Header(tokenizer, N_MAX, [PayloadSpec("semantic", vectors.shape[1])], known)
    seed = choose_seed(lengths, tokens)
    dictionary = train_dictionary(records, corpora) if records else b""
    layout = header.layout(
        entries=len(lengths), hash_seed=seed, shard_bits=shard_bits, dictionary=dictionary
    )
    shards = shard_of(tokens_hash(tokens, lengths, seed), shard_bits)
    staging = path.with_name(f".{path.name}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)

    def entries(number: int) -> Entries:
        chosen = np.flatnonzero(shards == number)
        mine = [_RECORD] * len(chosen)
        if records:
            mine = [records[i] for i in chosen.tolist()]
            # Its own copies: those of the parent would be copied page by page in between.
            mine = [Record(r.text + "", r.score, dict(r.counts), r.documents) for r in mine]
        payloads = {"semantic": vectors[chosen % len(vectors)]}
        return Entries(lengths[chosen], tokens[chosen], mine, payloads)

    seconds = time.perf_counter() - begin
    seconds += _write_shards(staging, 1 << shard_bits, entries, layout, workers)
    begin = time.perf_counter()
    finish_memory(staging, path, header, layout, np.bincount(shards).tolist())
    return seconds + time.perf_counter() - begin


def _write_shards(
    staging: Path, count: int, entries: Callable[[int], Entries], layout: Layout, workers: int
) -> float:
    """Return the seconds from the moment at which all processes have their entries."""
    fork = multiprocessing.get_context("fork")
    ready = fork.Barrier(workers + 1)

    def work(worker: int) -> None:
        numbers = range(worker, count, workers)
        # Those of a large memory would not fit, and are made in turn, within the time.
        small = layout.entries <= _SMALL
        ready_made = {number: entries(number) for number in numbers if small}
        ready.wait()
        for number in numbers:
            write_shard(staging, number, ready_made.get(number) or entries(number), layout)

    gc.freeze()
    processes = [fork.Process(target=work, args=(worker,)) for worker in range(workers)]
    for process in processes:
        process.start()
    ready.wait()
    begin = time.perf_counter()
    for process in processes:
        process.join()
    gc.unfreeze()
    if any(process.exitcode for process in processes):
        raise RuntimeError("a shard was not written")
    return time.perf_counter() - begin


def lmdb_rival(
    entries: int, keys: Keys, rows: NDArray[np.int64], name: str = "rival"
) -> lmdb.Environment:
    """Open one LMDB database, key to row id, written in key order."""
    path = FOLDER / f"{name}-{entries}.mdb"
    if not path.exists():
        _write_rival(path, keys, rows.astype(">u8")[:, None].view(np.uint8))
    return open_rival(path)


def lmdb_vectors_rival(entries: int, keys: Keys, dim: int) -> Path:
    """Return one LMDB database, key to vector, written in key order."""
    path = FOLDER / f"rival-{entries}x{dim}.mdb"
    if not path.exists():
        table = vector_table(dim)
        _write_rival(path, keys, table.view(np.uint8))
    return path


def open_rival(path: Path) -> lmdb.Environment:
    """Open a rival in the way that is best for it: LMDB's read-ahead only costs here."""
    return lmdb.open(str(path), subdir=False, readonly=True, lock=False, readahead=False)


def _write_rival(path: Path, keys: Keys, values: NDArray[np.uint8]) -> None:
    """Write keys in order; key `i` has the value at ``i % len``."""
    order = key_order(keys.tokens, keys.lengths)
    packed = keys_as_bytes(keys.tokens[order], keys.lengths[order])
    draft = path.with_suffix(".writing")
    draft.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(draft), subdir=False, map_size=1 << 36, lock=False, sync=False) as rival:
        for begin in range(0, len(order), 100_000):
            chosen = order[begin : begin + 100_000] % len(values)
            items = zip(packed[begin : begin + 100_000], map(bytes, values[chosen]), strict=True)
            with rival.begin(write=True) as transaction:
                transaction.cursor().putmulti(items, append=True)
    draft.rename(path)


def keys_as_bytes(tokens: NDArray[np.uint32], lengths: NDArray[np.uint8]) -> list[bytes]:
    """Big-endian keys, as LMDB takes them."""
    whole, width = tokens.astype(">u4").tobytes(), 4 * N_MAX
    ends = (np.arange(len(lengths)) * width + 4 * lengths.astype(np.int64)).tolist()
    return [whole[i * width : end] for i, end in enumerate(ends)]
