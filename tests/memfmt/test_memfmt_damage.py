"""Damage of every kind is found, and names its place; nothing of it stops the process."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import pytest

from phrasemem.memfmt.checksums import file_info
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.keys import token_key
from phrasemem.memfmt.manifest import BLOCK_BYTES, FileInfo, Manifest, parse_manifest, serialise
from phrasemem.memfmt.payloads import add_payload
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.sparse import Successors
from phrasemem.memfmt.verify import verify
from phrasemem.memfmt.writer import PayloadSpec

ROWS, INDEX, KEYS = (f"shard-00001/{n}" for n in ("rows-small.arrow", "index.arrow", "keys.mdb"))


@pytest.fixture
def memory(memory_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(memory_path, tmp_path / "memory"))


def refusal(call: Callable[[], object]) -> FormatError:
    with pytest.raises(FormatError) as caught:
        call()
    return caught.value


def resign(memory: Path, name: str) -> None:
    """Make the manifest agree with an altered file, as someone who means harm would."""
    path = memory / "manifest.json"
    manifest = parse_manifest(path.read_bytes(), path)
    files: dict[str, FileInfo] = manifest.files | {name: file_info(memory / name, BLOCK_BYTES)}
    path.write_bytes(serialise(Manifest.model_validate(dict(manifest) | {"files": files})))


def test_a_sound_memory_is_reported(memory_path, many_keys):
    report = verify(memory_path)
    assert report.manifest.entries == len(many_keys)
    assert report.files == 4 * 4 + 3
    assert report.bytes == sum(
        path.stat().st_size
        for path in memory_path.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    )


def test_a_flipped_bit_is_found_and_the_bytes_to_fetch_are_named(memory):
    path = memory / ROWS
    data = bytearray(path.read_bytes())
    data[5000] ^= 4
    path.write_bytes(data)
    for call in (lambda: verify(memory), lambda: MemoryReader.open(memory, check="full")):
        error = refusal(call)
        assert error.reason is Reason.BLOCK_CHECKSUM
        assert f"block 0 was altered in {path}" in str(error)
        assert f"fetch bytes 0-{len(data) - 1} of this file again" in str(error)


@pytest.mark.parametrize("name", [INDEX, "records.zdict"])
def test_what_is_loaded_into_ram_is_always_compared_with_its_checksum(memory, name):
    data = bytearray((memory / name).read_bytes())
    data[len(data) // 2] ^= 1
    (memory / name).write_bytes(data)
    assert refusal(lambda: MemoryReader.open(memory)).reason is Reason.BLOCK_CHECKSUM


@pytest.mark.parametrize("name", [ROWS, KEYS, INDEX, "catalogue.parquet"])
@pytest.mark.parametrize("share", [0, 0.5, 0.999, 1.1])
def test_a_truncated_or_grown_file_is_an_error_before_it_is_mapped(memory, name, share):
    path = memory / name
    data = path.read_bytes()
    path.write_bytes((2 * data)[: int(share * len(data))])
    for call in (lambda: verify(memory), lambda: MemoryReader.open(memory)):
        error = refusal(call)
        assert error.reason is Reason.FILE_LENGTH
        assert str(path) in str(error)
        assert f"expected {len(data)}" in str(error)


def test_a_missing_file_is_named(memory):
    (memory / KEYS).unlink()
    for call in (lambda: verify(memory), lambda: MemoryReader.open(memory)):
        error = refusal(call)
        assert error.reason is Reason.FILE_MISSING
        assert KEYS in str(error)


def test_files_that_are_not_listed_are_found_except_adapters(memory):
    (memory / "adapters" / "abc").mkdir(parents=True)
    (memory / "adapters" / "abc" / "adapter.json").write_text("{}")
    verify(memory)
    (memory / "shard-00000" / "extra").write_text("")
    error = refusal(lambda: verify(memory))
    assert error.reason is Reason.FILE_UNLISTED
    assert "shard-00000/extra" in str(error)


def test_a_manifest_that_is_no_file_is_refused_without_reading_it(memory):
    (memory / "manifest.json").unlink()
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir):
        make(memory / "manifest.json")
        for call in (lambda: verify(memory), lambda: MemoryReader.open(memory)):
            assert refusal(call).reason is Reason.NOT_A_MEMORY
        path = memory / "manifest.json"
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize("what", ["file", "folder"])
def test_links_out_of_the_memory_are_refused(memory, tmp_path, what):
    name = KEYS if what == "file" else "shard-00001"
    shutil.move(memory / name, tmp_path / "elsewhere")
    (memory / name).symlink_to(tmp_path / "elsewhere")
    for call in (lambda: verify(memory), lambda: MemoryReader.open(memory)):
        assert refusal(call).reason is Reason.UNSAFE_PATH


def test_the_whole_file_is_hashed_too(memory):
    path = memory / "manifest.json"
    manifest = parse_manifest(path.read_bytes(), path)
    changed = manifest.files[KEYS].model_copy(update={"sha256": "0" * 64})
    files = manifest.files | {KEYS: changed}
    path.write_bytes(serialise(Manifest.model_validate(dict(manifest) | {"files": files})))
    assert refusal(lambda: verify(memory)).reason is Reason.FILE_CHECKSUM


# What follows has right checksums: a writer that is wrong, not a disk.


def test_rows_that_do_not_belong_to_the_index_are_found(memory):
    for name in ("rows-semantic.arrow", "rows-small.arrow"):
        path = memory / "shard-00001" / name
        data = bytearray(path.read_bytes())
        stride = 64
        data[4096 : 4096 + stride], data[4096 + stride : 4096 + 2 * stride] = (
            data[4096 + stride : 4096 + 2 * stride],
            data[4096 : 4096 + stride],
        )
        path.write_bytes(data)
        resign(memory, f"shard-00001/{name}")
    error = refusal(lambda: verify(memory))
    assert error.reason is Reason.INDEX_ROWS
    assert "shard-00001" in str(error)


def test_payloads_that_hold_different_keys_are_found(memory):
    path = memory / ROWS
    data = bytearray(path.read_bytes())
    data[4096 + 4] ^= 1
    path.write_bytes(data)
    resign(memory, ROWS)
    error = refusal(lambda: verify(memory))
    assert error.reason is Reason.ROWS_DAMAGED
    assert "two payloads hold different keys" in str(error)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, 6, "a key is too long"),
        (1, 1, "padding is not zero"),
        (63, 1, "padding is not zero"),
        (7, 1, "outside the vocabulary"),
        (27, 0x7F, "scale is wrong"),
    ],
)
def test_rows_that_break_their_layout_are_found(memory, offset, value, message):
    path = memory / ROWS
    data = bytearray(path.read_bytes())
    data[4096 + offset] = value
    if message.startswith("scale"):
        data[4096 + offset - 1] = 0x80
    path.write_bytes(data)
    resign(memory, ROWS)
    error = refusal(lambda: verify(memory))
    assert error.reason is Reason.ROWS_DAMAGED
    assert message in str(error)


def test_an_index_of_another_shard_is_found(memory):
    shutil.copyfile(memory / "shard-00000" / "index.arrow", memory / INDEX)
    resign(memory, INDEX)
    for call in (lambda: verify(memory), lambda: MemoryReader.open(memory)):
        error = refusal(call)
        assert error.reason in (Reason.INDEX_ROWS, Reason.INDEX_DAMAGED)
        assert INDEX in str(error)


@pytest.mark.parametrize("data", [b"", b"ARROW1\0\0", b"x" * 5000])
def test_an_index_that_is_not_arrow_is_refused(memory, data):
    (memory / INDEX).write_bytes(data)
    resign(memory, INDEX)
    error = refusal(lambda: MemoryReader.open(memory))
    assert error.reason is Reason.INDEX_DAMAGED
    assert INDEX in str(error)


def change_lmdb(path: Path, change: Callable[[lmdb.Transaction], object]) -> None:
    with (
        lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 24) as environment,
        environment.begin(write=True) as transaction,
    ):
        change(transaction)


def test_a_row_without_a_key_is_found(memory, many_keys):
    with MemoryReader.open(memory) as reader:
        rows = reader.get_many(many_keys)
        first, count = reader.manifest.shards[1].first_row, reader.manifest.shards[1].entries
    own = [key for key, row in zip(many_keys, rows, strict=True) if first <= row < first + count]
    change_lmdb(memory / KEYS, lambda transaction: transaction.delete(token_key(own[-1])))
    resign(memory, KEYS)
    error = refusal(lambda: verify(memory))
    assert error.reason is Reason.KEYS_ROWS
    assert KEYS in str(error)


def test_a_key_without_a_row_is_found(memory):
    change_lmdb(memory / KEYS, lambda transaction: transaction.put(b"\xff" * 4, b"\0" * 9))
    resign(memory, KEYS)
    assert refusal(lambda: verify(memory)).reason is Reason.KEYS_ROWS


@pytest.mark.parametrize("value", [b"\0\0", b"\0\0\0\0"])
def test_a_value_that_is_too_short_is_found(memory, value):
    def change(transaction: lmdb.Transaction) -> None:
        cursor = transaction.cursor()
        assert cursor.first()
        cursor.put(cursor.key(), value)

    change_lmdb(memory / KEYS, change)
    resign(memory, KEYS)
    assert refusal(lambda: verify(memory)).reason is Reason.KEYS_DAMAGED


def test_keys_that_are_not_lmdb_are_refused(memory):
    (memory / KEYS).write_bytes(b"\0" * 16384)
    resign(memory, KEYS)
    error = refusal(lambda: verify(memory))
    assert error.reason is Reason.KEYS_DAMAGED
    assert KEYS in str(error)


def test_pages_of_keys_that_lead_nowhere_are_refused_before_lmdb_follows_them(memory):
    data = bytearray((memory / KEYS).read_bytes())
    for meta in (0, 4096):
        data[meta + 128 : meta + 136] = (1 << 40).to_bytes(8, "little")
    (memory / KEYS).write_bytes(data)
    resign(memory, KEYS)
    for call in (lambda: verify(memory), lambda: MemoryReader.open(memory, check="full")):
        error = refusal(call)
        assert error.reason is Reason.KEYS_DAMAGED
        assert "safely" in str(error)
        assert KEYS in str(error)


def test_a_key_that_is_no_sequence_of_tokens_is_an_error_in_a_walk(memory):
    change_lmdb(memory / KEYS, lambda transaction: transaction.put(b"\xff" * 5, b"\0" * 9))
    resign(memory, KEYS)
    with MemoryReader.open(memory, check="full") as reader:
        error = refusal(lambda: list(reader.prefix(())))
    assert error.reason is Reason.KEYS_DAMAGED
    assert "ffffffffff" in str(error)


_MUTATE = """
import json, random, sys
from pathlib import Path
from phrasemem.memfmt.errors import FormatError
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.verify import verify

