from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.index import MAX_BUCKET, build_index
from phrasemem.memfmt.keys import (
    bucket_and_remainder,
    bucket_bits_for,
    key_order,
    key_tokens,
    pack_keys,
    shard_of,
    token_key,
    tokens_hash,
)
from phrasemem.memfmt.writer import choose_seed, row_ids

KEYS = st.lists(st.integers(0, 2**24 - 1), max_size=6).map(tuple)
M64 = 2**64 - 1


def plain_hash(key, seed):
    """The definition in SPEC.md, in Python integers."""

    def mix(x):
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M64
        x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
        return x ^ x >> 31

    state = mix(seed + 0x9E3779B97F4A7C15 & M64)
    for token in reversed(key):
        state = (state ^ token) * 0xBF58476D1CE4E5B9 & M64
        state ^= state >> 29
    return mix(state + len(key) * 0x9E3779B97F4A7C15 & M64)


@given(st.lists(KEYS, max_size=20), st.integers(0, M64))
def test_hash_is_the_specified_one(keys, seed):
    tokens, lengths = pack_keys(keys, 6)
    assert tokens_hash(tokens, lengths, seed).tolist() == [plain_hash(key, seed) for key in keys]


@given(st.lists(KEYS, unique=True, max_size=30))
def test_key_order_is_that_of_lmdb_keys(keys):
    tokens, lengths = pack_keys(keys, 6)
    in_order = [token_key(keys[i]) for i in key_order(tokens, lengths)]
    assert in_order == sorted(map(token_key, keys))


@given(KEYS)
def test_lmdb_keys_keep_their_tokens(key):
    assert key_tokens(token_key(key)) == key
    assert token_key(key)  # LMDB refuses an empty key


@given(st.integers(0, M64), st.integers(0, 16))
def test_shard_is_the_top_of_the_hash(value, bits):
    assert shard_of(np.array([value], dtype=np.uint64), bits)[0] == value >> (64 - bits)


@given(st.integers(0, M64), st.integers(0, 31))
def test_remainder_follows_the_bucket(value, bits):
    bucket, remainder = bucket_and_remainder(np.array([value], dtype=np.uint64), bits)
    assert bucket[0] == value >> (64 - bits)
    assert remainder[0] == (value >> (32 - bits)) & 0xFFFFFFFF


@pytest.mark.parametrize("entries", [0, 1, 2, 3, 4, 7, 8, 1000, 10**7, 2**32 - 1])
def test_buckets_hold_two_to_four_keys(entries):
    bits = bucket_bits_for(entries, 0)
    assert bits == 0 or 2 <= entries / 2**bits < 4.01
    assert bucket_bits_for(entries, 9) == max(bits, 9)


def test_seed_moves_on_when_the_index_cannot_tell_two_keys_apart(colliding_keys):
    tokens, lengths = pack_keys(colliding_keys, 2)
    hashes = np.sort(tokens_hash(tokens, lengths, 0))
    with pytest.raises(PhraseMemError, match="share their index entry"):
        build_index(hashes, lengths, tokens, shard=0, shard_bits=0, bucket_bits=0)
    assert choose_seed(lengths, tokens) == 1
    assert choose_seed(lengths, tokens, first_seed=5) == 5


def test_a_bucket_that_overflows_is_refused():
    hashes = np.arange(MAX_BUCKET + 1, dtype=np.uint64) << np.uint64(31)
    lengths = np.ones(len(hashes), dtype=np.uint8)
    tokens = np.zeros((len(hashes), 1), dtype=np.uint32)
    with pytest.raises(PhraseMemError, match="bucket of the index overflows"):
        build_index(hashes, lengths, tokens, shard=0, shard_bits=0, bucket_bits=1)


def test_a_key_that_stands_there_twice_is_named():
    tokens, lengths = pack_keys([(1, 2), (3,), (1, 2)], 3)
    with pytest.raises(PhraseMemError, match=r"stands there twice: found \[1, 2\]"):
        choose_seed(lengths, tokens)


def test_row_ids_are_ranks_of_hashes():
    tokens, lengths = pack_keys([(9,), (), (1, 2, 3), (4, 5)], 3)
    hashes = tokens_hash(tokens, lengths, 3)
    assert np.argsort(hashes).tolist() == np.argsort(row_ids(lengths, tokens, 3)).tolist()


@pytest.mark.parametrize("key", [(1, 2, 3, 4), (-1,), (2**32,)])
def test_keys_that_no_memory_can_hold_are_marked(key):
    tokens, lengths = pack_keys([(1,), key], 3)
    assert lengths.tolist() == [1, 255]
    assert tokens[1].tolist() == [0, 0, 0]
