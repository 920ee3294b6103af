"""Writes the golden memories of this version, once, at its release; tests only read them.

    python tests/memfmt/make_golden.py

A released golden memory must never be written again: published bytes keep their meaning.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from phrasemem.memfmt.canonical import canonical
from phrasemem.memfmt.key_map import ENGRAM, KeyMap
from phrasemem.memfmt.keys import pack_keys, shard_of, tokens_hash
from phrasemem.memfmt.manifest import FORMAT_VERSION
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record, train_dictionary
from phrasemem.memfmt.writer import (
    CorpusInfo,
    EncoderInfo,
    Entries,
    Header,
    PayloadSpec,
    TokenizerInfo,
    choose_seed,
    finish_memory,
    write_shard,
)

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


# Words 0 to 9 are also spelled as 10 to 19; 20 to 63 are alone.
KEY_MAP = KeyMap(ENGRAM, np.array([*range(10), *range(10), *range(20, 64)], dtype=np.uint32))


def main() -> None:
    golden = HERE / "golden"
    if not (path := golden / f"v{FORMAT_VERSION}").exists():
        make(path)
        write_future(path)
    if not (path := golden / f"v{FORMAT_VERSION}-folded").exists():
        make(path, KEY_MAP)


def make(path: Path, key_map: KeyMap | None = None) -> None:
    """Write a memory that is not there yet, and beside it what a reader must give for it."""
    keys = [(), *((token,) for token in range(len(WORDS)))]
    keys += [tuple(range(start, start + n)) for n in (2, 3, 4) for start in range(0, 10 - n, n - 1)]
    write(path, keys, key_map)
    with MemoryReader.open(path) as reader:
        values = [describe(reader, key) for key in keys]
    if key_map is not None:
        for key, value in zip(keys, values, strict=True):
            value["spelled"] = [token + 10 * (i % 2) for i, token in enumerate(key, len(key))]
    path.with_name(path.name + ".json").write_text(json.dumps(values, indent=1) + "\n")


def write(path: Path, keys: list[tuple[int, ...]], key_map: KeyMap | None) -> None:
    """Write the memory, with a dictionary from more records than it holds."""
    corpora = [
        CorpusInfo(name=n, kind=k, licence="CC0-1.0", source="golden", documents=9, tokens=99)
        for n, k in (("books", "web"), ("Bücher", "encyclopedia"))
    ]
    header = Header(
        TokenizerInfo(fingerprint="0" * 64, name="golden", vocab_size=64),
        N_MAX,
        [PayloadSpec("semantic", DIM, "float16", "golden"), PayloadSpec("small", DIM, "int8")],
        corpora,
        EncoderInfo(id="golden", revision="1", dim=DIM),
        created_by="make_golden.py",
        key_map=key_map,
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
        vectors = np.stack([vector(keys[i]) for i in own])
        entries = Entries(
            lengths[own],
            tokens[own],
            [record(keys[i]) for i in own],
            {"semantic": vectors, "small": vectors},
        )
        counts.append(write_shard(staging, shard, entries, layout))
    extra = HERE / "golden" / "catalogue.parquet"
    extra.write_bytes(b"not read by memfmt\n")
    finish_memory(staging, path, header, layout, counts, {extra.name: extra})
    extra.unlink()


def record(key: tuple[int, ...]) -> Record:
    text = " ".join(WORDS[token] for token in key)
    counts = {"books": 2 + sum(key)} | ({"Bücher": 300 * len(key)} if len(key) > 2 else {})
    return Record(text * (1 + 9 * (len(key) == 4)), len(key) / 3, counts, 1 + len(key))


def vector(key: tuple[int, ...]) -> np.ndarray:
    steps = np.arange(1, DIM + 1, dtype=np.float32)
    return np.sin(steps * (1 + sum(key))).astype(np.float32) * (1 + len(key))


def describe(reader: MemoryReader, key: tuple[int, ...]) -> dict:
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
        "semantic": reader.payload("semantic").gather(row)[0].astype(float).tolist(),
        "small": reader.payload("small").gather(row)[0].astype(float).tolist(),
    }


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
