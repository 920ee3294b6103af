"""One test for each reason that a manifest can be refused for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from phrasemem.memfmt.canonical import canonical
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.manifest import parse_manifest, serialise
from phrasemem.memfmt.reader import MemoryReader


@pytest.fixture
def manifest(memory_path: Path) -> dict:
    value = json.loads((memory_path / "manifest.json").read_bytes())
    del value["checksum"]
    return value


def signed(value: dict) -> bytes:
    """A manifest whose checksum is right, whatever it says."""
    import hashlib

    return canonical({**value, "checksum": hashlib.sha256(canonical(value)).hexdigest()})


def refusal(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        parse_manifest(data, "manifest.json")
    assert "manifest.json" in str(caught.value)
    assert str(caught.value).endswith(f"[{caught.value.reason.value}]")
    return caught.value


def test_a_manifest_is_the_same_bytes_after_reading(memory_path):
    data = (memory_path / "manifest.json").read_bytes()
    assert serialise(parse_manifest(data, "here")) == data


def test_every_changed_byte_is_found(memory_path):
    data = bytearray((memory_path / "manifest.json").read_bytes())
    for position in range(0, len(data), 3):
        data[position] ^= 1
        refusal(bytes(data))
        data[position] ^= 1
    for length in range(0, len(data), 97):
        assert refusal(bytes(data[:length])).reason is Reason.MANIFEST_SYNTAX


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"{", b"[" * 100_000, b'{"magic": 1, "magic": 1}', b"9" * 5000],
    ids=["empty", "not-utf8", "open", "deep", "twice", "huge-number"],
)
def test_what_is_not_json_is_refused(data):
    assert refusal(data).reason is Reason.MANIFEST_SYNTAX


@pytest.mark.parametrize("data", [b"[]", b"3", b'{"magic":"another"}'])
def test_another_format_is_no_memory(data):
    assert refusal(data).reason is Reason.NOT_A_MEMORY


@pytest.mark.parametrize("version", ["2.0", "0.9", 1, None, "10.0"])
def test_an_unknown_major_is_refused(manifest, version):
    error = refusal(signed(manifest | {"format_version": version}))
    assert error.reason is Reason.UNKNOWN_MAJOR
    assert "upgrade phrasemem" in str(error)


def test_an_unknown_reader_feature_is_refused_by_name(manifest):
    error = refusal(signed(manifest | {"reader_features": ["sparse-rows"]}))
    assert error.reason is Reason.UNKNOWN_FEATURE
    assert "sparse-rows" in str(error)
    assert "upgrade" in str(error)


def test_an_unknown_writer_feature_does_not_stop_a_reader(manifest):
    data = signed(manifest | {"writer_features": ["sparse-rows"]})
    assert parse_manifest(data, "here").writer_features == ["sparse-rows"]


def test_json_in_another_form_is_refused(manifest):
    data = signed(manifest)
    assert refusal(data.replace(b",", b", ", 1)).reason is Reason.MANIFEST_CHECKSUM
    assert refusal(data + b"\n").reason is Reason.MANIFEST_CHECKSUM
    half = data.replace(b'"created_by":"', b'"created_by":"\\ud800', 1)
    assert refusal(half).reason is Reason.MANIFEST_CHECKSUM


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/passwd",
        "a/../b",
        "./x",
        "a//b",
        "a\\b",
        "C:x",
        "adapters/x",
        "payloads/x",
        "manifest.json",
        "a/\n",
    ],
)
def test_paths_that_leave_the_memory_are_refused(manifest, name):
    files = manifest["files"] | {name: manifest["files"]["records.zdict"]}
    error = refusal(signed(manifest | {"files": files}))
    assert error.reason is Reason.UNSAFE_PATH
    assert repr(name) in str(error)


def _without(value: dict, name: str) -> dict:
    return {key: item for key, item in value.items() if key != name}


BREAKAGES = {
    "a field is missing": (lambda m: _without(m, "n_max"), "n_max"),
    "a field is unknown": (lambda m: m | {"colour": 1}, "colour"),
    "a number is text": (lambda m: m | {"entries": "700"}, "entries"),
    "a number is true": (lambda m: m | {"shard_bits": True}, "shard_bits"),
    "absurd entries": (lambda m: m | {"entries": 10**15}, "entries"),
    "entries are not the sum": (lambda m: m | {"entries": 701}, "the shards hold 700"),
    "too few shards": (lambda m: m | {"shards": m["shards"][:3]}, "3 shards, but 2 shard bits"),
    "a hole between shards": (
        lambda m: m | {"shards": [m["shards"][0] | {"first_row": 5}, *m["shards"][1:]]},
        "shard 0 begins at row 5",
    ),
    "long keys": (lambda m: m | {"n_max": 16}, "n_max"),
    "no payload": (lambda m: m | {"payloads": []}, "payloads"),
    "two payloads of one name": (
        lambda m: m | {"payloads": [m["payloads"][0]] * 2},
        "two payload entries have one name",
    ),
    "a payload kind of the future": (
        lambda m: m | {"payloads": [m["payloads"][0] | {"kind": "grid"}]},
        "kind",
    ),
    "a sparse payload without its feature": (
        lambda m: (
            m
            | {"payloads": [m["payloads"][0] | {"kind": "sparse", "stride": 128}, m["payloads"][1]]}
        ),
        "reader features [], but ['sparse-payloads'] are used",
    ),
    "a feature that nothing uses": (
        lambda m: m | {"reader_features": ["sparse-payloads"]},
        "reader features ['sparse-payloads'], but [] are used",
    ),
    "sparse bytes": (
        lambda m: m | {"payloads": [m["payloads"][1] | {"kind": "sparse"}]},
        "a sparse payload is of at most 255 x float16, not 12 x int8",
    ),
    "too many successors": (
        lambda m: m | {"payloads": [m["payloads"][0] | {"kind": "sparse", "dim": 256}]},
        "a sparse payload is of at most 255 x float16, not 256 x float16",
    ),
    "a wrong stride": (
        lambda m: m | {"payloads": [m["payloads"][0] | {"stride": 128}, m["payloads"][1]]},
        "stride 128",
    ),
    "a path as payload name": (
        lambda m: m | {"payloads": [m["payloads"][0] | {"name": "../x"}]},
        "payloads.0.name",
    ),
    "a file without checksums": (
        lambda m: m | {"files": _without(m["files"], "shard-00002/keys.mdb")},
        "files without checksums: ['shard-00002/keys.mdb']",
    ),
    "too few blocks": (
        lambda m: m | {"files": m["files"] | {"x": m["files"]["records.zdict"] | {"blocks": ""}}},
        "but 0 blocks",
    ),
    "rows too short": (
        lambda m: (
            m
            | {"files": m["files"] | {"shard-00001/rows-small.arrow": m["files"]["records.zdict"]}}
        ),
        "shard-00001/rows-small.arrow is too short",
    ),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_manifest_that_contradicts_itself_is_refused(manifest, name):
    breakage, message = BREAKAGES[name]
    error = refusal(signed(breakage(manifest)))
    assert error.reason is Reason.MANIFEST_SCHEMA
    assert message in str(error)


def test_a_folder_without_manifest_is_no_memory(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(FormatError, match=r"manifest.json is missing") as caught:
            MemoryReader.open(path)
        assert caught.value.reason is Reason.NOT_A_MEMORY


def test_a_memory_that_was_being_replaced_is_pointed_at(memory_path, tmp_path):
    shutil.copytree(memory_path, tmp_path / ".m.replaced")
    with pytest.raises(FormatError, match=r"former memory at .*\.m\.replaced"):
        MemoryReader.open(tmp_path / "m")
