"""Words as arrays: the compiled scan and the hashes of runs, held to plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.pipeline.words import (
    fold_of,
    gram_hashes,
    kind_of,
    members,
    run_hashes,
    split_words,
    tally_documents,
)
from phrasemem.pipeline.words_kernel import DIGIT, IDEOGRAPH, LETTER, LINE, NOTHING, SENTENCE

ALPHABET = st.sampled_from("aBé1\uff12 \n.!?…,\"')-'日本。Ⅷ\u0301ﬁ中\U00020000😀\u2028\tßİ")
TEXTS = st.lists(st.text(ALPHABET, max_size=30), max_size=5)


def plain_words(text: str, fold_digits: bool) -> list[tuple[str, int, int]]:
    """Return the folded words of a text with their places, character by character."""
    found: list[tuple[str, int, int]] = []
    whole = False
    for place, mark in enumerate(text):
        kind = kind_of(mark) if ord(mark) < 0x10000 else IDEOGRAPH
        if kind not in (LETTER, DIGIT, IDEOGRAPH):
            whole = True
            continue
        folded = chr(fold_of(mark)) if ord(mark) < 0x10000 else mark
        if fold_digits and kind == DIGIT:
            folded = "\0"
        if not found or whole or kind == IDEOGRAPH or found[-1][2] != place:
            found.append((folded, place, place + 1))
        else:
            word, start, _ = found[-1]
            joined = word if folded == "\0" == word[-1:] else word + folded
            found[-1] = (joined, start, place + 1)
        whole = kind == IDEOGRAPH
    return found


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.booleans())
def test_the_scan_is_equal_to_plain_python(texts: list[str], fold_digits: bool) -> None:
    words = split_words(texts, fold_digits=fold_digits)
    expected = [plain_words(text, fold_digits) for text in texts]
    places = (
        words.starts - words.offsets[words.documents],
        words.ends - words.offsets[words.documents],
    )
    flat = [(number, *word[1:]) for number, own in enumerate(expected) for word in own]
    assert list(zip(words.documents.tolist(), *(p.tolist() for p in places), strict=True)) == flat
    names = [word[0] for own in expected for word in own]
    hashes = words.hashes.tolist()
    # One hash a word, and one word a hash.
    assert len(set(zip(names, hashes, strict=True))) == len(set(names)) == len(set(hashes))
    assert words.bounds.tolist() == np.cumsum([0, *map(len, expected)]).tolist()


@pytest.mark.parametrize(
    ("text", "gaps"),
    [
        ("One ends. Two", [LINE, NOTHING, SENTENCE]),
        ('One ends." Two', [LINE, NOTHING, SENTENCE]),
        ("Mr. Smith of U.S. steel", [LINE, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING]),
        ("version 3.14 ends.Here", [LINE, NOTHING, NOTHING, NOTHING, NOTHING]),
        ("No! Why? Because", [LINE, SENTENCE, SENTENCE]),
        ("February 7. It", [LINE, NOTHING, SENTENCE]),
        ("a\nb", [LINE, LINE]),
        ("\u732b\u3002\u72ac", [LINE, SENTENCE]),
    ],
)
def test_what_stands_before_a_word(text: str, gaps: list[int]) -> None:
    assert split_words([text]).gaps.tolist() == gaps


def test_dates_and_numbers_fold_to_one_and_case_always() -> None:
    first = split_words(["MOSCOW, February 7, page32"], fold_digits=True).hashes
    assert (first == split_words(["Moscow February 19 Page4"], fold_digits=True).hashes).all()
    assert split_words(["7"]).hashes != split_words(["19"]).hashes


@settings(max_examples=50, deadline=None)
@given(TEXTS, st.integers(1, 4))
def test_runs_of_words_have_one_hash_wherever_they_stand(texts: list[str], length: int) -> None:
    words = split_words(texts)
    hashes, starts = gram_hashes(words, length)
    for value, start in zip(hashes.tolist(), starts.tolist(), strict=True):
        alone = run_hashes(words.hashes[start : start + length], np.array([0]))
        assert alone.tolist() == [value]
        assert len(set(words.documents[start : start + length].tolist())) == 1
    number = np.diff(words.bounds)
    assert len(starts) == np.maximum(number - length + 1, 0).sum()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=40).map(sorted))
def test_the_tally_counts_documents_once(pairs: list[tuple[int, int]]) -> None:
    documents = np.array([pair[0] for pair in pairs], np.int64)
    hashes = np.array([pair[1] << 60 | pair[1] for pair in pairs], np.uint64)
    found = tally_documents(hashes, documents)
    both = set(zip(documents.tolist(), hashes.tolist(), strict=True))
    expected = Counter(value for _, value in both)
    assert dict(zip(found.hashes.tolist(), found.documents.tolist(), strict=True)) == expected
    seen: set[tuple[int, int]] = set()
    for pair, again in zip(pairs, found.again.tolist(), strict=True):
        assert again == (pair in seen)
        seen.add(pair)


@given(st.lists(st.integers(0, 2**64 - 1)), st.lists(st.integers(0, 2**64 - 1), max_size=9))
def test_members_are_those_of_a_set(values: list[int], others: list[int]) -> None:
    known = sorted({*others, *values[::2]})
    found = members(np.array(values, np.uint64), np.array(known, np.uint64))
    assert found.tolist() == [value in known for value in values]
