"""A synthetic memory, and a py-lmdb database with the same keys, for benchmarks.

Tokens follow Zipf's law, and the keys are n-grams of one long stream of them, so that keys
share their last tokens, and suffixes of keys are keys or not, as in text.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import lmdb
import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.keys import key_order, shard_of, tokens_hash
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.writer import (
    Entries,
    Header,
    PayloadSpec,
    TokenizerInfo,
    choose_seed,
    finish_memory,
    write_shard,
)

VOCAB_SIZE = 49_152
N_MAX = 6
DIM = 16
_SHARD_BITS = 3
_FOLDER = Path("build/bench/synthetic")
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


def memory(entries: int, keys: Keys) -> MemoryReader:
    """Open the memory of these keys, writing it first if it is not there."""
    path = _FOLDER / f"memory-{entries}"
    if not path.exists():
        _write_memory(path, keys)
    return MemoryReader.open(path)


def _write_memory(path: Path, keys: Keys) -> None:
    tokenizer = TokenizerInfo(fingerprint="synthetic", name="synthetic", vocab_size=VOCAB_SIZE)
    header = Header(tokenizer, N_MAX, [PayloadSpec("semantic", DIM)])
    seed = choose_seed(keys.lengths, keys.tokens)
    layout = header.layout(entries=len(keys.lengths), hash_seed=seed, shard_bits=_SHARD_BITS)
    shards = shard_of(tokens_hash(keys.tokens, keys.lengths, seed), _SHARD_BITS)
    staging = path.with_name(f".{path.name}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    counts = []
    for number in range(1 << _SHARD_BITS):
        chosen = np.flatnonzero(shards == number)
        vectors = np.zeros((len(chosen), DIM), dtype=np.float32)
        records = [_RECORD] * len(chosen)
        entries = Entries(keys.lengths[chosen], keys.tokens[chosen], records, {"semantic": vectors})
        counts.append(write_shard(staging, number, entries, layout))
    finish_memory(staging, path, header, layout, counts)


def lmdb_rival(entries: int, keys: Keys, rows: NDArray[np.int64]) -> lmdb.Environment:
    """Open one LMDB database, key to row id, written in key order."""
    path = _FOLDER / f"rival-{entries}.mdb"
    if not path.exists():
        _write_rival(path, keys, rows)
    return lmdb.open(str(path), subdir=False, readonly=True, lock=False, readahead=False)


def _write_rival(path: Path, keys: Keys, rows: NDArray[np.int64]) -> None:
    order = key_order(keys.tokens, keys.lengths)
    packed = keys_as_bytes(keys.tokens[order], keys.lengths[order])
    values = rows[order].astype(">u8").tobytes()
    draft = path.with_suffix(".writing")
    draft.unlink(missing_ok=True)
    with lmdb.open(str(draft), subdir=False, map_size=1 << 36, lock=False, sync=False) as rival:
        for begin in range(0, len(order), 100_000):
            items = [
                (packed[i], values[8 * i : 8 * i + 8])
                for i in range(begin, min(begin + 100_000, len(order)))
            ]
            with rival.begin(write=True) as transaction:
                transaction.cursor().putmulti(items, append=True)
    draft.rename(path)


def keys_as_bytes(tokens: NDArray[np.uint32], lengths: NDArray[np.uint8]) -> list[bytes]:
    """Big-endian keys, as LMDB takes them."""
    whole, width = tokens.astype(">u4").tobytes(), 4 * N_MAX
    ends = (np.arange(len(lengths)) * width + 4 * lengths.astype(np.int64)).tolist()
    return [whole[i * width : end] for i, end in enumerate(ends)]
