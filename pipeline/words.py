"""Words of many texts at once, as arrays of hashes, for whatever compares texts by their words.

A word is a run of letters, marks and digits; an ideograph is a word of its own. Case, width and
compatibility forms are folded. Two words with one 64-bit hash are taken for the same, which no
corpus of this world is likely to hold.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrasemem.pipeline.words_kernel import (
    CLOSER,
    DIGIT,
    FULL_STOP,
    IDEOGRAPH,
    LETTER,
    LINE_END,
    OTHER,
    SPACE,
    STOP,
    WIDE_STOP,
    scan,
    tally,
)

Hashes = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_PLANE = 0x10000


class Words(NamedTuple):
    """The words of some texts in order; all arrays are (words,) but ``offsets``.

    Attributes
    ----------
    hashes : uint64
    starts, ends : int64
        Where each word is in the texts laid end to end, in characters; the end is exclusive.
    documents : int64
        The text that each word is in.
    gaps : uint8
        What stands before each word: NOTHING, SENTENCE or LINE. A text begins with a LINE.
    letters : bool
        Whether it holds a letter.
    offsets : (texts + 1,) int64
        Where each text begins.
    """

    hashes: Hashes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    documents: NDArray[np.int64]
    gaps: NDArray[np.uint8]
    letters: NDArray[np.bool_]
    offsets: NDArray[np.int64]

    @property
    def bounds(self) -> NDArray[np.int64]:
        """First word of each text and, last, the number of all words: (texts + 1,)."""
        return np.searchsorted(self.documents, np.arange(len(self.offsets)))


def split_words(texts: Sequence[str], *, fold_digits: bool = False) -> Words:
    """Find the words of texts.

    Parameters
    ----------
    texts : sequence of str
        Without lone surrogates.
    fold_digits : bool
        Take all runs of digits for one, so that dates and numbers do not tell lines apart.
    """
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    points = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    kinds, folded = _tables()
    room = len(points) // 2 + len(texts) + 1 if points.max(initial=0) < _WIDE else len(points) + 1
    columns = (
        np.empty(room, np.uint64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.uint8),
        np.empty(room, np.bool_),
    )
    count = scan(points, offsets, kinds, folded, fold_digits, *columns)
    hashes, starts, ends, documents, gaps, letters = columns
    return Words(
        hashes[:count],
        starts[:count],
        ends[:count],
        documents[:count],
        gaps[:count],
        letters[:count],
        offsets,
    )


def gram_hashes(words: Words, length: int) -> tuple[Hashes, NDArray[np.int64]]:
    """Return the hash and the first word of every run of ``length`` words of one text."""
    count = len(words.hashes) - length + 1
    if count <= 0:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    rolling = words.hashes[:count].copy()
    for place in range(1, length):
        rolling *= _STEP
        rolling += words.hashes[place : place + count]
    starts = np.flatnonzero(words.documents[:count] == words.documents[length - 1 :])
    return _finish(rolling[starts], np.full(len(starts), length)), starts


def run_hashes(hashes: Hashes, starts: NDArray[np.int64]) -> Hashes:
    """Return the hash of each run of words, given where runs begin; the first begins at 0.

    A run of k words has the hash that :func:`gram_hashes` gives to its only run of k.
    """
    if len(starts) == 0:
        return np.zeros(0, np.uint64)
    lengths = np.diff(np.append(starts, len(hashes)))
    powers = np.cumprod(np.append(np.uint64(1), np.full(lengths.max() - 1, _STEP)), dtype=np.uint64)
    to_end = np.repeat(starts + lengths, lengths) - 1 - np.arange(len(hashes))
    return _finish(np.add.reduceat(hashes * powers[to_end], starts), lengths)


class Tally(NamedTuple):
    """Distinct hashes by first occurrence and the number of documents of each, both (distinct,).

    ``again`` tells which of the given hashes occurred before in their document.
    """

    hashes: Hashes
    documents: NDArray[np.int64]
    again: NDArray[np.bool_]


def tally_documents(hashes: Hashes, documents: NDArray[np.int64]) -> Tally:
    """Count in how many documents each hash is; the documents must not descend."""
    room = len(hashes)
    slots = np.full(1 << max(1, 2 * room - 1).bit_length(), -1, np.int64)
    distinct = np.empty(room, np.uint64)
    counts, last = np.empty(room, np.int64), np.empty(room, np.int64)
    again = np.empty(room, np.bool_)
    found = tally(hashes, documents, slots, distinct, counts, last, again)
    return Tally(distinct[:found], counts[:found], again)


def members(hashes: Hashes, known: Hashes) -> NDArray[np.bool_]:
    """Whether each hash is among the known ones, which ascend."""
    found = np.zeros(len(hashes), np.bool_)
    if len(known) == 0:
        return found
    # A table over the top 16 bits spares most hashes the search.
    table = np.zeros(1 << 16, np.bool_)
    table[known >> np.uint64(48)] = True
    likely = np.flatnonzero(table[hashes >> np.uint64(48)])
    places = np.minimum(np.searchsorted(known, hashes[likely]), len(known) - 1)
    found[likely] = known[places] == hashes[likely]
    return found


def _finish(rolling: Hashes, lengths: NDArray[np.int64]) -> Hashes:
    """Mix a polynomial and its length: splitmix64 (Steele, Lea, Flood 2014)."""
    mixed = rolling + lengths.astype(np.uint64) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    return mixed ^ (mixed >> np.uint64(31))


# From here on ideographs may follow each other, each a word: Hiragana and above.
_WIDE = 0x3040
_LINE_ENDS = "\n\v\f\r\x85\u2028\u2029"
_STOPS = "!?\N{HORIZONTAL ELLIPSIS}"
_WIDE_STOPS = "\u3002\uff01\uff1f"
_CLOSERS = "\"')]\N{RIGHT SINGLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
_GAPS = (
    dict.fromkeys(_LINE_ENDS, LINE_END)
    | dict.fromkeys(_STOPS, STOP)
    | dict.fromkeys(_WIDE_STOPS, WIDE_STOP)
    | dict.fromkeys(_CLOSERS, CLOSER)
    | {".": FULL_STOP}
)


def kind_of(mark: str) -> int:
    """Return what a character is to words; the plain definition of the tables."""
    category = unicodedata.category(mark)
    if ord(mark) >= _WIDE and category == "Lo" and not "\uac00" <= mark <= "\ud7a3":
        return IDEOGRAPH
    if category[0] in "LM":
        return LETTER
    if category[0] == "N":
        return DIGIT
    return _GAPS.get(mark, SPACE if mark.isspace() else OTHER)


def fold_of(mark: str) -> int:
    """Return the code point that a character counts as."""
    folded = unicodedata.normalize("NFKC", mark).casefold()
    return ord(folded) if len(folded) == 1 else ord(mark.lower()[0])


@lru_cache(maxsize=1)
def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Return kind and folded code point of the basic plane; above it all count as ideographs."""
    marks = [chr(point) for point in range(_PLANE)]
    kinds = np.fromiter(map(kind_of, marks), np.uint8, _PLANE)
    folded = np.fromiter(map(fold_of, marks), np.uint32, _PLANE)
    return kinds, folded
