"""Quality rules for web text: why a document looks like no prose, or None.

Each rule is a function of what was measured of all documents of a chunk at once. They are those of
Gopher (Rae et al. 2021, appendix A.1.1, table A1) and C4 (Raffel et al. 2020, 2.2); the thresholds
are the papers' where they have some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrasemem.pipeline.words import (
    Words,
    gram_hashes,
    members,
    run_hashes,
    split_words,
    tally_documents,
)
from phrasemem.pipeline.words_kernel import LINE

Flags = NDArray[np.bool_]
Numbers = NDArray[np.float64]

_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
_BULLETS = tuple("•‣▪◦·*-\N{EN DASH}")
_ELLIPSES = ("...", "\N{HORIZONTAL ELLIPSIS}")
_GRAM = 5


class Measures(NamedTuple):
    """Of each document of a chunk; every array is (documents,).

    Attributes
    ----------
    words, mean_length : number of words, and their mean length in characters.
    alphabetic : share of words that hold a letter.
    symbols : hash signs and ellipses a word.
    stop_words : how many distinct ones of Gopher's eight English stop words occur.
    bullets, ellipses : share of lines that begin with a bullet, that end in an ellipsis.
    repeated_lines : share of lines that occurred before in the document.
    repeated_grams : share of 5-grams of words that occurred before in the document.
    placeholder : holds "lorem ipsum".
    braces : curly brackets a word.
    """

    words: Numbers
    mean_length: Numbers
    alphabetic: Numbers
    symbols: Numbers
    stop_words: Numbers
    bullets: Numbers
    ellipses: Numbers
    repeated_lines: Numbers
    repeated_grams: Numbers
    placeholder: Numbers
    braces: Numbers


def measure(texts: Sequence[str], words: Words) -> Measures:
    """Measure documents, given their words with digits as they are."""
    bounds = words.bounds
    number = np.diff(bounds).astype(np.float64)
    count = np.maximum(number, 1)
    lines = [text.split("\n") for text in texts]
    return Measures(
        words=number,
        mean_length=_sums(words.ends - words.starts, bounds) / count,
        alphabetic=_sums(words.letters, bounds) / count,
        symbols=_each(texts, _symbols) / count,
        stop_words=_distinct_stop_words(words),
        bullets=_each(lines, lambda own: _share(own, lambda line: line.startswith(_BULLETS))),
        ellipses=_each(lines, lambda own: _share(own, lambda line: line.endswith(_ELLIPSES))),
        repeated_lines=_repeated(*_lines(words), len(texts)),
        repeated_grams=_repeated(*_grams(words), len(texts)),
        placeholder=_each(texts, lambda text: "lorem ipsum" in text.lower()),
        braces=_each(texts, lambda text: text.count("{")) / count,
    )


# In this order; a document is dropped for the first that holds.
RULES: Mapping[str, Callable[[Measures, Mapping[str, Any]], Flags]] = {
    "placeholder-text": lambda m, _: m.placeholder > 0,
    "too-few-words": lambda m, limit: m.words < limit["min_words"],
    "too-many-words": lambda m, limit: m.words > limit["max_words"],
    "odd-word-length": lambda m, limit: (
        (m.mean_length < limit["min_mean_word"]) | (m.mean_length > limit["max_mean_word"])
    ),
    "few-alphabetic-words": lambda m, limit: m.alphabetic < limit["min_alphabetic"],
    "many-symbols": lambda m, limit: m.symbols > limit["max_symbols"],
    "code": lambda m, limit: m.braces > limit["max_braces"],
    "bullets": lambda m, limit: m.bullets > limit["max_bullets"],
    "ellipses": lambda m, limit: m.ellipses > limit["max_ellipses"],
    "repeated-lines": lambda m, limit: m.repeated_lines > limit["max_repeated_lines"],
    "repeated-words": lambda m, limit: m.repeated_grams > limit["max_repeated_grams"],
    "few-stop-words": lambda m, limit: m.stop_words < limit["min_stop_words"],
}


def verdicts(measures: Measures, limits: Mapping[str, Any], english: bool) -> list[str | None]:
    """Name the first rule that each document breaks; None where there is none.

    The rule of stop words is for English text alone.
    """
    found: list[str | None] = [None] * len(measures.words)
    for name, rule in RULES.items():
        if name == "few-stop-words" and not english:
            continue
        for document in np.flatnonzero(rule(measures, limits)).tolist():
            found[document] = found[document] or name
    return found


def _sums(values: NDArray[Any], bounds: NDArray[np.int64]) -> Numbers:
    total = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    return np.diff(total[bounds]).astype(np.float64)


def _each(texts: Sequence[Any], function: Callable[[Any], float]) -> Numbers:
    return np.array([function(text) for text in texts], np.float64)


def _symbols(text: str) -> int:
    return text.count("#") + sum(text.count(mark) for mark in _ELLIPSES)


def _share(lines: Sequence[str], predicate: Callable[[str], bool]) -> float:
    return sum(map(predicate, lines)) / len(lines)


def _distinct_stop_words(words: Words) -> Numbers:
    wanted = np.sort(split_words([" ".join(_STOP_WORDS)]).hashes)
    hit = np.flatnonzero(members(words.hashes, wanted))
    texts = len(words.offsets) - 1
    which = np.searchsorted(wanted, words.hashes[hit])
    pairs = np.unique(words.documents[hit] * len(wanted) + which) // len(wanted)
    return np.bincount(pairs, minlength=texts).astype(np.float64)


def _lines(words: Words) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    starts = np.flatnonzero(words.gaps == LINE)
    return run_hashes(words.hashes, starts), words.documents[starts]


def _grams(words: Words) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    hashes, starts = gram_hashes(words, _GRAM)
    return hashes, words.documents[starts]


def _repeated(hashes: NDArray[np.uint64], documents: NDArray[np.int64], texts: int) -> Numbers:
    """Return the share of hashes that occurred before in their document."""
    again = tally_documents(hashes, documents).again
    number = np.bincount(documents, minlength=texts)
    return np.bincount(documents[again], minlength=texts) / np.maximum(number, 1)
