"""Payloads are added to a finished memory whole or not at all, and its own files never change."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from phrasemem.cli import cli
from phrasemem.memfmt.canonical import canonical, sealed
from phrasemem.memfmt.checksums import file_info
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.manifest import BLOCK_BYTES
from phrasemem.memfmt.payloads import (
    add_payload,
    finish_payload,
    remove_payload,
    shard_keys,
    write_payload_shard,
)
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.sparse import Successors
from phrasemem.memfmt.verify import verify
from phrasemem.memfmt.writer import PayloadSpec, write_memory

DENSE = PayloadSpec("more", 7, "int8", "a source")
SPARSE = PayloadSpec("next", 3, kind="sparse")


def vectors(_: int, lengths: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Functions of the key."""
    sums = tokens.sum(axis=1, dtype=np.int64) + 31 * lengths
    return np.sin(np.arange(1, 8) * sums[:, None]).astype(np.float32)


def successors(_: int, lengths: np.ndarray, tokens: np.ndarray) -> Successors:
    first = tokens[:, :1] % 40
    counts = np.broadcast_to(1 + lengths[:, None].astype(np.float32), (len(lengths), 3))
    return Successors((first + np.arange(3)).astype(np.uint32), counts, counts / 2, lengths % 4)


@pytest.fixture
def memory(memory_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(memory_path, tmp_path / "memory"))


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in files}
    return {n: p.read_bytes() for n, p in named.items() if not n.startswith("payloads/.")}


def refusal(call: Callable[[], object]) -> FormatError:
    with pytest.raises(FormatError) as caught:
        call()
    return caught.value


def test_added_payloads_are_read_beside_the_others(memory, many_keys):
    before = bytes_of(memory)
    assert add_payload(memory, SPARSE, successors).reader_features == ["sparse-payloads"]
    added = add_payload(memory, DENSE, vectors)
    assert {n: b for n, b in bytes_of(memory).items() if not n.startswith("payloads/")} == before
    report = verify(memory)
    assert [one.name for one in report.added] == ["more", "next"]
    assert report.added[0] == added
    assert report.files == 4 * 4 + 3 + 2 * 4
    with MemoryReader.open(memory, check="full") as reader:
        assert reader.payload_names == ["semantic", "small", "more", "next"]
        assert reader.manifest.reader_features == []
        rows = reader.get_many(many_keys)
        lengths, tokens = reader.row_tokens(rows)
        for name in ("more", "next"):
            raw = reader.payload(name).gather_raw(rows)
            assert reader.payload(name).layout.keys(raw)[1].tolist() == tokens.tolist()
        expected = vectors(0, lengths, tokens)
        np.testing.assert_allclose(reader.payload("more").gather(rows), expected, atol=0.005)
        found, wanted = reader.payload("next").gather(rows), successors(0, lengths, tokens)
        inside = np.arange(3) < wanted.used[:, None]
        assert found.used.tolist() == wanted.used.tolist()
        assert np.array_equal(found.ids, np.where(inside, wanted.ids, 0))
        assert np.array_equal(found.observed, np.where(inside, wanted.observed, 0))


def test_the_commands_show_what_was_added(memory):
    add_payload(memory, DENSE, vectors)
    shown = CliRunner().invoke(cli, ["verify", str(memory)])
    assert "added      more (7 x int8)\n" in shown.output
    inspected = CliRunner().invoke(cli, ["inspect", str(memory), "--json"])
    value = json.loads(inspected.output)
    assert [payload["name"] for payload in value["added"]] == ["more"]
    files = {line["file"]: line["files"] for line in value["files"]}
    assert files["payloads/more/shard-*/rows.arrow"] == 4


