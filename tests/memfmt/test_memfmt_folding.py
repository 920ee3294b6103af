"""Folded keys: several ids are one in all that a reader is asked; the table keeps its rules."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.memfmt import match
from phrasemem.memfmt.canonical import sealed
from phrasemem.memfmt.checksums import file_info
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.key_map import ENGRAM, KeyMap, read_key_map, write_key_map
from phrasemem.memfmt.keys import pack_keys
from phrasemem.memfmt.manifest import BLOCK_BYTES, parse_manifest
from phrasemem.memfmt.occurrences import find_occurrences
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.verify import verify
from phrasemem.memfmt.writer import Entries, Header, PayloadSpec, TokenizerInfo, write_memory

GOLDEN = Path(__file__).parent / "golden" / "v1.0-folded"
VOCAB = 8
N_MAX = 4
# 0 and 4, 1 and 5, 2 and 6 and 7 are one; 3 is alone.
IDS = [0, 1, 2, 3, 0, 1, 2, 2]
KEYS = [(), (1,), (0, 1), (2, 2, 1), (3, 0, 1), (3, 2)]


def key_map(ids: list[int] = IDS) -> KeyMap:
    return KeyMap(ENGRAM, np.array(ids, dtype=np.uint32))


def write(path: Path, keys: list[tuple[int, ...]], folding: KeyMap | None) -> None:
    tokens, lengths = pack_keys(keys, N_MAX)
    records = [Record(" ".join(map(str, key)), 1.0, {}, 1) for key in keys]
    vectors = np.arange(len(keys), dtype=np.float32)[:, None]
    header = Header(
        TokenizerInfo(fingerprint="f", name="n", vocab_size=VOCAB),
        N_MAX,
        [PayloadSpec("v", 1)],
        key_map=folding,
    )
    write_memory(path, Entries(lengths, tokens, records, {"v": vectors}), header, shard_bits=1)


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    write(tmp_path / "memory", KEYS, key_map())
    return tmp_path / "memory"


def resign(memory: Path, changes: dict | None = None) -> None:
    """Make the manifest agree with altered files, as someone who means harm would."""
    value = json.loads((memory / "manifest.json").read_bytes()) | (changes or {})
    del value["checksum"]
    for name in value["files"]:
        value["files"][name] = file_info(memory / name, BLOCK_BYTES).model_dump(mode="json")
    (memory / "manifest.json").write_bytes(sealed(value))


def refusal(call) -> FormatError:
    with pytest.raises(FormatError) as caught:
        call()
    return caught.value


@st.composite
def foldings(draw: st.DrawFn) -> list[int]:
    """Any classes, each with its smallest id."""
    classes = draw(st.lists(st.integers(0, 3), min_size=VOCAB, max_size=VOCAB))
    return [classes.index(member) for member in classes]


@settings(max_examples=30, deadline=None)
@given(
    ids=foldings(),
    keys=st.sets(st.lists(st.integers(0, VOCAB - 1), max_size=N_MAX).map(tuple), min_size=1),
    text=st.lists(st.integers(-2, VOCAB + 3), min_size=1, max_size=12),
    start=st.integers(0, 2),
)
def test_a_folded_memory_answers_as_a_dict_of_folded_keys(ids, keys, text, start):
    def plain(key):
        return tuple(ids[token] if 0 <= token < VOCAB else token for token in key)

    stored = sorted({plain(key) for key in keys})
    start = min(start, len(text))
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "m"), stored, key_map(ids))
        verify(Path(folder, "m"))
        with MemoryReader.open(Path(folder, "m")) as reader:
            rows = dict(zip(stored, range(len(stored)), strict=True))
            vectors = reader.payload("v").gather(reader.get_many(stored))[:, 0]
            assert vectors.tolist() == list(rows.values())
            asked = [*keys, tuple(text[:N_MAX]), (VOCAB + 5,), (-1,), (2**40,)]
            found = reader.get_many(asked).tolist()
            by_key = dict(zip(stored, reader.get_many(stored).tolist(), strict=True))
            assert found == [by_key.get(plain(key), -1) for key in asked]
            matrix, lengths = pack_keys(asked, N_MAX)
            assert reader.look_up(matrix, lengths).tolist() == found
            for key in keys:
                assert reader.record(key) == Record(" ".join(map(str, plain(key))), 1.0, {}, 1)
                inside = [other for other in stored if other[: len(key)] == plain(key)]
                assert [tokens for tokens, _, _ in reader.prefix(key)] == inside
            assert reader.fold(np.array(text)).tolist() == list(plain(text))
            array = np.array([text])
            longest = reader.longest_match(array, start, shortest=0)
            seen = reader.candidates(array, start, shortest=0)
            expected = [
                plain_longest(by_key, plain(text[:end])) for end in range(start + 1, 1 + len(text))
            ]
    assert list(zip(longest.rows[0].tolist(), longest.lengths[0].tolist(), strict=True)) == expected
    assert seen.rows.tolist() == longest.rows.tolist()


def plain_longest(rows, text):
    """The longest key that ends a folded text, or the root, by trying all."""
    for length in range(min(N_MAX, len(text)), -1, -1):
        key = text[len(text) - length :]
        if key in rows:
            return rows[key], length
    return -1, 0


def test_rows_prove_candidates_against_folded_tokens(memory):
    with MemoryReader.open(memory) as reader:
        text = np.array([[3, 4, 5]])
        seen = reader.candidates(text, 2)
        raw = reader.payload("v").gather_raw(seen.rows[:, 0])
        layout, ends = reader.payload("v").layout, np.array([2])
        assert seen.lengths.tolist() == [[3]]
        assert match.agrees(raw, layout, reader.fold(text), ends, seen.lengths[:, 0]).all()
        assert not match.agrees(raw, layout, text, ends, seen.lengths[:, 0]).any()
        occurrences = find_occurrences(reader, [3, 4, 5], shortest=1)
    assert [(o.start, o.tokens, o.record.text) for o in occurrences] == [
        (0, (3, 4, 5), "3 0 1"),
        (1, (4, 5), "0 1"),
        (2, (5,), "1"),
    ]


def test_an_exact_memory_folds_nothing(memory, tmp_path):
    write(tmp_path / "exact", KEYS, None)
    text = np.array([[3, 4, 5]])
    with MemoryReader.open(tmp_path / "exact") as reader:
        assert reader.key_map is None
        assert reader.fold(text) is text
        assert reader.get_many([(4, 1)]).tolist() == [-1]
        assert reader.manifest.key_normalisation == "exact"
        assert reader.manifest.reader_features == []
    with MemoryReader.open(memory) as reader:
        assert reader.manifest.key_normalisation == "engram-1"
        assert reader.manifest.reader_features == ["folded-keys"]


def test_the_writer_refuses_keys_that_are_not_folded(tmp_path):
    with pytest.raises(PhraseMemError, match=r"not folded: expected \[3, 2, 0, 0\], found \[3, 6"):
        write(tmp_path / "m", [*KEYS, (3, 6)], key_map())
    assert list(tmp_path.iterdir()) == []


def test_the_writer_refuses_the_map_of_another_vocabulary(tmp_path):
    with pytest.raises(PhraseMemError, match="another vocabulary: expected 8, found 7"):
        write(tmp_path / "m", KEYS, key_map(IDS[:7]))


@pytest.mark.parametrize(
    ("ids", "where"), [([0, 2, 2], "id 1"), ([0, 0, 1], "id 2"), ([0, 1, 2**32 - 1], "id 2")]
)
def test_only_the_smallest_of_a_class_stands_for_it(ids, where):
    with pytest.raises(PhraseMemError, match=f"smallest id of a class in {where}"):
        key_map(ids)


UINT32 = pa.uint32()


def table(ids: list, kind: pa.DataType = UINT32, name: str = "id") -> bytes:
    sink = pa.BufferOutputStream()
    schema = pa.schema([pa.field(name, kind, nullable=False)])
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(ids, kind)], schema=schema))
    return sink.getvalue().to_pybytes()


def test_the_table_is_written_as_the_specification_says(tmp_path):
    write_key_map(tmp_path / "key_map.arrow", key_map())
    assert (tmp_path / "key_map.arrow").read_bytes() == table(IDS)
    assert read_key_map(table(IDS), ENGRAM, VOCAB, "here").ids.tolist() == IDS


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 999,
        table(IDS)[:-30],
        table(IDS[:-1]),
        table([*IDS, 0]),
        table(IDS, pa.uint64()),
        table(IDS, name="token"),
        table([0, 1, 2, 3, 4, 5, 6, 99]),
        table([0, 1, 2, 3, 0, 4, 6, 7]),
        table([0, 2, 2, 3, 4, 5, 6, 7]),
    ],
    ids=["empty", "noise", "cut", "short", "long", "wide", "name", "outside", "chain", "above"],
)
def test_a_damaged_table_is_refused(memory, data):
    (memory / "key_map.arrow").write_bytes(data)
    resign(memory)
    for call in (lambda: MemoryReader.open(memory), lambda: verify(memory)):
        error = refusal(call)
        assert error.reason is Reason.KEY_MAP_DAMAGED
        assert str(memory / "key_map.arrow") in str(error)


def test_an_altered_table_is_found_on_opening(memory):
    data = bytearray((memory / "key_map.arrow").read_bytes())
    data[-400] ^= 1
    (memory / "key_map.arrow").write_bytes(data)
    assert refusal(lambda: MemoryReader.open(memory)).reason is Reason.BLOCK_CHECKSUM


def test_rows_that_are_not_folded_are_found(memory):
    # The table of a coarser folding: every row is sound but for it.
    (memory / "key_map.arrow").write_bytes(table([0, 1, 2, 2, 0, 1, 2, 2]))
    resign(memory)
    error = refusal(lambda: verify(memory))
    assert error.reason is Reason.KEY_NOT_FOLDED
    assert "shard-0000" in str(error)


@pytest.mark.parametrize("missing", ["key_normalisation", "reader_features", "file"])
@pytest.mark.parametrize("folded", [True, False])
def test_field_feature_and_file_go_together(memory, tmp_path, missing, folded):
    write(tmp_path / "exact", KEYS, None)
    there, other = (memory, tmp_path / "exact") if folded else (tmp_path / "exact", memory)
    value = json.loads((there / "manifest.json").read_bytes())
    wrong = json.loads((other / "manifest.json").read_bytes())
    if missing == "file":
        if folded:
            del value["files"]["key_map.arrow"]
        else:
            value["files"]["key_map.arrow"] = wrong["files"]["key_map.arrow"]
    else:
        value[missing] = wrong[missing]
    del value["checksum"]
    error = refusal(lambda: parse_manifest(sealed(value), "manifest.json"))
    assert error.reason is Reason.MANIFEST_SCHEMA
    assert "does not go with" in str(error)


def test_the_golden_memory_folds_as_it_always_did():
    values = json.loads(GOLDEN.with_name("v1.0-folded.json").read_text())
    spelled = [tuple(value["spelled"]) for value in values]
    keys = [tuple(value["key"]) for value in values]
    assert any(a != b for a, b in zip(spelled, keys, strict=True))
    with MemoryReader.open(GOLDEN, check="full") as reader:
        assert reader.get_many(spelled).tolist() == [value["row"] for value in values]
        assert reader.manifest.key_normalisation == "engram-1"
        for key, value in zip(spelled, values, strict=True):
            assert reader.record(key).text == value["text"]
            if key:
                assert reader.fold(np.array(key)).tolist() == value["key"]
