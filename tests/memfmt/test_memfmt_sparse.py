"""Sparse payloads: successors with counts come back as they were stored, or are refused."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.keys import pack_keys
from phrasemem.memfmt.payload import SuccessorReader
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.sparse import SparseLayout, Successors
from phrasemem.memfmt.verify import verify
from phrasemem.memfmt.writer import Entries, Header, PayloadSpec, TokenizerInfo, write_memory

VOCAB = 1000
N_MAX, WIDTH = 3, 6
LAYOUT = SparseLayout(N_MAX, WIDTH, VOCAB)

Row = dict[int, tuple[float, float]]

COUNTS = st.one_of(
    st.integers(0, 3000).map(float),
    st.floats(0, 2.0**40, width=32),
    st.floats(0, 2.0**64, exclude_max=True, width=32),
    st.sampled_from([65504.0, 65519.0, 65520.0, 131008.0, 131009.0, 2.0**-24, 2.0**-30]),
)
ROWS = st.lists(
    st.dictionaries(st.integers(0, VOCAB - 1), st.tuples(COUNTS, COUNTS), max_size=WIDTH),
    min_size=1,
    max_size=5,
)


def columns(rows: list[Row], dtype: type = np.float32) -> Successors:
    ids = np.zeros((len(rows), WIDTH), dtype=np.uint32)
    observed, expected = (np.zeros((len(rows), WIDTH), dtype=dtype) for _ in range(2))
    for i, row in enumerate(rows):
        for j, (token, (c, e)) in enumerate(sorted(row.items())):
            ids[i, j], observed[i, j], expected[i, j] = token, c, e
    return Successors(ids, observed, expected, np.array([len(row) for row in rows], np.uint8))


def encode(column: Successors) -> np.ndarray:
    tokens, lengths = pack_keys([(7, 8)] * len(column), N_MAX)
    return LAYOUT.encode(lengths, tokens, column)


def plain_row(key: tuple[int, ...], row: Row) -> bytes:
    """One row as SPEC.md has it, without numpy."""
    counts = [count for pair in row.values() for count in pair]
    power = 0
    while max(counts, default=0) > 65504 * 2**power:
        power += 1
    empty = WIDTH - len(row)
    data = bytes([len(key), len(row), 0, 0])
    data += struct.pack(f"<{N_MAX}I", *key, *[0] * (N_MAX - len(key)))
    data += struct.pack("<f", 2.0**power)
    data += struct.pack(f"<{WIDTH}I", *sorted(row), *[0] * empty)
    for side in (0, 1):
        values = [row[token][side] / 2**power for token in sorted(row)]
        # struct refuses what rounds to infinity; the spec rounds such down.
        data += struct.pack(f"<{WIDTH}e", *(min(v, 65504) for v in values), *[0] * empty)
    return data.ljust(128, b"\0")


@settings(max_examples=300, deadline=None)
@given(rows=ROWS, dtype=st.sampled_from([np.float32, np.float64]))
def test_rows_are_those_of_a_plain_writer_and_come_back(rows, dtype):
    column = columns(rows, dtype)
    raw = encode(column)
    assert raw.shape == (len(rows), LAYOUT.stride) == (len(rows), 128)
    assert [bytes(row) for row in raw] == [plain_row((7, 8), row) for row in rows]
    assert LAYOUT.well_formed(raw)
    back = LAYOUT.decode(raw)
    assert back.ids.tolist() == column.ids.tolist()
    assert back.used.tolist() == column.used.tolist()
    largest = np.maximum(column.observed, column.expected).max(axis=1, keepdims=True)
    # Half of the last of 11 digits, or of the smallest step where a number has fewer.
    least = np.maximum(largest / 65504 * 2, 1) * 2.0**-24
    for stored, given_ in ((back.observed, column.observed), (back.expected, column.expected)):
        assert stored.dtype == np.float32
        assert np.all(np.abs(stored - given_) <= given_ * 2.0**-11 + least)
        exact = (given_ <= 2048) & (given_ == np.rint(given_)) & (largest <= 65504)
        assert np.array_equal(stored[exact], given_[exact])
    lengths, tokens = LAYOUT.keys(raw)
    assert (lengths.tolist(), tokens.tolist()) == ([2] * len(rows), [[7, 8, 0]] * len(rows))


@given(rows=ROWS)
def test_what_stands_beyond_the_used_successors_is_not_stored(rows):
    column = columns(rows)
    beyond = np.arange(WIDTH) >= column.used[:, None]
    littered = Successors(
        np.where(beyond, 3, column.ids).astype(np.uint32),
        np.where(beyond, np.nan, column.observed),
        np.where(beyond, -1, column.expected),
        column.used,
    )
    assert encode(littered).tobytes() == encode(column).tobytes()


def test_the_two_zeros_give_equal_bytes():
    assert encode(columns([{5: (0.0, 1.0)}])).tobytes() == (
        encode(columns([{5: (-0.0, 1.0)}])).tobytes()
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": [[4, 4, 0, 0, 0, 0]]}, "do not rise"),
        ({"ids": [[5, 4, 0, 0, 0, 0]]}, "do not rise"),
        ({"ids": [[4, VOCAB, 0, 0, 0, 0]]}, "outside the vocabulary"),
        ({"used": [7]}, "too many successors in row 0: expected <= 6, found 7"),
        ({"observed": [[1, -1, 0, 0, 0, 0]]}, r"cannot be stored in row 0.*found -1"),
        ({"observed": [[1, np.nan, 0, 0, 0, 0]]}, "cannot be stored"),
        ({"expected": [[1, np.inf, 0, 0, 0, 0]]}, "cannot be stored"),
        ({"expected": [[1, 2.0**64, 0, 0, 0, 0]]}, "cannot be stored"),
    ],
)
def test_successors_that_cannot_be_stored_are_refused(change, message):
    good = vars(columns([{4: (1, 2), 5: (3, 4)}]))
    encode(Successors(**good))
    changed = {name: np.array(v, good[name].dtype) for name, v in change.items()}
    with pytest.raises(PhraseMemError, match=message):
        encode(Successors(**good | changed))


def test_arrays_of_different_forms_are_refused():
    good = vars(columns([{4: (1, 2)}]))
    with pytest.raises(PhraseMemError, match="successors do not fit each other"):
        Successors(**good | {"used": np.zeros(2, np.uint8)})


IDS, OBSERVED, EXPECTED = 20, 44, 56


@pytest.mark.parametrize(
    ("offset", "data"),
    [
        (1, b"\x07"),  # more used than there is room for
        (1, b"\x01"),  # fewer used than there are
        (2, b"\x01"),
        (3, b"\x01"),
        (16, struct.pack("<f", 2.0)),  # a scale that nothing needs
        (16, struct.pack("<f", 0.5)),
        (16, struct.pack("<f", 3.0)),
        (16, struct.pack("<f", np.nan)),
        (IDS, struct.pack("<I", 9)),  # as the second
        (IDS + 4, struct.pack("<I", VOCAB)),
        (IDS + 8, b"\x01"),
        (OBSERVED + 1, b"\x80"),  # a negative zero
        (OBSERVED + 1, b"\x7c"),  # infinity
        (EXPECTED + 1, b"\x7e"),  # no number
        (OBSERVED + 4, b"\x01"),
        (EXPECTED + 4, b"\x01"),
        (68, b"\x01"),
        (127, b"\x01"),
    ],
)
def test_rows_that_are_not_well_formed_are_told(offset, data):
    raw = encode(columns([{1: (1, 1)}, {4: (0, 2), 9: (3, 4)}]))
    assert LAYOUT.well_formed(raw)
    raw[1, offset : offset + len(data)] = np.frombuffer(data, np.uint8)
    assert not LAYOUT.well_formed(raw)


def successors_of(keys: list[tuple[int, ...]]) -> Successors:
    rows = [{(sum(key) + 3 * j) % VOCAB: (j + 1.0, j / 3) for j in range(len(key))} for key in keys]
    return columns(rows)


@pytest.fixture
def sparse_memory(tmp_path: Path) -> tuple[Path, list[tuple[int, ...]]]:
    """A memory whose one payload is sparse, in two shards."""
    keys = [(), *((a,) for a in range(90)), *((a, a + 1, a + 2) for a in range(0, 300, 7))]
    tokens, lengths = pack_keys(keys, N_MAX)
    entries = Entries(
        lengths, tokens, [Record("", 0, {}, 1) for _ in keys], {"next": successors_of(keys)}
    )
    header = Header(
        TokenizerInfo(fingerprint="f", name="n", vocab_size=VOCAB),
        N_MAX,
        [PayloadSpec("next", WIDTH, kind="sparse")],
    )
    write_memory(tmp_path / "memory", entries, header, shard_bits=1)
    return tmp_path / "memory", keys


def test_a_memory_of_successors_is_read_as_any_other(sparse_memory):
    path, keys = sparse_memory
    assert verify(path).manifest.reader_features == ["sparse-payloads"]
    with MemoryReader.open(path, check="full") as reader:
        rows = reader.get_many(keys)
        assert sorted(rows.tolist()) == list(range(len(keys)))
        text = np.array([[14, 15, 16, 500, 21, 22]])
        # The head of a row holds the number of successors too: a match must not mind.
        assert reader.longest_match(text).lengths.tolist() == [[1, 1, 3, 0, 1, 1]]
        payload = reader.payload("next")
        assert isinstance(payload, SuccessorReader)
        assert (payload.dim, payload.dtype, payload.stride) == (WIDTH, "float16", 128)
        payload.will_need(rows)
        found, expected = payload.gather(rows), successors_of(keys)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.used.tolist() == expected.used.tolist()
        assert found.observed.tolist() == expected.observed.tolist()
        np.testing.assert_allclose(found.expected, expected.expected, rtol=2.0**-11)
        again = payload.decode(payload.gather_raw(rows[5:9]))
        assert again.observed.tolist() == found.take(slice(5, 9)).observed.tolist()
        assert payload.gather(rows[:0]).shape == (0, WIDTH)
        with pytest.raises(PhraseMemError, match="wrong form of raw rows"):
            payload.decode(payload.gather_raw(rows)[:, :-1])


def test_a_column_of_the_other_kind_is_refused(tmp_path):
    tokens, lengths = pack_keys([(1,)], N_MAX)
    tokenizer = TokenizerInfo(fingerprint="f", name="n", vocab_size=VOCAB)
    vectors = np.zeros((1, WIDTH), np.float32)
    for kind, column in (("sparse", vectors), ("dense", successors_of([(1,)]))):
        entries = Entries(lengths, tokens, [Record("", 0, {}, 1)], {"x": column})
        header = Header(tokenizer, N_MAX, [PayloadSpec("x", WIDTH, kind=kind)])
        with pytest.raises(PhraseMemError, match="wrong type of a payload's column in x"):
            write_memory(tmp_path / "memory", entries, header)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (PayloadSpec("x", WIDTH, "int8", kind="sparse"), "at most 255 x float16, not 6 x int8"),
        (PayloadSpec("x y", WIDTH, kind="sparse"), "name: "),
    ],
)
def test_a_payload_that_the_format_does_not_have_is_one_clear_error(tmp_path, spec, message):
    tokens, lengths = pack_keys([(1,)], N_MAX)
    tokenizer = TokenizerInfo(fingerprint="f", name="n", vocab_size=VOCAB)
    entries = Entries(lengths, tokens, [Record("", 0, {}, 1)], {spec.name: successors_of([(1,)])})
    with pytest.raises(PhraseMemError, match=message):
        write_memory(tmp_path / "memory", entries, Header(tokenizer, N_MAX, [spec]))
