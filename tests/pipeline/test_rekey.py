"""Phrases get the keys that running text gives them, whatever the tokenizer does with spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from phrasemem.pipeline.catalogue_table import catalogue_schema
from phrasemem.pipeline.rekey import (
    NO_PHRASE,
    NOT_ITS_TEXT,
    SINGLE_TOKEN,
    TOO_LONG,
    Rekeyed,
    rekey,
    running_keys,
)

WORDS = ["the", "New", "York", "mayor", "has", "changed", "it's", "high-speed", "Ünïcode", "42"]
TEXT = " ".join(WORDS * 30)
CORPORA = ["wiki", "news"]


def byte_level(add_prefix_space: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def metaspace() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return train(tokenizer, special_tokens=["<unk>"])


def llama() -> Tokenizer:
    """As Llama 2: a normaliser adds the space, so that a text with one begins with two."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return train(tokenizer, special_tokens=["<unk>"])


def lower_case() -> Tokenizer:
    tokenizer = byte_level(add_prefix_space=False)
    tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


def with_special_tokens() -> Tokenizer:
    tokenizer = byte_level(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def train(tokenizer: Tokenizer, **options: Any) -> Tokenizer:
    trainer = trainers.BpeTrainer(vocab_size=330, show_progress=False, **options)
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "byte level": lambda: byte_level(add_prefix_space=False),
    "byte level with a prefix space": lambda: byte_level(add_prefix_space=True),
    "metaspace": metaspace,
    "llama": llama,
    "special tokens": with_special_tokens,
}


def fast(tokenizer: Tokenizer) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_keys_are_what_stands_in_running_text(name: str) -> None:
    backend = TOKENIZERS[name]()
    texts = ["New York", "the mayor", "it's changed", "high-speed Ünïcode 42"]
    keys = running_keys(texts, fast(backend))
    for text, key in zip(texts, keys, strict=True):
        running = backend.encode(f"42 changed {text} the", add_special_tokens=False).ids
        places = [place for place in range(len(running)) if running[place:][: len(key)] == key]
        assert len(key) >= 2
        assert len(places) == 1
        assert backend.decode(key).strip() == text


def test_without_an_own_space_keys_are_those_of_a_space_and_the_text() -> None:
    backend = byte_level(add_prefix_space=False)
    wanted = backend.encode(" New York").ids
    assert running_keys(["New York"], fast(backend)) == [wanted]


def test_a_text_that_its_tokens_do_not_give_back_has_no_key() -> None:
    keys = running_keys(["New York", "the mayor", "the ☃ mayor"], fast(lower_case()))
    assert [bool(key) for key in keys] == [False, True, True]
    keys = running_keys(["the ☃ mayor", "the mayor"], fast(metaspace()))
    assert [bool(key) for key in keys] == [False, True]


def test_text_that_looks_like_a_special_token_is_text() -> None:
    backend = with_special_tokens()
    (key,) = running_keys(["the <s> mayor"], fast(backend))
    assert key
    assert backend.token_to_id("<s>") not in key


def catalogue(rows: list[tuple[str, int, list[int], list[int], float]]) -> pa.Table:
    """Make a catalogue of rows of text, n, counts and documents a corpus, and score."""
    columns: dict[str, list[Any]] = {name: [] for name in catalogue_schema(CORPORA).names}
    for place, (text, length, counts, documents, score) in enumerate(rows):
        values = {
            "row": place,
            "text": text,
            "tokens": [place] * length,
            "n": length,
            "count": sum(counts),
            "documents": sum(documents),
            "npmi": 0.5,
            "llr": 20.0,
            "cvalue": float(place),
            "score": score,
        }
        for kind, numbers in (("count", counts), ("documents", documents)):
            values |= {f"{kind}_{name}": k for name, k in zip(CORPORA, numbers, strict=True)}
        for name, column in columns.items():
            column.append(values.get(name, 0))
    return pa.table(columns).cast(catalogue_schema(CORPORA))


def test_rows_that_fall_together_are_joined() -> None:
    table = catalogue(
        [
            ("New York", 2, [3, 1], [2, 1], 1.0),
            ("the mayor", 2, [5, 0], [3, 0], 4.0),
            ("New York", 3, [4, 2], [4, 1], 2.0),
        ]
    )
    found = rekey(table, fast(byte_level(add_prefix_space=False)), n_max=6)
    new = {row["text"]: row for row in found.table.to_pylist()}
    assert len(new) == len(found.table) == 2
    assert (new["New York"]["count_wiki"], new["New York"]["count_news"]) == (7, 3)
    assert (new["New York"]["count"], new["New York"]["documents"]) == (10, 8)
    assert (new["New York"]["score"], new["New York"]["cvalue"]) == (2.0, 2.0)
    assert sorted(found.rows.tolist()) == [1, 2]
    assert (found.joined, found.dropped) == (1, Counter())


def test_rows_without_a_key_are_counted_by_reason() -> None:
    table = catalogue(
        [
            ("", 0, [9, 9], [9, 9], 0.0),
            ("York", 1, [9, 9], [9, 9], 0.0),
            ("changed", 2, [9, 9], [9, 9], 1.0),
            ("the New York mayor has changed it's", 6, [9, 9], [9, 9], 1.0),
            ("the mayor ☃", 3, [9, 9], [9, 9], 1.0),
            ("the mayor", 2, [9, 9], [9, 9], 1.0),
        ]
    )
    found = rekey(table, fast(metaspace()), n_max=4)
    assert found.table["text"].to_pylist() == ["the mayor"]
    assert found.dropped == {NO_PHRASE: 2, SINGLE_TOKEN: 1, TOO_LONG: 1, NOT_ITS_TEXT: 1}


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join),
            st.just(2),
            st.lists(st.integers(0, 9), min_size=2, max_size=2),
            st.lists(st.integers(0, 9), min_size=2, max_size=2),
            st.sampled_from([0.5, 1.0, 2.0]),
        ),
        max_size=12,
    )
)
def test_nothing_is_lost(rows: list[tuple[str, int, list[int], list[int], float]]) -> None:
    table, tokenizer = catalogue(rows), fast(BYTE_LEVEL)
    found = rekey(table, tokenizer, n_max=3)
    assert len(found.table) + found.joined + sum(found.dropped.values()) == len(rows)
    assert found.table.schema.equals(catalogue_schema(CORPORA))
    assert_joins_are_right(table, found, tokenizer)


BYTE_LEVEL = byte_level(add_prefix_space=False)


def assert_joins_are_right(table: pa.Table, found: Rekeyed, tokenizer: Any) -> None:
    plain: dict[tuple[int, ...], list[int]] = {}
    for row, key in enumerate(running_keys(table["text"].to_pylist(), tokenizer)):
        if 2 <= len(key) <= 3:
            plain.setdefault(tuple(key), []).append(row)
    order = sorted(plain, key=lambda key: (len(key), key))
    assert [tuple(key) for key in found.table["tokens"].to_pylist()] == order
    old = table.to_pylist()
    for new, key, row in zip(found.table.to_pylist(), order, found.rows.tolist(), strict=True):
        assert new["score"] == old[row]["score"] == max(old[place]["score"] for place in plain[key])
        for name in ("count", "documents", "count_news", "documents_wiki"):
            if name in new:
                assert new[name] == sum(old[place][name] for place in plain[key])
    assert np.array_equal(found.table["row"].to_numpy(), np.arange(len(order)))
