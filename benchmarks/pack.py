"""Pack keys, records and given vectors into a memory, by two processes.

    python -m benchmarks.pack [--full] [--memory build/memory]

From arrays and records in RAM to a complete memory under its final name: seed, dictionary, index,
rows, keys, checksums, manifest, everything flushed. One rival is py-lmdb on this machine, as one
would first write it: a `put` for each key, in the order in which keys come, of the row, the
msgpack record and the vector. The other is a figure that was published, from another machine:
TF-Engram's index stage. With ``--memory``, only the bytes a phrase of a memory that is there.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import time
from dataclasses import replace
from pathlib import Path

import lmdb
import msgpack
import numpy as np

from benchmarks import _disk, _synthetic
from benchmarks._harness import Result, report
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record

_DIM = 64
_CORPORA = ("encyclopedia", "articles", "science", "web")
_PUBLISHED = 177_000
_WORDS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="10M entries instead of 1M")
    parser.add_argument("--memory", type=Path, help="a memory to measure")
    arguments = parser.parse_args()
    if arguments.memory:
        report(_sizes(arguments.memory), "pack_bytes")
        return
    entries = 10_000_000 if arguments.full else 1_000_000
    keys = _synthetic.make_keys(entries)
    records = _records(keys)
    path = _synthetic.FOLDER / "packed"
    rival, rows = _lmdb_rate(keys, records, entries)
    before = _cpu_seconds()
    rate = _our_rate(path, keys, records)
    cpu = _cpu_seconds() - before
    _check(path, keys, records, rows)
    note = f"{entries:,} entries, {_DIM} float16"
    measured = Result(
        name="pack/entries",
        value=rate,
        unit="entries/s",
        rival="py-lmdb put, in the order of arrival",
        rival_value=rival,
        state="warm",
        higher_is_better=True,
        note=note,
    )
    published = replace(
        measured,
        name="pack/published",
        rival="TF-Engram's index stage, another machine",
        rival_value=_PUBLISHED,
        target=1,
    )
    alone = replace(
        published,
        name="pack/by CPU time, had both cores been free",
        value=2 * entries / cpu,
        note="with the making of the records",
    )
    report([measured, published, alone, *_sizes(path)], "pack")
    shutil.rmtree(path)


def _records(keys: _synthetic.Keys) -> list[Record]:
    """Make records like those of phrases: a word for each token, few counts that are not 0."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(rng.choice(letters, size)) for size in rng.integers(2, 8, _WORDS)]
    counts = (rng.zipf(1.7, (len(keys.lengths), len(_CORPORA))) % 5000).tolist()
    scores = rng.random(len(keys.lengths), dtype=np.float32).tolist()
    return [
        Record(
            " ".join(words[token % _WORDS] for token in tokens[:length]),
            score,
            dict(zip(_CORPORA, row, strict=True)),
            sum(row),
        )
        for tokens, length, score, row in zip(
            keys.tokens.tolist(), keys.lengths.tolist(), scores, counts, strict=True
        )
    ]


def _our_rate(path: Path, keys: _synthetic.Keys, records: list[Record]) -> float:
    shutil.rmtree(path, ignore_errors=True)
    seconds = _synthetic.write_memory(
        path,
        keys.lengths,
        keys.tokens,
        vectors=_synthetic.vector_table(_DIM),
        records=records,
        corpora=_CORPORA,
    )
    return len(records) / seconds


def _lmdb_rate(
    keys: _synthetic.Keys, records: list[Record], entries: int
) -> tuple[float, dict[bytes, tuple[Record, bytes]]]:
    path = _synthetic.FOLDER / "packed-rival.mdb"
    path.unlink(missing_ok=True)
    packed = _synthetic.keys_as_bytes(keys.tokens[:entries], keys.lengths[:entries])
    table = _synthetic.vector_table(_DIM)
    begin = time.perf_counter()
    with lmdb.open(str(path), subdir=False, map_size=1 << 36, lock=False, sync=False) as rival:
        with rival.begin(write=True) as transaction:
            for i, key in enumerate(packed):
                r = records[i]
                fields = msgpack.packb([r.text, r.score, r.documents, *r.counts.values()])
                transaction.put(key, fields + table[i % len(table)].tobytes())
        rival.sync(force=True)
        rate = entries / (time.perf_counter() - begin)
        with rival.begin() as transaction:
            sample = {key: transaction.get(key) for key in packed[:: entries // 500]}
    path.unlink()
    return rate, {key: _read(value) for key, value in sample.items() if value is not None}


def _read(value: bytes) -> tuple[Record, bytes]:
    split = len(value) - 2 * _DIM
    text, score, documents, *counts = msgpack.unpackb(value[:split])
    named = {name: count for name, count in zip(_CORPORA, counts, strict=True) if count}
    return Record(text, score, named, documents), value[split:]


def _check(
    path: Path,
    keys: _synthetic.Keys,
    records: list[Record],
    sample: dict[bytes, tuple[Record, bytes]],
) -> None:
    with MemoryReader.open(path, check="full") as reader:
        if len(reader) != len(records):
            raise AssertionError("entries are missing")
        for key, (record, vector) in sample.items():
            tokens = np.frombuffer(key, dtype=">u4").tolist()
            row = reader.get_many([tokens])
            found = reader.payload("semantic").gather(row)[0].astype(np.float16).tobytes()
            if reader.record(tokens) != record or found != vector:
                raise AssertionError("the two sides hold different entries")


def _cpu_seconds() -> float:
    usage = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in usage)


def _sizes(path: Path) -> list[Result]:
    sizes = _disk.bytes_a_phrase(path)
    held_out = sizes.pop("held-out text", 0.0)
    total = Result(
        name="pack/bytes beside the rows",
        value=sum(sizes.values()),
        unit="bytes a phrase",
        rival="TF-Engram's index, without text",
        rival_value=110,
        state="on disk",
        target=1,
        note="" if "catalogue" in sizes else "no catalogue",
    )
    parts = [
        replace(total, name=f"pack/bytes: {kind}", value=size, rival_value=None, note="")
        for kind, size in [*sizes.items(), ("held-out text, not counted", held_out)]
    ]
    return [total, *parts]


if __name__ == "__main__":
    main()
