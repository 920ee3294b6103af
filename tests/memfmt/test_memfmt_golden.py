"""Memories of released versions are read for ever; those from the future are refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.manifest import FORMAT_VERSION
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.sparse import Successors
from phrasemem.memfmt.verify import verify

HERE = Path(__file__).parent
# The manifest holds the checksums of all else. A line that was released is never changed.
RELEASED = {
    "1.0": "0cd11069e2428b61554d614c060b8a5868f1177cd520c82176a5cb31ba319d52",
    "1.0-sparse": "233f6bf25fa2a1bab8448ac4ef0a43e6bf04b3e3893f77314b7415770d6da436",
}
# The same for payloads that were added: of the whole, by version and name.
ADDED = {
    ("1.0-sparse", "added"): "2a8efc1ec12be0ca87cb694d12c708d77470fbe257517f4c4868f913d3b32fc1",
    (
        "1.0-sparse",
        "added-next",
    ): "04bf568bbed5cd0fabbdf94934cd45182c197daebc8d13b43b1199c13552ea00",
}


def test_this_version_has_a_golden_memory():
    assert FORMAT_VERSION in RELEASED
    assert {f"v{version}" for version in RELEASED} == {
        path.name for path in (HERE / "golden").iterdir() if path.is_dir()
    }


@pytest.mark.parametrize("version", RELEASED)
def test_golden_memories_are_as_they_were_released(version):
    path = HERE / "golden" / f"v{version}"
    assert hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest() == RELEASED[version]
    verify(path)


@pytest.mark.parametrize(("version", "name"), ADDED)
def test_added_payloads_are_as_they_were_released(version, name):
    path = HERE / "golden" / f"v{version}" / "payloads" / name / "payload.json"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == ADDED[version, name]


@pytest.mark.parametrize("version", RELEASED)
def test_golden_memories_are_read_as_they_always_were(version):
    values = json.loads((HERE / "golden" / f"v{version}.json").read_text())
    keys = [tuple(value["key"]) for value in values]
    with MemoryReader.open(HERE / "golden" / f"v{version}", check="full") as reader:
        rows = reader.get_many(keys)
        assert rows.tolist() == [value["row"] for value in values]
        assert len(reader) == len(keys) >= 24
        fields = ("text", "score", "counts", "documents")
        assert set(values[0]) == {"key", "row", *fields, *reader.payload_names}
        for name in reader.payload_names:
            found = reader.payload(name).gather(rows)
            assert plain(found) == [value[name] for value in values]
        found = {tokens: record for tokens, _, record in reader.prefix(())}
        assert list(found) == sorted(keys)
        for key, value in zip(keys, values, strict=True):
            assert found[key] == Record(*(value[field] for field in fields))
        text = np.array([[token for key in keys for token in key]])
        matched = reader.longest_match(text)
        assert set(matched.lengths.ravel().tolist()) == {1, 2, 3, 4}


def plain(column: np.ndarray | Successors) -> list:
    """Rows of a payload in the form of the JSON files: exact numbers."""
    if isinstance(column, Successors):
        names, parts = zip(*vars(column).items(), strict=True)
        rows = zip(*(part.astype(float).tolist() for part in parts), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]
    return column.astype(float).tolist()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("version-2.0", Reason.UNKNOWN_MAJOR), ("unknown-feature", Reason.UNKNOWN_FEATURE)],
)
def test_memories_from_the_future_are_refused_with_upgrade(name, reason):
    for call in (MemoryReader.open, verify):
        with pytest.raises(FormatError, match="upgrade phrasemem") as caught:
            call(HERE / "future" / name)
        assert caught.value.reason is reason