def test_shards_written_in_any_order_and_twice_give_the_same_bytes(memory, tmp_path):
    other = Path(shutil.copytree(memory, tmp_path / "other"))
    add_payload(memory, DENSE, vectors)
    for shard in (3, 1, 0, 2, 1):
        keys = shard_keys(other, shard)
        write_payload_shard(other, DENSE, shard, vectors(shard, *keys))
    leftover = other / "payloads" / ".more.writing" / "shard-00009" / "rows.arrow"
    leftover.parent.mkdir()
    leftover.write_bytes(b"of another attempt")
    with MemoryReader.open(other) as reader:
        assert reader.payload_names == ["semantic", "small"]
    verify(other)
    finish_payload(other, DENSE)
    assert bytes_of(other) == bytes_of(memory)
    verify(other)


def test_a_shard_that_is_missing_or_cut_or_of_other_keys_is_not_finished(memory):
    for shard in range(3):
        write_payload_shard(memory, DENSE, shard, vectors(shard, *shard_keys(memory, shard)))
    error = refusal(lambda: finish_payload(memory, DENSE))
    assert (error.reason, "shard-00003" in str(error)) == (Reason.FILE_MISSING, True)
    write_payload_shard(memory, DENSE, 3, vectors(3, *shard_keys(memory, 3)))
    path = memory / "payloads" / ".more.writing" / "shard-00001" / "rows.arrow"
    good = path.read_bytes()
    path.write_bytes(good[:-999])
    assert refusal(lambda: finish_payload(memory, DENSE)).reason is Reason.ROWS_DAMAGED
    path.write_bytes(good[:4100] + b"\x09" + good[4101:])
    error = refusal(lambda: finish_payload(memory, DENSE))
    assert error.reason is Reason.ROWS_DAMAGED
    path.write_bytes(good)
    finish_payload(memory, DENSE)
    verify(memory)


@pytest.mark.parametrize("name", ["small", "more"])
def test_a_name_is_given_once(memory, name):
    add_payload(memory, DENSE, vectors)
    before = bytes_of(memory)
    spec = PayloadSpec(name, 7)
    for call in (
        lambda: add_payload(memory, spec, vectors),
        lambda: write_payload_shard(memory, spec, 0, vectors(0, *shard_keys(memory, 0))),
        lambda: finish_payload(memory, spec),
    ):
        with pytest.raises(PhraseMemError, match=f"has a payload of this name already.*'{name}'"):
            call()
    assert bytes_of(memory) == before


@pytest.mark.parametrize("name", ["../x", ".x", "", "a/b"])
def test_a_name_that_is_no_name_is_refused(memory, name):
    with pytest.raises(PhraseMemError, match="name: "):
        add_payload(memory, PayloadSpec(name, 7), vectors)
    assert refusal(lambda: remove_payload(memory, name)).reason is Reason.PAYLOAD_MISSING
    assert not (memory / "payloads").exists()


def test_what_does_not_fit_leaves_nothing_behind(memory):
    with pytest.raises(PhraseMemError, match=r"wrong vectors in more: expected \(\d+, 7\)"):
        add_payload(memory, DENSE, lambda _, lengths, tokens: tokens.astype(np.float32))
    assert not any(path.is_dir() for path in (memory / "payloads").iterdir())
    verify(memory)


def test_a_payload_that_is_removed_is_gone_and_may_come_again(memory):
    add_payload(memory, DENSE, vectors)
    before = bytes_of(memory)
    with MemoryReader.open(memory) as reader:
        remove_payload(memory, "more")
        assert reader.payload("more").gather(np.arange(3)).shape == (3, 7)
    assert refusal(lambda: remove_payload(memory, "more")).reason is Reason.PAYLOAD_MISSING
    with MemoryReader.open(memory) as reader:
        assert reader.payload_names == ["semantic", "small"]
    # As a killed removal leaves it.
    (memory / "payloads" / ".more.replaced").mkdir()
    verify(memory)
    add_payload(memory, DENSE, vectors)
    assert bytes_of(memory) == before
    assert not (memory / "payloads" / ".more.replaced").exists()


def test_a_memory_that_is_written_anew_has_no_additions(memory, header, entries_of, many_keys):
    add_payload(memory, DENSE, vectors)
    write_memory(memory, entries_of(many_keys[:50]), header)
    assert not (memory / "payloads").exists()
    verify(memory)


