"""Writing: the same bytes always, nothing half-written ever, clear refusals."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from phrasemem.memfmt import durable
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.keys import pack_keys, shard_of, tokens_hash
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.verify import verify
from phrasemem.memfmt.writer import (
    choose_seed,
    finish_memory,
    train_dictionary,
    write_memory,
    write_shard,
)


def tree_digest(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            whole.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()


def test_the_order_of_the_entries_does_not_matter(tmp_path, header, entries_of, many_keys):
    shuffled = random.Random(3).sample(many_keys, len(many_keys))
    write_memory(tmp_path / "a", entries_of(many_keys), header, shard_bits=1)
    write_memory(tmp_path / "b", entries_of(shuffled), header, shard_bits=1)
    assert tree_digest(tmp_path / "a") == tree_digest(tmp_path / "b")


def test_shards_written_alone_and_in_any_order_make_the_same_memory(
    tmp_path, header, entries_of, many_keys
):
    write_memory(tmp_path / "whole", entries_of(many_keys), header, shard_bits=2)
    tokens, lengths = pack_keys(many_keys, header.n_max)
    seed = choose_seed(lengths, tokens)
    hashes = tokens_hash(tokens, lengths, seed)
    in_row_order = [many_keys[i] for i in np.argsort(hashes)]
    dictionary = train_dictionary(entries_of(in_row_order).records, ["news", "wiki"])
    layout = header.layout(
        entries=len(many_keys), hash_seed=seed, shard_bits=2, dictionary=dictionary
    )
    staging, counts = tmp_path / "staging", [0] * 4
    for shard in (2, 0, 3, 1, 2):  # one of them twice, as after a kill
        own = [many_keys[i] for i in np.flatnonzero(shard_of(hashes, 2) == shard)]
        counts[shard] = write_shard(staging, shard, entries_of(own[::-1]), layout)
    (staging / "shard-00001" / "left-by-a-killed-run").write_text("")
    finish_memory(staging, tmp_path / "parts", header, layout, counts)
    assert tree_digest(tmp_path / "whole") == tree_digest(tmp_path / "parts")
    assert not staging.exists()


# 60,000 keys make LMDB write in several transactions.
_WRITE = """
import sys
import numpy as np
from pathlib import Path
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.writer import *

