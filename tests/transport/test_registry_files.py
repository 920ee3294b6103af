"""Names, versions and aliases: what is refused, and why."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrasemem.memfmt.adapters import FileEntry
from phrasemem.memfmt.canonical import canonical
from phrasemem.memfmt.remote.errors import RegistryError
from phrasemem.memfmt.remote.reference import Reference
from phrasemem.memfmt.remote.version import (
    Alias,
    Version,
    parse_alias,
    parse_version,
    serialise,
)

MANIFEST = FileEntry(bytes=10, sha256="0" * 64)
OTHER = FileEntry(bytes=5, sha256="1" * 64)


def version_of(*names: str) -> Version:
    files = {"manifest.json": MANIFEST, **dict.fromkeys(names, OTHER)}
    return Version(version="v1", manifest=MANIFEST.sha256, files=files)


def altered(value: dict[str, object]) -> bytes:
    """Canonical bytes with a right checksum, whatever they say."""
    plain = {name: found for name, found in value.items() if name != "checksum"}
    return canonical(plain | {"checksum": hashlib.sha256(canonical(plain)).hexdigest()})


@pytest.mark.parametrize(
    ("text", "registry", "name"),
    [
        ("build/registry", "build/registry", "latest"),
        ("build/registry@v3", "build/registry", "v3"),
        ("build/registry/@v3", "build/registry", "v3"),
        ("/a@b/registry", "/a@b/registry", "latest"),
        ("/a@b/", "/a@b", "latest"),
        ("s3://bucket@v1", "s3://bucket", "v1"),
        ("https://host/x/y@stable", "https://host/x/y", "stable"),
        ("https://me@host", "https://me@host", "latest"),
        ("https://me@host/@v2", "https://me@host", "v2"),
        ("hf://datasets/me/memory@v1", "hf://datasets/me/memory", "v1"),
        ("hf://datasets/me/memory@main/@v1", "hf://datasets/me/memory@main", "v1"),
        ("memory://reg@v1", "memory://reg", "v1"),
    ],
)
def test_a_reference_is_a_registry_and_a_name(text: str, registry: str, name: str) -> None:
    reference = Reference.parse(text)
    assert reference == Reference(registry, name)
    assert Reference.parse(str(reference)) == reference


@pytest.mark.parametrize("text", ["", "@v1", "s3://", "reg@", "reg@-x", "reg@a b", "r@" + "v" * 65])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(RegistryError, match=r"no registry is named|not a name of a version"):
        Reference.parse(text)


def test_a_version_is_read_back() -> None:
    version = version_of("shard-00000/keys.mdb", "adapters/abc/adapter.json")
    assert parse_version(serialise(version), "here", "v1") == version
    alias = Alias(alias="latest", version="v1")
    assert parse_alias(serialise(alias), "here", "latest") == alias


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "a/../../outside",
        "/etc/passwd",
        "a//b",
        "./a",
        "a/.",
        "",
        "C:\\x",
        "c:/x",
        "a\\b",
        "a\nb",
        "x" * 256,
        "/".join(["abcdefg"] * 70),
        "adapters/x",
        "adapters/a/b/c",
        "adapters/.abc.writing/adapter.json",
    ],
)
def test_a_path_that_leaves_the_memory_is_refused(name: str) -> None:
    with pytest.raises(RegistryError, match="unsafe path"):
        parse_version(serialise(version_of(name)), "here", "v1")


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b\\", "c:", "~", "é", "\0"]), min_size=1))
def test_an_accepted_path_stays_inside(parts: list[str]) -> None:
    name = "/".join(parts)
    try:
        parse_version(serialise(version_of(name)), "here", "v1")
    except RegistryError:
        return
    assert not {"", ".", "..", "\0", "b\\", "c:"} & set(parts)


def test_a_file_cannot_be_a_folder_too_nor_differ_only_in_case() -> None:
    with pytest.raises(RegistryError, match="'a' is both a file and a folder"):
        parse_version(serialise(version_of("a", "a/b")), "here", "v1")
    with pytest.raises(RegistryError, match="differ only in case"):
        parse_version(serialise(version_of("a", "A")), "here", "v1")


def test_a_name_that_stands_twice_is_refused() -> None:
    data = serialise(version_of("a")).replace(b'"files":{', b'"files":{"a":{},', 1)
    with pytest.raises(RegistryError, match="duplicate name 'a'"):
        parse_version(data, "here", "v1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "v2"}, "a version stands under another name in here: expected v1, found v2"),
        ({"format_version": "2.0"}, r"another format .*found 2.0 \(upgrade phrasemem\)"),
        ({"magic": "x"}, "magic: Input should be 'phrasemem.version'"),
        ({"surplus": 1}, "surplus: Extra inputs are not permitted"),
        ({"manifest": "2" * 64}, "does not list its manifest.json"),
        ({"files": {}}, "does not list its manifest.json"),
        ({"files": {"manifest.json": {"bytes": -1, "sha256": "0" * 64}}}, "greater than or equal"),
        ({"files": {"manifest.json": {"bytes": 1 << 63, "sha256": "0" * 64}}}, "less than or"),
        ({"files": {"manifest.json": {"bytes": True, "sha256": "0" * 64}}}, "valid integer"),
        ({"files": {"manifest.json": {"bytes": 1, "sha256": "../x"}}}, "match pattern"),
    ],
)
def test_what_breaks_the_schema_is_refused(change: dict[str, object], message: str) -> None:
    value = json.loads(serialise(version_of("a"))) | change
    with pytest.raises(RegistryError, match=message):
        parse_version(altered(value), "here", "v1")


def test_a_changed_byte_is_found() -> None:
    data = bytearray(serialise(version_of("a")))
    for position in range(len(data)):
        changed = bytes(data[:position]) + bytes([data[position] ^ 1]) + bytes(data[position + 1 :])
        with pytest.raises(RegistryError):
            parse_version(changed, "here", "v1")


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 5000, b'{"a":"\\ud800"}'])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    for parse in (parse_version, parse_alias):
        with pytest.raises(RegistryError, match=r"not valid JSON|not a JSON object"):
            parse(data, "here", "v1")