def test_a_damaged_base_is_not_built_upon(memory):
    path = memory / "shard-00002" / "rows-semantic.arrow"
    data = bytearray(path.read_bytes())
    data[4100] ^= 1
    path.write_bytes(data)
    error = refusal(lambda: add_payload(memory, DENSE, vectors))
    assert error.reason is Reason.BLOCK_CHECKSUM
    with MemoryReader.open(memory) as reader:
        assert reader.payload_names == ["semantic", "small"]


# What may be wrong with an added payload. Each is refused on opening and by verify.


def change(memory: Path, **fields: object) -> None:
    """Alter the manifest of the payload and seal it again, as a wrong writer would."""
    path = memory / "payloads" / "more" / "payload.json"
    value = json.loads(path.read_bytes()) | fields
    del value["checksum"]
    path.write_bytes(sealed(value))


def info(memory: Path, **fields: object) -> dict:
    value = json.loads((memory / "payloads" / "more" / "payload.json").read_bytes())
    return value["payload"] | fields


def _rename(memory: Path) -> None:
    (memory / "payloads" / "more").rename(memory / "payloads" / "other")


def _link(memory: Path) -> None:
    moved = (memory / "payloads" / "more").rename(memory.parent / "elsewhere")
    (memory / "payloads" / "more").symlink_to(moved)


def _link_file(memory: Path) -> None:
    path = memory / "payloads" / "more" / "shard-00000"
    shutil.move(path, memory.parent / "elsewhere")
    path.symlink_to(memory.parent / "elsewhere")


def _write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda memory: (memory / "payloads" / "more" / name).write_bytes(data)


