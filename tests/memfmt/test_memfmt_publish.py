"""Copies are verified on both sides, and appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from phrasemem.cli import cli, main
from phrasemem.memfmt.adapters import AdapterFilesError
from phrasemem.memfmt.canonical import sealed
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.payloads import add_payload
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.transport import copy_memory
from phrasemem.memfmt.verify import verify
from phrasemem.memfmt.writer import PayloadSpec


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=True)


def zeros(lengths: np.ndarray, dim: int) -> np.ndarray:
    return np.zeros((len(lengths), dim), np.float32)


def write_adapter(memory: Path) -> Path:
    folder = memory / "adapters" / "abc"
    folder.mkdir(parents=True)
    entry = {"bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    (folder / "adapter.json").write_bytes(sealed({"files": {"tensors": entry}}))
    (folder / "tensors").write_bytes(b"abc")
    return folder


@pytest.mark.parametrize("name", ["adapter.json", "tensors"])
def test_a_damaged_adapter_is_not_published(memory_path, tmp_path, name):
    source = Path(shutil.copytree(memory_path, tmp_path / "source"))
    path = write_adapter(source) / name
    data = path.read_bytes()
    path.write_bytes(data.replace(b"abc", b"abd") if name == "tensors" else data[:-1])
    with pytest.raises(AdapterFilesError, match="was altered"):
        copy_memory(source, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_copy_is_the_same_bytes_with_all_additions(memory_path, tmp_path):
    source = Path(shutil.copytree(memory_path, tmp_path / "source"))
    write_adapter(source)
    add_payload(source, PayloadSpec("more", 3), lambda _, n, tokens: zeros(n, 3))
    names = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    names -= {Path("payloads/.more.lock")}
    (source / "payloads" / ".other.writing").mkdir()
    (source / "payloads" / ".other.writing" / "half").touch()
    (source / "adapters" / ".abc.lock").touch()
    report = copy_memory(source, tmp_path / "deep" / "copy")
    assert report == verify(source)
    copied = tmp_path / "deep" / "copy"
    assert names == {path.relative_to(copied) for path in copied.rglob("*") if path.is_file()}
    assert all((source / name).read_bytes() == (copied / name).read_bytes() for name in names)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["copy"]


def test_what_stands_there_is_kept_unless_told_otherwise(memory_path, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "precious").write_text("")
    with pytest.raises(PhraseMemError, match=r"stands there already in .*copy \(use --replace\)"):
        copy_memory(memory_path, tmp_path / "copy")
    assert (tmp_path / "copy" / "precious").exists()
    copy_memory(memory_path, tmp_path / "copy", replace=True)
    verify(tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_damaged_memory_is_not_published(memory_path, tmp_path):
    source = Path(shutil.copytree(memory_path, tmp_path / "source"))
    (source / "shard-00000" / "keys.mdb").write_bytes(b"")
    with pytest.raises(FormatError) as caught:
        copy_memory(source, tmp_path / "copy")
    assert caught.value.reason is Reason.FILE_LENGTH
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_memory_is_not_copied_onto_or_into_itself(memory_path):
    with pytest.raises(PhraseMemError, match="source and destination are the same"):
        copy_memory(memory_path, memory_path, replace=True)
    with pytest.raises(PhraseMemError, match="destination is inside the memory"):
        copy_memory(memory_path, memory_path / "adapters" / "x")
    verify(memory_path)


def test_a_file_is_never_replaced(memory_path, tmp_path):
    (tmp_path / "precious").write_text("text")
    for destination in (tmp_path / "precious", Path("/")):
        with pytest.raises(PhraseMemError, match="a memory is a folder"):
            copy_memory(memory_path, destination, replace=True)
    assert (tmp_path / "precious").read_text() == "text"


def test_the_commands_tell_what_they_found(memory_path, tmp_path):
    shown = run("verify", memory_path)
    assert shown.exit_code == 0
    assert "700 keys of up to 5 tokens" in shown.output
    assert "semantic (12 x float16), small (12 x int8)" in shown.output
    published = run("publish", memory_path, tmp_path / "copy")
    assert published.exit_code == 0
    assert published.output == shown.output + f"published  {tmp_path / 'copy'}\n"
    assert run("publish", memory_path, tmp_path / "copy").exit_code == 1
    assert run("publish", memory_path, tmp_path / "copy", "--replace").exit_code == 0


def test_an_error_is_one_line_and_exit_status_1(memory_path, tmp_path, capsys):
    broken = Path(shutil.copytree(memory_path, tmp_path / "broken"))
    data = bytearray((broken / "records.zdict").read_bytes())
    data[9] ^= 1
    (broken / "records.zdict").write_bytes(data)
    for arguments, words in (
        (["verify", str(broken)], ["records.zdict", "[block-checksum]", "fetch bytes 0-"]),
        (["verify", str(tmp_path)], ["manifest.json is missing", "[not-a-memory]"]),
        (["publish", str(broken), str(tmp_path / "copy")], ["[block-checksum]"]),
        (["lookup", str(tmp_path), "text"], ["[not-a-memory]"]),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert error.startswith("phrasemem: ")
        assert all(word in error for word in words), error


def test_reading_a_published_copy(memory_path, tmp_path, many_keys):
    run("publish", memory_path, tmp_path / "copy")
    with MemoryReader.open(tmp_path / "copy") as copy, MemoryReader.open(memory_path) as original:
        assert copy.get_many(many_keys).tolist() == original.get_many(many_keys).tolist()
        assert json.loads(copy.manifest.model_dump_json()) == json.loads(
            original.manifest.model_dump_json()
        )
