from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.memfmt import match
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.keys import pack_keys
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.writer import (
    Entries,
    Header,
    PayloadSpec,
    TokenizerInfo,
    row_ids,
    write_memory,
)

TOKENS = st.integers(0, 3)
KEYS = st.lists(TOKENS, max_size=5).map(tuple)


def plain_longest(rows, text, start, shortest):
    """Longest match by a dict: what the kernels must equal."""
    found = []
    for end in range(start + 1, len(text) + 1):
        history = []
        for token in reversed(text[:end]):
            if token < 0:
                break
            history.insert(0, token)
        suffixes = [tuple(history[len(history) - n :]) for n in range(len(history), 0, -1)]
        if shortest == 0:
            suffixes.append(())
        hits = [key for key in suffixes if key in rows and len(key) >= shortest]
        found.append((rows[hits[0]], len(hits[0])) if hits else (-1, 0))
    return found


def test_every_key_is_found_and_others_are_not(reader, many_keys):
    tokens, lengths = pack_keys(many_keys, reader.n_max)
    rows = reader.get_many(many_keys)
    assert rows.tolist() == row_ids(lengths, tokens, reader.manifest.hash_seed).tolist()
    assert sorted(rows.tolist()) == list(range(len(reader)))
    absent = [(1,), (49, 49, 49), (0, 1, 2, 3, 4, 5), (-1,), (50,), (2**32,), (2**40,)]
    assert not set(absent) & set(many_keys)
    assert reader.get_many(absent).tolist() == [-1] * len(absent)
    assert reader.get_many([]).tolist() == []


def test_rows_hold_the_keys_and_vectors_that_were_written(reader, many_keys, vectors):
    rows = reader.get_many(many_keys)
    lengths, tokens = reader.row_tokens(rows)
    assert [tuple(t[:n].tolist()) for t, n in zip(tokens, lengths, strict=True)] == many_keys
    expected = np.stack([vectors(key) for key in many_keys])
    np.testing.assert_allclose(reader.payload("semantic").gather(rows), expected, rtol=2**-11)
    np.testing.assert_allclose(reader.payload("small").gather(rows), expected, atol=0.02)
    assert (reader.payload("small").dim, reader.payload("small").dtype) == (12, "int8")


def test_gather_repeats_rows_and_writes_where_told(reader):
    payload = reader.payload("semantic")
    rows = np.array([3, 3, 699, 0], dtype=np.int64)
    out = np.empty((4, payload.stride), dtype=np.uint8)
    assert payload.gather_raw(rows, out) is out
    assert (
        out.tobytes()
        == np.stack([payload.gather_raw(rows[i : i + 1])[0] for i in range(4)]).tobytes()
    )
    assert payload.gather(rows[:0]).shape == (0, 12)


@pytest.mark.parametrize("name", ["semantic", "small"])
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_fast_decoding_equals_the_plain_one_bit_by_bit(memory_path, name, data):
    with MemoryReader.open(memory_path) as reader:
        payload = reader.payload(name)
    raw = np.frombuffer(data.draw(st.binary(min_size=640, max_size=640)), dtype=np.uint8)
    raw = raw.reshape(-1, payload.stride)
    with np.errstate(invalid="ignore", over="ignore"):
        plain = payload.layout.decode(raw)
    np.testing.assert_array_equal(payload.decode(raw), plain)
    rows = np.array([699, 0, 699, 5])
    assert np.array_equal(payload.gather(rows), payload.layout.decode(payload.gather_raw(rows)))


def test_raw_rows_of_another_form_are_refused(reader):
    payload = reader.payload("semantic")
    good = payload.gather_raw(np.arange(4))
    for bad in (good[:, :-1], good[:, ::2], good.view(np.int8), good[::2]):
        with pytest.raises(PhraseMemError, match=r"wrong form of raw rows: expected \(\d, 64\)"):
            payload.decode(bad)
    with pytest.raises(PhraseMemError, match="wrong form of raw rows"):
        payload.gather_raw(np.arange(5), good)


