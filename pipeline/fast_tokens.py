"""Token ids by gigatoken, many times as fast as the tokenizer itself, where both agree.

gigatoken remembers how it split each word. Whether it knows a tokenizer is tried on texts that
tokenizers split in odd ways; whether it is right about a corpus, on a few documents of every
chunk. Where it is not, and for documents that hold bytes which the vocabulary lacks, the
tokenizer itself is asked. So the ids are the tokenizer's in any case that was seen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrasemem.pipeline.tokens import corpus_tokenizer, token_ids

_CHECKED_DOCUMENTS, _CHECKED_CHARS = 16, 2000
# What was remembered is dropped after about so many characters, so that memory stays bounded.
_CHARS_A_LIFE = 200_000_000
_ODD_TEXTS = (
    "", " ", "\n", "  two  spaces\t\ttabs \n\n lines\r\nend  ", "don't I'LL we're x's 'tis ''",
    "1234567 3.14 1,000.00 2nd \u00b9\u00b2 \u0663\u0664 \u2167", "nai\u0308ve caf\u00e9",
    "cafe\u0301 \u212b \ufb01 \u00df \u0130i", "\u4e2d\u6587\u5b57 \u65e5\u672c \ud55c\uad6d",
    "\u0e2a\u0e27\u0e31 \u0644\u0627", "\U0001f468\u200d\U0001f469 \U0001f1e9\U0001f1ea",
    "a\u00a0b\u2003c\u200bd\ufeff", "x\x00y\x04z\x7f", "__init__(self) -> None: {}[]<>|~`",
    "https://e.org/a?b=c&d=%20#f", "\u2018q\u2019 \u201cq\u201d\u2014\u2026", "A" * 500,
    "word" * 300, " " * 300, "-" * 300 + "\n" * 30,
)  # fmt: skip


class FastTokenizer(NamedTuple):
    """A tokenizer of gigatoken; ids from ``size`` on stand for bytes without an id."""

    tokenizer: Any
    size: int

    def ids(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the ids of all texts, and how many each has."""
        import awkward

        found = self.tokenizer.encode_batch(list(texts), parallel=False)
        lengths = awkward.to_numpy(awkward.num(found)).astype(np.int64)
        return awkward.to_numpy(awkward.flatten(found)).astype(np.uint32, copy=False), lengths


def fast_token_ids(texts: list[str], model: str) -> list[NDArray[np.uint32]]:
    """Return the ids of each text, without special tokens; see :func:`tokens.token_ids`."""
    backend = corpus_tokenizer(model).backend_tokenizer
    fast = _of_model(model, _lives(texts)) if texts else None
    if fast is None or not _agree(fast, _sample(texts), backend):
        return list(token_ids(texts, backend))
    return _split(fast, texts, backend)


def _split(fast: FastTokenizer, texts: list[str], backend: Any) -> list[NDArray[np.uint32]]:
    tokens, lengths = fast.ids(texts)
    ends = np.cumsum(lengths)
    pieces = np.split(tokens, ends[:-1])
    unknown = np.flatnonzero(tokens >= fast.size)
    rest = np.unique(np.searchsorted(ends, unknown, side="right")).tolist()
    own = token_ids([texts[place] for place in rest], backend)
    for place, ids in zip(rest, own, strict=True):
        pieces[place] = ids
    return pieces


def fast_tokenizer(backend: Any) -> FastTokenizer | None:
    """Return a fast one that agrees on odd texts and on all added tokens; None if there is none.

    Parameters
    ----------
    backend : tokenizers.Tokenizer
    """
    import gigatoken

    described = json.loads(backend.to_str())
    size = backend.get_vocab_size(with_added_tokens=True)
    added = described["added_tokens"]
    # Text that looks like a special token is text.
    described["added_tokens"] = [token for token in added if not token["special"]]
    if "ByteLevel" in json.dumps(described["pre_tokenizer"]):
        _fill_alphabet(described["model"], size)
    try:
        fast = FastTokenizer(gigatoken.Tokenizer.from_json(json.dumps(described)), size)
        texts = [*_ODD_TEXTS, *(f"a {token['content']} b{token['content']}" for token in added)]
        return fast if _agree(fast, texts, backend) else None
    except (RuntimeError, ValueError):
        return None  # a kind of tokenizer that it does not know


def _fill_alphabet(model: dict[str, Any], size: int) -> None:
    """Give an id beyond the vocabulary to each byte that has none: gigatoken wants all 256."""
    from tokenizers import pre_tokenizers

    missing = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(model["vocab"]))
    model["vocab"].update({mark: size + place for place, mark in enumerate(missing)})


def _agree(fast: FastTokenizer, texts: list[str], backend: Any) -> bool:
    """Whether both give the same ids of texts, but for those with bytes that have no id."""
    tokens, lengths = fast.ids(texts)
    found = np.split(tokens, np.cumsum(lengths)[:-1])
    return all(
        (ids >= fast.size).any() or np.array_equal(ids, own)
        for ids, own in zip(found, token_ids(texts, backend), strict=True)
    )


def _sample(texts: list[str]) -> list[str]:
    step = -(-len(texts) // _CHECKED_DOCUMENTS)
    return [text[:_CHECKED_CHARS] for text in texts[::step]]


@lru_cache(maxsize=1)
def _of_model(model: str, life: int) -> FastTokenizer | None:
    """Return the fast tokenizer of a model, made anew in each ``life``."""
    return fast_tokenizer(corpus_tokenizer(model).backend_tokenizer)


_seen_chars = 0


def _lives(texts: list[str]) -> int:
    """Return how often a fast tokenizer of this process has seen enough."""
    global _seen_chars  # noqa: PLW0603
    _seen_chars += sum(map(len, texts))
    return _seen_chars // _CHARS_A_LIFE
