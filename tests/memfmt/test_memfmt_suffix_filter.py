"""The suffix filter never denies a key, and changes no answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.memfmt import probe, reader, suffix_filter
from phrasemem.memfmt.checksums import file_info
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.keys import pack_keys, suffix_states
from phrasemem.memfmt.manifest import (
    BLOCK_BYTES,
    MANIFEST_NAME,
    Manifest,
    parse_manifest,
    serialise,
)
from phrasemem.memfmt.names import FILTER_NAME
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.verify import verify

N_MAX = 6
KEYS = st.lists(
    st.lists(st.integers(0, 40), max_size=N_MAX).map(tuple), min_size=1, max_size=200, unique=True
)


def admitted(words: np.ndarray, state: np.uint64) -> int:
    """Lengths that the filter does not exclude, by Python's own integers."""
    word = int(words[(int(state) >> 32) * len(words) >> 32])
    mask = 0b111
    for length in range(3, N_MAX + 1):
        mask |= (word >> (int(state) % 64 + 11 * length) % 64 & 1) << length
    return mask


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(0, 2**64 - 1))
def test_no_key_is_denied_and_the_kernel_reads_what_was_written(keys, seed):
    tokens, lengths = pack_keys(keys, N_MAX)
    words = suffix_filter.empty_filter(len(keys))
    suffix_filter.add_keys(words, tokens, lengths, seed)
    set_bits = sum(int(word).bit_count() for word in words)
    assert set_bits <= len({(key[-3:], len(key)) for key in keys if len(key) >= 3})
    for key, state in zip(keys, suffix_states(tokens, lengths, seed, 3), strict=True):
        plain = admitted(words, state)
        assert plain >> len(key) & 1
        table = np.zeros(probe.TABLE_SIZE, dtype=np.int64)
        table[probe.FILTER], table[probe.FILTER_WORDS] = words.ctypes.data, len(words)
        place = (probe.filter_word(table.ctypes.data, state) - words.ctypes.data) // 8
        word = words.view(np.int64)[place]
        assert probe.lengths_in(word, state, N_MAX) == plain


def test_the_filter_excludes_most_of_what_is_absent():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 50_000, (20_000, N_MAX)).astype(np.uint32)
    lengths = np.full(len(tokens), 4, dtype=np.uint8)
    words = suffix_filter.empty_filter(len(tokens))
    suffix_filter.add_keys(words, tokens[:10_000], lengths[:10_000], 0)
    states = suffix_states(tokens[10_000:], lengths[10_000:], 0, 3)
    admitted_share = np.mean([admitted(words, state) >> 4 & 1 for state in states])
    assert admitted_share < 0.2


def test_matches_are_the_same_with_and_without_it(memory_path, many_keys, monkeypatch):
    rng = np.random.default_rng(3)
    noise = rng.integers(-1, 55, 300).tolist()
    stream = [token for key in many_keys for token in key] + noise
    text = np.array(stream[: len(stream) // 30 * 30]).reshape(-1, 30)
    with MemoryReader.open(memory_path) as with_filter:
        assert len(with_filter._index.suffix_filter) == len(with_filter) // 20 + 1
        found = [with_filter.longest_match(text, shortest=shortest) for shortest in range(5)]
    monkeypatch.setattr(reader, "FILTER_NAME", "absent")
    with MemoryReader.open(memory_path) as without:
        assert without._index.suffix_filter.tolist() == [2**64 - 1]
        for shortest, match in enumerate(found):
            plain = without.longest_match(text, shortest=shortest)
            assert plain.rows.tolist() == match.rows.tolist()
            assert plain.lengths.tolist() == match.lengths.tolist()
            assert (plain.lengths >= 3).any()


@pytest.fixture
def memory(memory_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(memory_path, tmp_path / "memory"))


def put(memory: Path, data: bytes) -> None:
    """Write another filter, with right checksums: a writer that is wrong, not a disk."""
    (memory / FILTER_NAME).write_bytes(data)
    path = memory / MANIFEST_NAME
    manifest = parse_manifest(path.read_bytes(), path)
    files = manifest.files | {FILTER_NAME: file_info(memory / FILTER_NAME, BLOCK_BYTES)}
    path.write_bytes(serialise(Manifest.model_validate(dict(manifest) | {"files": files})))


def refused(call) -> Reason:
    with pytest.raises(FormatError) as caught:
        call()
    assert FILTER_NAME in str(caught.value)
    return caught.value.reason


def test_a_filter_of_other_keys_is_found(memory):
    words = suffix_filter.empty_filter(verify(memory).manifest.entries)
    suffix_filter.write_filter(memory / FILTER_NAME, words)
    put(memory, (memory / FILTER_NAME).read_bytes())
    assert refused(lambda: verify(memory)) is Reason.INDEX_ROWS


@pytest.mark.parametrize("kind", ["nothing", "noise", "another size", "another column"])
def test_a_filter_that_cannot_be_read_is_refused(memory, kind, tmp_path):
    other = tmp_path / "other.arrow"
    if kind == "another size":
        suffix_filter.write_filter(other, np.zeros(99_999, dtype=np.uint64))
    elif kind == "another column":
        table = pa.table({"bits": pa.array([1], pa.uint64())})
        with pa.ipc.new_file(other, table.schema) as sink:
            sink.write_table(table)
    else:
        other.write_bytes(b"" if kind == "nothing" else b"ARROW1" + bytes(100))
    put(memory, other.read_bytes())
    for call in (lambda: verify(memory), lambda: MemoryReader.open(memory)):
        assert refused(call) is Reason.INDEX_DAMAGED
