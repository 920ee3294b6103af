"""The fast tokenizer gives the ids of the tokenizer itself, or leaves the work to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from phrasemem import backbone
from phrasemem.pipeline import fast_tokens
from phrasemem.pipeline.fast_tokens import FastTokenizer, fast_token_ids, fast_tokenizer
from phrasemem.pipeline.tokens import corpus_tokenizer, token_ids

WORDS = ["the", "them", "then", "don't", " ", "  ", "\n", "99", "\x04", "é", "e\u0301", "<end>"]
TEXTS = st.lists(
    st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=12).map("".join), max_size=8
)


@pytest.fixture(scope="module")
def backend() -> Tokenizer:
    """Byte-level, without an id for most bytes, and with a special token."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=["<end>"], show_progress=False)
    trained.train_from_iterator(["the them then don't tthh eé"] * 9, trainer)
    return trained


@pytest.fixture(scope="module")
def fast(backend: Tokenizer) -> FastTokenizer:
    found = fast_tokenizer(backend)
    assert found is not None
    return found


@settings(deadline=None)
@given(texts=TEXTS)
def test_ids_are_the_tokenizer_s_own(
    backend: Tokenizer, fast: FastTokenizer, texts: list[str]
) -> None:
    own = [ids.tolist() for ids in token_ids(texts, backend)]
    if texts:
        assert [ids.tolist() for ids in fast_tokens._split(fast, texts, backend)] == own


def test_the_backbone_s_tokenizer_has_a_fast_one(world: Any) -> None:
    model = str(world.model)
    backend = backbone.load_tokenizer(model).backend_tokenizer
    assert fast_tokenizer(backend) is not None
    texts = ["The red panda", "", "an <end> of it"]
    for found, own in zip(fast_token_ids(texts, model), token_ids(texts, backend), strict=True):
        np.testing.assert_array_equal(found, own)
    assert fast_token_ids([], model) == []


def test_a_tokenizer_that_it_splits_otherwise_has_none(backend: Tokenizer) -> None:
    other = Tokenizer.from_str(backend.to_str())
    assert fast_tokenizer(other) is not None
    other.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("th", "isolated"), other.pre_tokenizer]
    )
    assert fast_tokenizer(other) is None
    words = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    assert fast_tokenizer(words) is None


def test_a_chunk_on_which_they_differ_is_left_to_the_tokenizer(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(world.model)
    texts = ["The red panda", "for the first time"]
    own = list(token_ids(texts, corpus_tokenizer(model).backend_tokenizer))
    sound = fast_tokenizer(corpus_tokenizer(model).backend_tokenizer)
    assert sound is not None

    class Wrong(fast_tokens.FastTokenizer):
        def ids(self, texts: Any) -> Any:
            tokens, lengths = super().ids(texts)
            return tokens[::-1], lengths

    wrong = Wrong(sound.tokenizer, sound.size)
    assert not np.array_equal(wrong.ids(texts)[0], sound.ids(texts)[0])
    monkeypatch.setattr(fast_tokens, "_of_model", lambda *_: wrong)
    for found, expected in zip(fast_token_ids(texts, model), own, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_memory_of_words_is_dropped_after_so_many_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_tokens, "_seen_chars", 0)
    monkeypatch.setattr(fast_tokens, "_CHARS_A_LIFE", 10)
    assert [fast_tokens._lives(["abcd"]) for _ in range(6)] == [0, 0, 1, 1, 2, 2]
