"""The key map of a tokenizer has the classes of Engram's compression, by a plain reading of it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from phrasemem.folding import engram_key_map

TEXTS = [
    "New York new york NEW YORK  New  York\n\nnew\tyork the The THE " * 20,
    "café Cafe CAFÉ cafe\u0301 naïve naive \ufb01ne fine \uff21 A ½ 1\u20442 İstanbul ΣΑΣ σας ß ẞ "
    * 20,
    "日本 中国 \u0928\u092e\u0938\u094d\u0924\u0947 \u00a0 \u2003 ¡ ¨ \u0301 🙂 🙃 " * 20,
]
SPECIAL = ["<end>", "<END>", "<unk>"]


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def metaspace() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


@pytest.fixture(scope="module", params=[byte_level, metaspace])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=request.param(), eos_token="<end>")


def plain_form(text: str, spelling: str) -> str:
    """Engram's key of one id, step by step with Python's own Unicode tables."""
    if "\N{REPLACEMENT CHARACTER}" in text:
        return spelling
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    folded = "".join(mark for mark in folded if not unicodedata.category(mark).startswith("M"))
    folded = re.sub(r"[ \t\r\n]+", " ", "".join(mark.lower() for mark in folded))
    return (folded if folded == " " else folded.strip()) or text


def test_classes_are_those_of_a_plain_reading(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = engram_key_map(tokenizer).ids.tolist()
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    first: dict[str, int] = {}
    expected = []
    for token in range(len(tokenizer)):
        text = tokenizer.backend_tokenizer.decode([token], skip_special_tokens=False)
        form = plain_form(text, tokenizer.convert_ids_to_tokens(token))
        expected.append(token if token in added else first.setdefault(form, token))
    assert ids == expected
    assert len(set(ids)) < 0.9 * len(ids)


def one(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> bool:
    """Whether single tokens with these texts are all in one class."""
    backend, key_map = tokenizer.backend_tokenizer, engram_key_map(tokenizer)
    decoded = backend.decode_batch([[i] for i in range(len(tokenizer))], skip_special_tokens=False)
    classes = [{int(key_map.ids[i]) for i, t in enumerate(decoded) if t == text} for text in texts]
    assert all(classes), "no such token"
    return len(set.union(*classes)) == 1


def test_spellings_of_a_word_are_one_and_other_words_are_not() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<end>")
    assert one(tokenizer, [" New", " new", " NEW"])
    assert one(tokenizer, [" York", " york"])
    assert one(tokenizer, ["A", "a"])
    assert one(tokenizer, [" ", "\t", "\n"])
    assert not one(tokenizer, [" new", " york"])
    assert not one(tokenizer, ["<end>", "<END>"])


def test_ids_that_the_vocabulary_lacks_stand_for_themselves() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1, "A": 4}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["<end>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    ids = engram_key_map(fast).ids
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    assert len(ids) == size
    assert ids.dtype == np.uint32
    assert ids.tolist() == list(range(size))
