"""Small memories for the tests of the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from phrasemem.memfmt.keys import pack_keys
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.writer import (
    CorpusInfo,
    Entries,
    Header,
    PayloadSpec,
    TokenizerInfo,
    write_memory,
)

VOCAB_SIZE = 50
N_MAX = 5
DIM = 12

Key = tuple[int, ...]


@pytest.fixture(scope="session")
def header() -> Header:
    corpora = [
        CorpusInfo(name=name, kind="web", licence="CC0", source="test", documents=3, tokens=100)
        for name in ("news", "wiki")
    ]
    return Header(
        TokenizerInfo(fingerprint="f" * 64, name="a tokenizer", vocab_size=VOCAB_SIZE),
        N_MAX,
        [PayloadSpec("semantic", DIM), PayloadSpec("small", DIM, "int8")],
        corpora,
    )


@pytest.fixture(scope="session")
def entries_of() -> Callable[[Iterable[Key]], Entries]:
    """Entries whose vectors and records are functions of the key."""

    def build(keys: Iterable[Key]) -> Entries:
        listed = list(keys)
        tokens, lengths = pack_keys(listed, N_MAX)
        vectors = np.stack([vector_of(key) for key in listed]) if listed else np.zeros((0, DIM))
        records = [record_of(key) for key in listed]
        return Entries(lengths, tokens, records, {"semantic": vectors, "small": vectors})

    return build


def vector_of(key: Key) -> np.ndarray:
    return np.random.default_rng([len(key), *key]).standard_normal(DIM).astype(np.float32)


def record_of(key: Key) -> Record:
    counts = {"news": 1 + len(key)} | ({"wiki": sum(key)} if sum(key) else {})
    return Record(" ".join(map(str, key)), len(key) / 2, counts, 1 + len(key))


@pytest.fixture(scope="session")
def vectors() -> Callable[[Key], np.ndarray]:
    return vector_of


@pytest.fixture(scope="session")
def records() -> Callable[[Key], Record]:
    return record_of


@pytest.fixture(scope="session")
def many_keys() -> list[Key]:
    """The root, single tokens, and longer keys whose suffixes are keys or not."""
    rng = np.random.default_rng(7)
    keys = {(), *((token,) for token in range(0, VOCAB_SIZE, 2))}
    while len(keys) < 700:
        keys.add(tuple(rng.integers(0, VOCAB_SIZE, rng.integers(2, N_MAX + 1)).tolist()))
    return sorted(keys)


@pytest.fixture(scope="session")
def memory_path(
    tmp_path_factory: pytest.TempPathFactory,
    many_keys: list[Key],
    header: Header,
    entries_of: Callable[[Iterable[Key]], Entries],
) -> Path:
    """A memory of `many_keys` in four shards, with one extra file. Tests must not change it."""
    folder = tmp_path_factory.mktemp("memories")
    extra = folder / "catalogue.parquet"
    extra.write_bytes(bytes(range(256)) * 9)
    path = folder / "memory"
    write_memory(
        path,
        entries_of(many_keys),
        header,
        shard_bits=2,
        extra_files={"catalogue.parquet": extra},
    )
    return path


@pytest.fixture
def reader(memory_path: Path) -> Iterable[MemoryReader]:
    with MemoryReader.open(memory_path) as opened:
        yield opened


@pytest.fixture(scope="session")
def colliding_keys() -> tuple[Key, Key]:
    """Two different pairs of tokens that the index of a tiny memory cannot tell apart.

    With seed 0 and no bucket bits, an index sees only the top 32 bits of a hash; among 300,000
    pairs about ten share them.
    """
    from phrasemem.memfmt.keys import tokens_hash

    pairs = np.stack(np.divmod(np.arange(300_000, dtype=np.uint32), np.uint32(600)), axis=1)
    top = tokens_hash(pairs, np.full(len(pairs), 2, dtype=np.uint8), 0) >> np.uint64(32)
    order = np.argsort(top)
    same = np.flatnonzero(top[order[1:]] == top[order[:-1]])
    first, second = pairs[order[same[0]]], pairs[order[same[0] + 1]]
    return tuple(first.tolist()), tuple(second.tolist())
