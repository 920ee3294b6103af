"""Writes the golden memories of this version, once, at its release; tests only read them.

    python tests/memfmt/make_golden.py

A released golden memory must never be written again: published bytes keep their meaning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from phrasemem.memfmt.canonical import canonical
from phrasemem.memfmt.keys import pack_keys, shard_of, tokens_hash
from phrasemem.memfmt.manifest import FORMAT_VERSION
from phrasemem.memfmt.payloads import add_payload
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record, train_dictionary
from phrasemem.memfmt.writer import (
    CorpusInfo,
    EncoderInfo,
    Entries,
    Header,
    PayloadSpec,
    Successors,
    TokenizerInfo,
    choose_seed,
    finish_memory,
    write_shard,
)

Key = tuple[int, ...]

HERE = Path(__file__).parent
N_MAX, DIM, SHARD_BITS = 4, 6, 1
WORDS = [
    "natural",
    "selection",
    "of",
    "species",
    "favoured",
    "races",
    "in",
    "struggle",
    "for",
    "life",
]


def main() -> None:
    keys = [(), *((token,) for token in range(len(WORDS)))]
    keys += [tuple(range(start, start + n)) for n in (2, 3, 4) for start in range(0, 10 - n, n - 1)]
    plain = HERE / "golden" / f"v{FORMAT_VERSION}"
    if make(plain, keys, [PayloadSpec("semantic", DIM, "float16", "golden"), SMALL]):
        write_future(plain)
    sparse = plain.with_name(plain.name + "-sparse")
    make(sparse, keys, [PayloadSpec("next", 3, source="golden", kind="sparse"), SMALL], add_both)


SMALL = PayloadSpec("small", DIM, "int8")


def make(
    path: Path,
    keys: list[Key],
    payloads: list[PayloadSpec],
    add: Callable[[Path], None] = lambda path: None,
) -> bool:
    """Write a memory, with what a reader must give, unless it is there already."""
    if path.exists():
        print(f"{path} is there already, and must stay as it is")
        return False
    write(path, keys, payloads)
    add(path)
    with MemoryReader.open(path) as reader:
        values = [describe(reader, key) for key in keys]
    path.with_name(path.name + ".json").write_text(json.dumps(values, indent=1) + "\n")
    return True


def add_both(path: Path) -> None:
    """Add a payload of each kind."""

    def keys(lengths: np.ndarray, tokens: np.ndarray) -> list[Key]:
        return [tuple(key[:n].tolist()) for key, n in zip(tokens, lengths, strict=True)]

    add_payload(
        path,
        PayloadSpec("added", DIM, "float16", "golden"),
        lambda _, lengths, tokens: np.stack([vector(key) for key in keys(lengths, tokens)]),
    )
    add_payload(
        path,
        PayloadSpec("added-next", 3, source="golden", kind="sparse"),
        lambda _, lengths, tokens: successors(keys(lengths, tokens)[::-1]),
    )
    for lock in (path / "payloads").glob(".*.lock"):
        lock.unlink()


def write(path: Path, keys: list[Key], payloads: list[PayloadSpec]) -> None:
    """Write the memory, with a dictionary from more records than it holds."""
    corpora = [
        CorpusInfo(name=n, kind=k, licence="CC0-1.0", source="golden", documents=9, tokens=99)
        for n, k in (("books", "web"), ("Bücher", "encyclopedia"))
    ]
    header = Header(
        TokenizerInfo(fingerprint="0" * 64, name="golden", vocab_size=64),
        N_MAX,
        payloads,
        corpora,
        EncoderInfo(id="golden", revision="1", dim=DIM),
        created_by="make_golden.py",
    )
    tokens, lengths = pack_keys(keys, N_MAX)
    seed = choose_seed(lengths, tokens, first_seed=2**63)
    sample = [record((i % 10, i % 7, i % 9)) for i in range(1500)]
    layout = header.layout(
        entries=len(keys),
        hash_seed=seed,
        shard_bits=SHARD_BITS,
        dictionary=train_dictionary(sample, [corpus.name for corpus in corpora]),
    )
    shards = shard_of(tokens_hash(tokens, lengths, seed), SHARD_BITS)
    staging = path.with_name(".writing")
    counts = []
    for shard in range(1 << SHARD_BITS):
        own = np.flatnonzero(shards == shard)
        chosen = [keys[i] for i in own]
        vectors = np.stack([vector(key) for key in chosen])
        columns = {"semantic": vectors, "small": vectors, "next": successors(chosen)}
        entries = Entries(
            lengths[own],
            tokens[own],
            [record(keys[i]) for i in own],
            {spec.name: columns[spec.name] for spec in payloads},
        )
        counts.append(write_shard(staging, shard, entries, layout))
    extra = HERE / "golden" / "catalogue.parquet"
    extra.write_bytes(b"not read by memfmt\n")
    finish_memory(staging, path, header, layout, counts, {extra.name: extra})
    extra.unlink()


def record(key: Key) -> Record:
    text = " ".join(WORDS[token] for token in key)
    counts = {"books": 2 + sum(key)} | ({"Bücher": 300 * len(key)} if len(key) > 2 else {})
    return Record(text * (1 + 9 * (len(key) == 4)), len(key) / 3, counts, 1 + len(key))


def vector(key: Key) -> np.ndarray:
    steps = np.arange(1, DIM + 1, dtype=np.float32)
    return np.sin(steps * (1 + sum(key))).astype(np.float32) * (1 + len(key))


def successors(keys: list[Key]) -> Successors:
    """Up to three for each key, some of them of counts that need a scale."""
    used = np.array([(len(key) + sum(key)) % 4 for key in keys], dtype=np.uint8)
    ids = np.array([[sum(key) + 2 * j for j in range(3)] for key in keys], dtype=np.uint32)
    counts = np.array([[(1 + j) * 30.0 ** (1 + len(key)) for j in range(3)] for key in keys])
    return Successors(ids, counts, counts / 7, used)


def describe(reader: MemoryReader, key: Key) -> dict:
    """All that a reader must give for a key; floats as the exact numbers that were stored."""
    row = reader.get_many([key])
    found = reader.record(key)
    return {
        "key": list(key),
        "row": int(row[0]),
        "text": found.text,
        "score": found.score,
        "counts": dict(found.counts),
        "documents": found.documents,
    } | {name: plain(reader.payload(name).gather(row)) for name in reader.payload_names}


def plain(column: np.ndarray | Successors) -> object:
    """What a row of a payload holds, as JSON can tell it."""
    if isinstance(column, Successors):
        return {name: value[0].astype(float).tolist() for name, value in vars(column).items()}
    return column[0].astype(float).tolist()


def write_future(golden: Path) -> None:
    """Write two manifests that this version must refuse."""
    for name, change in (
        ("version-2.0", {"format_version": "2.0"}),
        ("unknown-feature", {"reader_features": ["a-feature-of-the-future"]}),
    ):
        value = json.loads((golden / "manifest.json").read_bytes()) | change
        del value["checksum"]
        value["checksum"] = hashlib.sha256(canonical(value)).hexdigest()
        (HERE / "future" / name).mkdir(parents=True, exist_ok=True)
        (HERE / "future" / name / "manifest.json").write_bytes(canonical(value))


if __name__ == "__main__":
    main()
