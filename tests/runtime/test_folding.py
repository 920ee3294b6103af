"""A memory with folded keys: both spellings of a phrase hit, and decoding obeys its law."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from phrasemem.memfmt.key_map import ENGRAM, KeyMap
from phrasemem.runtime.attach import attach
from phrasemem.runtime.explain import fired_phrases
from phrasemem.runtime.matcher import Matcher
from phrasemem.runtime.memory import PhraseMemory

VOCAB, SHIFT = 32, 14
# Words 17 to 30 are other spellings of 3 to 16; 31 has none.
IDS = np.arange(VOCAB, dtype=np.uint32)
IDS[17:31] -= SHIFT
FOLDING = KeyMap(ENGRAM, IDS)


def spelled(ids: np.ndarray, seed: int) -> np.ndarray:
    """The same text with about half of the words spelled in the other way."""
    other = np.random.default_rng(seed).random(ids.shape) < 0.5
    return np.where(other & (ids >= 3) & (ids <= 16), ids + SHIFT, ids)


@pytest.fixture(scope="module")
def folded(tiny, tmp_path_factory, write_memory_of):
    """The tiny memory, folded: where two of its keys become one, they share a row."""
    path = tmp_path_factory.mktemp("folded") / "memory"
    keys = sorted({tuple(FOLDING.fold_key(key)) for key in tiny.keys})
    write_memory_of(path, keys, FOLDING)
    with PhraseMemory.open(path, check="full") as opened:
        yield opened


@pytest.fixture
def texts(tiny):
    """A text in the spelling of the keys, and in a mixed one."""
    plain = FOLDING.fold(np.array([tiny.stitched(40, 3), tiny.stitched(40, 4)], dtype=np.int64))
    return plain, spelled(plain, seed=5)


def test_both_spellings_give_the_same_rows(folded, texts):
    plain, mixed = texts
    assert (plain != mixed).sum() > 20
    matcher = Matcher(folded.reader, folded.payload, folded.tier)
    hits = [matcher.fetch(matcher.candidates(None, text), np.arange(80)) for text in texts]
    assert len(hits[0].places) > 30
    assert set(hits[0].lengths.tolist()) == {2, 3, 4}
    for name in ("places", "lengths", "vectors", "which"):
        np.testing.assert_array_equal(getattr(hits[0], name), getattr(hits[1], name))
    # What was asked is untouched: the history of a cache is made of it.
    before, new = mixed[:, :17].copy(), mixed[:, 17:].copy()
    later = matcher.fetch(matcher.candidates(before, new), np.arange(46))
    assert np.array_equal(before, mixed[:, :17])
    assert np.array_equal(new, mixed[:, 17:])
    expected = [place // 40 * 23 + place % 40 - 17 for place in hits[0].places if place % 40 >= 17]
    assert later.places.tolist() == expected


def test_cached_decoding_of_another_spelling_equals_the_full_pass(
    model, folded, tokenizer, make_adapter, point, texts
):
    plain, mixed = (torch.from_numpy(text) for text in texts)
    with torch.no_grad():
        frozen = model(mixed).logits
    with (
        attach(model, folded, tokenizer=tokenizer, adapter=make_adapter(point)) as handle,
        torch.no_grad(),
    ):
        full = model(mixed, use_cache=False).logits
        hits = handle.stats().hits_by_length
        model(plain, use_cache=False)
        both = handle.stats().hits_by_length
        assert both == {length: 2 * count for length, count in hits.items()}
        assert handle.stats().injections == sum(both.values()) > 60
        cache, parts = DynamicCache(config=model.config), []
        for part in mixed.split([13, 2, 1, 1, 20, 3], dim=1):
            parts.append(model(part, cache=cache, use_cache=True).logits)
    torch.testing.assert_close(torch.cat(parts, 1), full, rtol=0, atol=1e-5)
    assert not torch.allclose(full, frozen, atol=1e-3)


def test_what_fired_is_shown_as_the_text_spells_it(folded, tokenizer, texts):
    _, mixed = texts
    fired = fired_phrases(folded, tokenizer, mixed[0].tolist())
    assert len(fired) > 15
    words = [f"w{token}" for token in mixed[0].tolist()]
    for phrase in fired:
        length = len(phrase.phrase.split())
        assert phrase.phrase.split() == words[phrase.position + 1 - length : phrase.position + 1]
    assert any(int(word[1:]) > 16 for phrase in fired for word in phrase.phrase.split())
