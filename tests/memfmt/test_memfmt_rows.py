from __future__ import annotations

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phrasemem.memfmt.dense import DenseLayout
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.keys import pack_keys
from phrasemem.memfmt.records import Record, RecordCodec, train_dictionary
from phrasemem.memfmt.rows import check_rows, write_rows

FLOATS = st.floats(-1000, 1000, width=32)


@pytest.mark.parametrize(("dtype", "error"), [("float16", 2**-11), ("int8", 1 / 254)])
@given(vectors=hnp.arrays(np.float32, (3, 7), elements=FLOATS))
def test_vectors_come_back_within_the_rounding_of_their_type(dtype, error, vectors):
    tokens, lengths = pack_keys([(), (5,), (1, 2, 3)], 3)
    layout = DenseLayout(3, 7, dtype)
    raw = layout.encode(lengths, tokens, vectors)
    assert raw.shape == (3, layout.stride)
    assert layout.stride % 64 == 0
    relative_to = np.abs(vectors) if dtype == "float16" else np.abs(vectors).max(1, keepdims=True)
    assert np.all(np.abs(layout.decode(raw) - vectors) <= error * relative_to * 1.001 + 1e-7)
    stored_lengths, stored_tokens = layout.keys(raw)
    assert stored_lengths.tolist() == [0, 1, 3]
    assert stored_tokens.tolist() == tokens.tolist()
    assert layout.well_formed(raw)


@pytest.mark.parametrize("value", [0.0, 1e-45, -1e-38])
def test_vectors_too_small_for_a_scale_are_zero(value):
    tokens, lengths = pack_keys([(1,)], 1)
    layout = DenseLayout(1, 2, "int8")
    with np.errstate(divide="raise", invalid="raise"):
        raw = layout.encode(lengths, tokens, np.full((1, 2), value, dtype=np.float32))
    assert layout.decode(raw).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(("value", "message"), [(np.nan, "not finite"), (np.inf, "not finite")])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_vectors_that_are_not_finite_are_refused(dtype, value, message):
    tokens, lengths = pack_keys([(1,), (2,)], 2)
    vectors = np.ones((2, 4), dtype=np.float32)
    vectors[1, 2] = value
    with pytest.raises(PhraseMemError, match=f"{message} in row 1"):
        DenseLayout(2, 4, dtype).encode(lengths, tokens, vectors)


def test_what_float16_cannot_hold_is_refused_not_made_infinite():
    tokens, lengths = pack_keys([(1,)], 2)
    with pytest.raises(PhraseMemError, match="too large for float16"):
        DenseLayout(2, 1, "float16").encode(
            lengths, tokens, np.array([[70000.0]], dtype=np.float32)
        )


@pytest.mark.parametrize("dim", [1, 8, 384, 576, 4096])
def test_rows_begin_at_byte_4096_and_arrow_reads_them(tmp_path, dim):
    layout = DenseLayout(6, dim, "float16")
    raw = np.random.default_rng(0).integers(0, 256, (9, layout.stride), dtype=np.uint8)
    path = tmp_path / "rows.arrow"
    write_rows(path, raw)
    assert path.read_bytes()[4096 : 4096 + raw.size] == raw.tobytes()
    check_rows(path, 9, layout)
    column = pa.ipc.open_file(path).read_all().column("row")
    assert [bytes(value.as_py()) for value in column] == [bytes(row) for row in raw]


@pytest.mark.parametrize(
    ("count", "dim", "message"),
    [(8, 8, "rows do not lie as declared"), (9, 64, r"other columns .*binary\[64\]")],
)
def test_rows_that_lie_otherwise_than_declared_are_refused(tmp_path, count, dim, message):
    layout = DenseLayout(6, 8, "float16")
    write_rows(tmp_path / "rows.arrow", np.zeros((9, layout.stride), dtype=np.uint8))
    with pytest.raises(FormatError, match=message) as caught:
        check_rows(tmp_path / "rows.arrow", count, DenseLayout(6, dim, "float16"))
    assert caught.value.reason is Reason.ROWS_DAMAGED


RECORDS = st.builds(
    Record,
    text=st.text(max_size=40),
    score=st.floats(width=32, allow_nan=False),
    counts=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 2**40)),
    documents=st.integers(0, 2**40),
)


@settings(max_examples=50)
@given(st.lists(RECORDS, max_size=5))
def test_records_come_back_with_and_without_a_dictionary(records):
    sample = [Record(f"natural selection {i}", i, {"a": i}, i) for i in range(1000)]
    dictionary = train_dictionary(sample, ["a", "b", "c"])
    assert dictionary
    for codec in (RecordCodec("abc", b""), RecordCodec("abc", dictionary)):
        assert [codec.decode(codec.encode(record)) for record in records] == records


def test_long_records_are_compressed_and_short_ones_do_not_grow():
    codec = RecordCodec(["a"], b"")
    assert len(codec.encode(Record("x" * 500, 0.0, {}, 1))) < 60
    assert len(codec.encode(Record("of the", 1.5, {"a": 3}, 2))) == 1 + 7 + 5 + 1 + 1


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x93\x01", b"\x91\xa1x", b"\x20\x05junk"])
def test_bytes_that_are_no_record_are_refused(data):
    with pytest.raises(FormatError, match="record cannot be read") as caught:
        RecordCodec(["a"], b"").decode(data)
    assert caught.value.reason is Reason.KEYS_DAMAGED


def test_a_count_of_an_unknown_corpus_is_refused():
    with pytest.raises(PhraseMemError, match=r"unknown corpus: expected \['a'\], found \['b'\]"):
        RecordCodec(["a"], b"").encode(Record("x", 0.0, {"b": 1}, 1))


def test_training_is_a_function_of_the_records():
    sample = [Record(f"word {i % 37}", i, {"a": i}, i) for i in range(3000)]
    assert train_dictionary(sample) == train_dictionary(sample)
    assert train_dictionary(sample[:2]) == b""


@pytest.mark.parametrize(
    "value",
    [
        [1, 0.5, 2, 3],
        ["a", "0.5", 2, 3],
        ["a", 1, 2, 3],
        ["a", 0.5, -2, 3],
        ["a", 0.5, 2, "3"],
        ["a", 0.5, 2, True],
        ["a", 0.5, 2],
        ["a", 0.5, 2, 3, 4],
        ["a", 0.5],
    ],
)
def test_records_of_something_else_are_refused(value):
    with pytest.raises(FormatError, match="a record is of something else") as caught:
        RecordCodec(["news"], b"").decode(msgpack.packb(value))
    assert caught.value.reason is Reason.KEYS_DAMAGED


@pytest.mark.parametrize("size", [(1 << 20) + 1, 1 << 40])
def test_a_record_that_says_it_is_huge_takes_no_ram(size):
    frame = b"\xe0" + size.to_bytes(8, "little") + bytes(8)
    with pytest.raises(FormatError, match=f"it says that it has {size} bytes"):
        RecordCodec(["news"], b"").decode(frame)