@pytest.mark.parametrize("row", [-1, 700, 2**62])
def test_rows_outside_the_memory_are_refused(reader, row):
    for call in (reader.payload("small").gather, reader.payload("small").will_need):
        with pytest.raises(PhraseMemError, match=r"row is not in the memory: expected 0\.\.699"):
            call(np.array([0, row], dtype=np.int64))


def test_prefix_walks_in_key_order_over_all_shards(reader, many_keys, records):
    for begin in [(), (4,), (4, 7), (3, 49, 1), (1, 1, 1, 1, 1)]:
        expected = [key for key in many_keys if key[: len(begin)] == begin]
        found = list(reader.prefix(begin))
        assert [tokens for tokens, _, _ in found] == expected
        assert [row for _, row, _ in found] == reader.get_many(expected).tolist()
        assert [record for _, _, record in found] == [records(key) for key in expected]
    assert many_keys[0] == ()


def test_records_by_key(reader, many_keys, records):
    assert [reader.record(key) for key in many_keys] == [records(key) for key in many_keys]
    assert reader.record((1,)) is None
    assert reader.record((1,) * 6) is None


def test_a_payload_that_is_not_there_is_named(reader):
    with pytest.raises(
        FormatError, match=r"expected \['semantic', 'small'\], found continuation"
    ) as e:
        reader.payload("continuation")
    assert e.value.reason is Reason.PAYLOAD_MISSING


def test_a_closed_memory_says_so(memory_path):
    with MemoryReader.open(memory_path) as reader:
        payload = reader.payload("small")
    reader.close()
    for call in (
        lambda: reader.get_many([(2,)]),
        lambda: reader.prefix(()),
        lambda: reader.record(()),
    ):
        with pytest.raises(PhraseMemError, match="memory was closed"):
            call()
    assert payload.gather(np.array([1])).shape == (1, 12)  # who still holds rows may read them


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3)])
def test_tokens_of_the_wrong_shape_are_refused(reader, shape):
    with pytest.raises(PhraseMemError, match="wrong tokens: expected 2 dimensions"):
        reader.longest_match(np.zeros(shape, dtype=np.int64))


def test_longest_match_over_a_long_text_equals_the_plain_search(reader, many_keys):
    rows = dict(zip(many_keys, reader.get_many(many_keys).tolist(), strict=True))
    rng = np.random.default_rng(1)
    pieces = [many_keys[i] for i in rng.integers(0, len(many_keys), 150)]
    text = [token for piece in pieces for token in (*piece, *rng.integers(-1, 50, 1).tolist())]
    for start in (0, 17, len(text)):
        found = reader.longest_match(np.array([text, text[::-1]]), start)
        for line, order in enumerate((text, text[::-1])):
            expected = plain_longest(rows, order, start, 1)
            assert (
                list(zip(found.rows[line].tolist(), found.lengths[line].tolist(), strict=True))
                == expected
            )
    assert {1, 2, 3, 4, 5} <= set(reader.longest_match(np.array([text])).lengths.ravel().tolist())


@settings(max_examples=40, deadline=None)
@given(
    keys=st.sets(KEYS, min_size=1, max_size=60),
    texts=st.lists(st.lists(st.integers(-2, 5), min_size=9, max_size=9), min_size=1, max_size=4),
    start=st.integers(0, 9),
    shortest=st.integers(0, 3),
    shard_bits=st.integers(0, 3),
)
def test_fast_search_equals_the_plain_one(keys, texts, start, shortest, shard_bits):
    listed = sorted(keys)
    tokens, lengths = pack_keys(listed, 5)
    entries = Entries(
        lengths, tokens, [Record("", 0, {}, 0)] * len(listed), {"v": np.zeros((len(listed), 1))}
    )
    head = Header(TokenizerInfo(fingerprint="f", name="n", vocab_size=5), 5, [PayloadSpec("v", 1)])
    with tempfile.TemporaryDirectory() as folder:
        write_memory(Path(folder, "m"), entries, head, shard_bits=shard_bits)
        with MemoryReader.open(Path(folder, "m")) as reader:
            rows = dict(zip(listed, reader.get_many(listed).tolist(), strict=True))
            text = np.array(texts)
            found = reader.longest_match(text, start, shortest=shortest)
            seen = reader.candidates(text, start, shortest=shortest)
            expected = [plain_longest(rows, line, start, shortest) for line in texts]
    assert [
        [(r, n) for r, n in zip(*pair, strict=True)]
        for pair in zip(found.rows.tolist(), found.lengths.tolist(), strict=True)
    ] == expected
    # No false candidates are to be expected among so few keys; they have a test of their own.
    assert seen.rows.tolist() == found.rows.tolist()