count = int(sys.argv[2])
ids = np.arange(count, dtype=np.uint32)
tokens = np.stack([ids // 256, ids % 256], axis=1).astype(np.uint32)
records = [Record(f"text of {i} {i**30}", i / 7, {"news": i}, 3) for i in range(count)]
vectors = np.random.default_rng(0).standard_normal((count, 24)).astype(np.float32)
header = Header(
    TokenizerInfo(fingerprint="f", name="n", vocab_size=65536), 2,
    [PayloadSpec("semantic", 24)],
    [CorpusInfo(name="news", kind="web", licence="", source="", documents=1, tokens=1)],
)
entries = Entries(np.full(count, 2, dtype=np.uint8), tokens, records, {"semantic": vectors})
print("begin", flush=True)
write_memory(Path(sys.argv[1]), entries, header, shard_bits=1)
"""


def writing_process(path: Path, count: int, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITE, str(path), str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
        text=True,
    )


def test_two_processes_write_the_same_bytes(tmp_path):
    for name, seed in (("a", "1"), ("b", "2")):
        with writing_process(tmp_path / name, 60_000, PYTHONHASHSEED=seed) as process:
            assert process.wait() == 0, process.stderr.read()
    assert tree_digest(tmp_path / "a") == tree_digest(tmp_path / "b")
    assert sorted(path.name for path in (tmp_path / "a" / "shard-00000").iterdir()) == [
        "index.arrow",
        "keys.mdb",
        "rows-semantic.arrow",
    ]


def test_a_killed_writer_leaves_nothing_under_the_final_name(tmp_path):
    final, rng = tmp_path / "memory", random.Random(17)
    with writing_process(final, 30_000) as process:
        process.stdout.readline()
        begin = time.monotonic()
        assert process.wait() == 0
        whole = time.monotonic() - begin
    expected = tree_digest(final)
    durable.move_into_place(final, tmp_path / "reference")
    killed = 0
    for _ in range(6):
        with writing_process(final, 30_000) as process:
            assert process.stdout.readline() == "begin\n"
            time.sleep(rng.uniform(0.05, 0.9) * whole)
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        assert not final.exists() or tree_digest(final) == expected
    assert killed >= 3
    with writing_process(final, 30_000) as process:
        assert process.wait() == 0, process.stderr.read()
    assert tree_digest(final) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory", "reference"]


_FULL_DISK = """
import resource, signal
# Past this size writes fail, as on a full disk; without SIG_IGN the process would be killed.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (@, @))
"""


@pytest.mark.parametrize(("limit", "file"), [(20_000, "index"), (300_000, "rows"), (10**6, "keys")])
def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path, limit, file):
    script = _FULL_DISK.replace("@", str(limit)) + _WRITE
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m"), "30000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-1]
    assert ("is the disk full?" if file == "keys" else "File too large") in last, run.stderr
    assert f"write_{file}" in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_replacing_a_memory_leaves_the_new_one_alone(tmp_path, header, entries_of):
    for keys in ([(1,)], [(2,), (3, 4)]):
        write_memory(tmp_path / "m", entries_of(keys), header)
    with MemoryReader.open(tmp_path / "m") as reader:
        assert [key for key, _, _ in reader.prefix(())] == [(2,), (3, 4)]
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("keys_were_read", [True, False])
def test_a_memory_that_is_replaced_while_open_never_gives_the_new_one(
    tmp_path, header, entries_of, vectors, records, keys_were_read
):
    write_memory(tmp_path / "m", entries_of([(1,), (2,)]), header)
    with MemoryReader.open(tmp_path / "m") as old:
        if keys_were_read:
            assert old.record((2,)) == records((2,))
        write_memory(tmp_path / "m", entries_of([(5,)]), header)
        row = old.get_many([(2,)])
        expected = vectors((2,))
        np.testing.assert_allclose(old.payload("semantic").gather(row)[0], expected, rtol=2**-11)
        with MemoryReader.open(tmp_path / "m") as new:
            assert [key for key, _, _ in new.prefix(())] == [(5,)]
            if keys_were_read:
                assert [key for key, _, _ in old.prefix(())] == [(1,), (2,)]
            else:
                with pytest.raises(PhraseMemError, match=r"was replaced .*\(open it again\)"):
                    old.record((2,))


REFUSALS = {
    "a token too large": (lambda e: e.tokens.__setitem__((0, 0), 50), "outside the vocabulary"),
    "a length too large": (lambda e: e.lengths.__setitem__(0, 6), "a key is too long"),
    "tokens after the key": (lambda e: e.tokens.__setitem__((0, 4), 1), "tokens beyond its length"),
    "a record too few": (lambda e: e.records.pop(), "records missing: expected 2, found 1"),
    "a payload too many": (
        lambda e: e.payloads.__setitem__("more", e.payloads["small"]),
        "wrong payloads",
    ),
    "vectors too wide": (
        lambda e: e.payloads.__setitem__("small", np.zeros((2, 13))),
        r"wrong vectors in small: expected \(2, 12\), found \(2, 13\)",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_entries_that_do_not_fit_are_refused(tmp_path, header, entries_of, name):
    change, message = REFUSALS[name]
    entries = entries_of([(1, 2), (3,)])
    layout = header.layout(entries=2, hash_seed=0)
    change(entries)
    with pytest.raises(PhraseMemError, match=message):
        write_shard(tmp_path, 0, entries, layout)
    assert list(tmp_path.iterdir()) == []


def test_keys_of_another_shard_and_missing_shards_are_refused(tmp_path, header, entries_of):
    layout = header.layout(entries=2, hash_seed=0, shard_bits=1)
    entries = entries_of([(1,), (2,), (3,), (4,), (5,), (6,), (7,), (8,)])
    with pytest.raises(PhraseMemError, match="a key belongs to another shard in shard-00001"):
        write_shard(tmp_path, 1, entries, layout)
    with pytest.raises(PhraseMemError, match=r"shards do not add up in .*: expected 2, found 1"):
        finish_memory(tmp_path, tmp_path / "m", header, layout, [1, 0])


def test_extra_files_are_part_of_the_memory(memory_path):
    report = verify(memory_path)
    assert report.manifest.files["catalogue.parquet"].bytes == 2304