memory, seed, changes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
files = sorted(path for path in memory.rglob("*") if path.is_file())
for number in range(changes):
    path = files[number % len(files)]
    data = path.read_bytes()
    changed = bytearray(data)
    if rng.random() < 0.7:
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    else:
        del changed[rng.randrange(len(data)):]
    path.write_bytes(changed)
    found = {}
    for name, call in (("verify", lambda: verify(memory)),
                       ("full", lambda: MemoryReader.open(memory, check="full").close())):
        try:
            call()
        except FormatError as error:
            found[name] = str(error)
    path.write_bytes(data)
    print(json.dumps({"file": path.name, **found}), flush=True)
"""


GOLDEN_SPARSE = Path(__file__).parent / "golden" / "v1.0-sparse"


def add_payloads(memory: Path) -> None:
    """Add vectors and successors, and remove the locks, which no damage can reach."""
    add_payload(
        memory,
        PayloadSpec("more", 3),
        lambda _, lengths, tokens: tokens[:, :3].astype(np.float32),
    )
    add_payload(
        memory,
        PayloadSpec("next", 2, kind="sparse"),
        lambda _, lengths, tokens: Successors(
            tokens[:, :1] + np.arange(2, dtype=np.uint32),
            np.ones((len(tokens), 2), np.float32),
            np.ones((len(tokens), 2), np.float32),
            np.minimum(lengths, 1),
        ),
    )
    for lock in (memory / "payloads").glob(".*.lock"):
        lock.unlink()


@pytest.mark.parametrize(
    ("sparse", "seed", "changes"),
    [(False, 11, 200), (True, 13, 100), pytest.param(False, 12, 1000, marks=pytest.mark.slow)],
)
def test_flips_and_truncations_are_found_and_none_kills_the_process(memory, sparse, seed, changes):
    if sparse:
        shutil.rmtree(memory)
        shutil.copytree(GOLDEN_SPARSE, memory)
    else:
        add_payloads(memory)
    # A process of its own, since the failure to be excluded is SIGBUS.
    run = subprocess.run(
        [sys.executable, "-c", _MUTATE, str(memory), str(seed), str(changes)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(lines) == changes
    for line in lines:
        assert line["file"] in line["verify"], line
        assert line["file"] in line["full"], line
    verify(memory)


def test_truncated_rows_of_an_added_payload_are_an_error_before_they_are_mapped(memory):
    add_payloads(memory)
    path = memory / "payloads" / "next" / "shard-00001" / "rows.arrow"
    path.write_bytes(path.read_bytes()[:5000])
    for call in (lambda: verify(memory), lambda: MemoryReader.open(memory)):
        error = refusal(call)
        assert error.reason is Reason.FILE_LENGTH
        assert str(path) in str(error)


_READ_DAMAGED = """
import random, sys
from pathlib import Path
import numpy as np
from phrasemem.memfmt.errors import FormatError
from phrasemem.memfmt.reader import MemoryReader