def test_longest_is_bounded_where_the_caller_says_so(reader, many_keys):
    key = next(key for key in many_keys if len(key) == 5)
    text = np.array([key])
    whole = reader.candidates(text, 4)
    assert whole.lengths.tolist() == [[5]]
    shorter = reader.candidates(text, 4, longest=np.array([[4]], dtype=np.uint8))
    assert shorter.lengths[0, 0] < 5
    none = reader.candidates(text, 4, longest=np.array([[0]], dtype=np.uint8), shortest=2)
    assert (none.rows.tolist(), none.lengths.tolist()) == ([[-1]], [[0]])


def test_a_key_that_only_looks_like_another_is_not_taken_for_it(tmp_path, colliding_keys):
    stored, similar = colliding_keys
    # The third key makes the index expect pairs that end with the similar key's last token.
    keys = [stored, similar[1:], (similar[1], similar[1])]
    tokens, lengths = pack_keys(keys, 2)
    entries = Entries(lengths, tokens, [Record("", 0, {}, 0)] * 3, {"v": np.zeros((3, 1))})
    head = Header(
        TokenizerInfo(fingerprint="f", name="n", vocab_size=600), 2, [PayloadSpec("v", 1)]
    )
    write_memory(tmp_path / "m", entries, head)
    with MemoryReader.open(tmp_path / "m") as reader:
        assert reader.manifest.hash_seed == 0
        text = np.array([similar, stored])
        seen = reader.candidates(text, 1)
        assert seen.lengths.tolist() == [[2], [2]]  # the index cannot tell
        raw = reader.payload("v").gather_raw(seen.rows[:, 0])
        agree = match.agrees(
            raw, reader.payload("v").layout, text, np.array([1, 1]), seen.lengths[:, 0]
        )
        assert agree.tolist() == [False, True]
        bound = np.array([[1], [2]], dtype=np.uint8)
        assert reader.candidates(text, 1, longest=bound).lengths.tolist() == [[1], [2]]
        exact = reader.longest_match(text, 1)
        assert exact.lengths.tolist() == [[1], [2]]
        assert exact.rows.ravel().tolist() == reader.get_many([similar[1:], stored]).tolist()
        assert reader.get_many([similar]).tolist() == [-1]
        assert reader.record(similar) is None


def test_an_empty_memory_is_a_memory(tmp_path, header, entries_of):
    write_memory(tmp_path / "m", entries_of([]), header, shard_bits=1)
    with MemoryReader.open(tmp_path / "m", check="full") as reader:
        assert len(reader) == 0
        assert reader.get_many([(), (1,)]).tolist() == [-1, -1]
        assert reader.longest_match(np.array([[1, 2]])).rows.tolist() == [[-1, -1]]
        assert list(reader.prefix(())) == []
        assert reader.record(()) is None


def test_index_takes_under_six_bytes_a_key(tmp_path):
    # Two tokens as digits of i: all keys differ; the vocabulary is small beside the keys.
    i = np.arange(90_000, dtype=np.uint32)
    tokens = np.stack(np.divmod(i, np.uint32(300)), axis=1)
    entries = Entries(
        np.full(len(i), 2, dtype=np.uint8),
        tokens,
        [Record("", 0, {}, 0)] * len(i),
        {"v": np.zeros((len(i), 1))},
    )
    head = Header(
        TokenizerInfo(fingerprint="f", name="n", vocab_size=300), 2, [PayloadSpec("v", 1)]
    )
    write_memory(tmp_path / "m", entries, head)
    with MemoryReader.open(tmp_path / "m") as reader:
        assert reader.index_bytes / len(reader) < 6