WRONG: dict[str, tuple[Callable[[Path], object], Reason]] = {
    "of another memory": (lambda m: change(m, base="0" * 64), Reason.PAYLOAD_BASE),
    "a folder of another name": (_rename, Reason.PAYLOAD_NAME),
    "the name of another": (
        lambda m: (
            change(m, payload=info(m, name="small")),
            (m / "payloads" / "more").rename(m / "payloads" / "small"),
        ),
        Reason.PAYLOAD_NAME,
    ),
    "no manifest": (
        lambda m: (m / "payloads" / "more" / "payload.json").unlink(),
        Reason.FILE_MISSING,
    ),
    "no JSON": (_write("payload.json", b"{"), Reason.MANIFEST_SYNTAX),
    "a name twice": (_write("payload.json", b'{"a":1,"a":1}\n'), Reason.MANIFEST_SYNTAX),
    "another magic": (lambda m: change(m, magic="phrasemem.memfmt"), Reason.NOT_A_MEMORY),
    "a future version": (lambda m: change(m, format_version="2.0"), Reason.UNKNOWN_MAJOR),
    "a future feature": (lambda m: change(m, reader_features=["x"]), Reason.UNKNOWN_FEATURE),
    "a feature not used": (
        lambda m: change(m, reader_features=["sparse-payloads"]),
        Reason.MANIFEST_SCHEMA,
    ),
    "another field": (lambda m: change(m, colour=1), Reason.MANIFEST_SCHEMA),
    "another stride": (lambda m: change(m, payload=info(m, stride=128)), Reason.MANIFEST_SCHEMA),
    "no files": (lambda m: change(m, files={}), Reason.MANIFEST_SCHEMA),
    "no version": (
        _write("payload.json", canonical({"magic": "phrasemem.payload"})),
        Reason.UNKNOWN_MAJOR,
    ),
    "a link": (_link, Reason.UNSAFE_PATH),
    "a linked shard": (_link_file, Reason.UNSAFE_PATH),
    "a shard less": (
        lambda m: (m / "payloads" / "more" / "shard-00001" / "rows.arrow").unlink(),
        Reason.FILE_MISSING,
    ),
    "a shorter shard": (_write("shard-00001/rows.arrow", b"x" * 4097), Reason.FILE_LENGTH),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_payload_is_refused_and_can_be_removed(memory, name):
    add_payload(memory, DENSE, vectors)
    breakage, reason = WRONG[name]
    breakage(memory)
    for call in (lambda: MemoryReader.open(memory), lambda: verify(memory)):
        error = refusal(call)
        assert error.reason is reason, error
        assert "payloads" in str(error)
    for path in (memory / "payloads").glob("[!.]*"):
        path.unlink() if path.is_symlink() else remove_payload(memory, path.name)
    verify(memory)


def test_an_altered_manifest_byte_is_found(memory):
    add_payload(memory, DENSE, vectors)
    path = memory / "payloads" / "more" / "payload.json"
    path.write_bytes(path.read_bytes().replace(b"a source", b"a sourcf"))
    assert refusal(lambda: MemoryReader.open(memory)).reason is Reason.MANIFEST_CHECKSUM


@pytest.mark.parametrize("name", ["payloads/stray", "payloads/more/stray"])
def test_files_that_no_manifest_names_are_found(memory, name):
    add_payload(memory, DENSE, vectors)
    (memory / name).touch()
    MemoryReader.open(memory).close()
    error = refusal(lambda: verify(memory))
    assert (error.reason, name in str(error)) == (Reason.FILE_UNLISTED, True)


def test_rows_of_other_keys_with_right_checksums_are_found(memory):
    add_payload(memory, DENSE, vectors)
    path = memory / "payloads" / "more" / "shard-00001" / "rows.arrow"
    data = bytearray(path.read_bytes())
    data[4096 + 4] ^= 1
    path.write_bytes(data)
    files = json.loads((path.parents[1] / "payload.json").read_bytes())["files"]
    files["shard-00001/rows.arrow"] = file_info(path, BLOCK_BYTES).model_dump()
    change(memory, files=files)
    error = refusal(lambda: verify(memory))
    assert error.reason is Reason.ROWS_DAMAGED
    assert "two payloads hold different keys" in str(error)


def test_payloads_of_a_memory_that_was_built_anew_are_refused(memory, header, entries_of, tmp_path):
    other = tmp_path / "anew"
    write_memory(other, entries_of([(1,), (2, 3)]), header)
    add_payload(other, DENSE, vectors)
    shutil.copytree(other / "payloads", memory / "payloads")
    for call in (lambda: MemoryReader.open(memory), lambda: verify(memory)):
        assert refusal(call).reason is Reason.PAYLOAD_BASE


_ADD = """
import os, signal, sys
from pathlib import Path
import numpy as np
from phrasemem.memfmt import durable, payloads
from phrasemem.memfmt.layout import PayloadSpec

memory, stop = Path(sys.argv[1]), int(sys.argv[2])
calls = 0

def die_at(function):
    def counted(*arguments):
        global calls
        calls += 1
        if calls == stop:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return counted

for name in ("sync_path", "write_file", "move_into_place"):
    setattr(durable, name, die_at(getattr(durable, name)))
rename = Path.rename
Path.rename = die_at(rename)
payloads.add_payload(memory, PayloadSpec("more", 7, "int8", "a source"),
                     lambda shard, n, t: np.full((len(n), 7), shard, dtype=np.float32))
print(calls)
"""


def add_in_process(memory: Path, stop: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _ADD, str(memory), str(stop)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_kill_while_adding_leaves_the_memory_whole_and_the_next_try_succeeds(memory, tmp_path):
    whole = Path(shutil.copytree(memory, tmp_path / "whole"))
    steps = int(add_in_process(whole, 0).stdout)
    assert steps > 15
    for stop in (2, steps - 3, steps - 2, steps - 1, steps):
        broken = Path(shutil.copytree(memory, tmp_path / f"broken-{stop}"))
        assert add_in_process(broken, stop).returncode == -signal.SIGKILL
        verify(broken)
        with MemoryReader.open(broken) as reader:
            finished = "more" in reader.payload_names
        assert finished == (stop == steps)  # the last step flushes what has its name already
        if not finished:
            assert add_in_process(broken, 0).returncode == 0
        assert hashes(broken) == hashes(whole)


def hashes(memory: Path) -> dict[str, str]:
    verify(memory)
    return {n: hashlib.sha256(b).hexdigest() for n, b in bytes_of(memory).items()}