memory, seed, changes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
with MemoryReader.open(memory) as reader:
    lengths, tokens = reader.row_tokens(np.arange(len(reader)))
files = sorted(memory.glob("shard-*/rows-*.arrow"))
for number in range(changes):
    path = files[number % len(files)]
    data = path.read_bytes()
    changed = bytearray(data)
    # In the first bytes of a row, where its key stands.
    place = 4096 + 64 * rng.randrange((len(data) - 4096) // 64) + rng.randrange(24)
    changed[min(place, len(data) - 1)] ^= 1 << rng.randrange(8)
    path.write_bytes(changed)
    with MemoryReader.open(memory) as reader:
        rows = reader.look_up(tokens, lengths)
        wrong = rows[(rows != np.arange(len(rows))) & (rows >= 0)]
        text = np.where(np.arange(tokens.shape[1]) < lengths[:, None], tokens, -1)
        reader.longest_match(text.astype(np.int64))
    path.write_bytes(data)
    print(len(wrong), int((rows < 0).sum()), flush=True)
"""


def test_a_row_whose_key_was_altered_is_lost_but_never_given_for_another(memory):
    # Without full checks: the tokens in the row are what proves a match.
    run = subprocess.run(
        [sys.executable, "-c", _READ_DAMAGED, str(memory), "3", "100"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = [tuple(map(int, line.split())) for line in run.stdout.splitlines()]
    assert len(found) == 100
    assert {wrong for wrong, _ in found} == {0}
    assert {lost for _, lost in found} == {0, 1}


def test_no_wrong_row_is_ever_given_when_opened_with_full_checks(memory, many_keys, vectors):
    rng = random.Random(5)
    path = memory / "shard-00002" / "rows-semantic.arrow"
    data = path.read_bytes()
    for _ in range(50):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        assert (
            refusal(lambda: MemoryReader.open(memory, check="full")).reason is Reason.BLOCK_CHECKSUM
        )
    path.write_bytes(data)
    with MemoryReader.open(memory, check="full") as reader:
        rows = reader.get_many(many_keys)
        expected = np.stack([vectors(key) for key in many_keys])
        np.testing.assert_allclose(reader.payload("semantic").gather(rows), expected, rtol=2**-11)
