"""Where phrases may begin, end and not run on: word boundaries out of token ids.

Everything that a rule needs of a token is in tables over the vocabulary, so that the rules are
a few array operations over millions of tokens and hold for byte-level, SentencePiece and
WordPiece tokenizers alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAY_START = np.uint8(1)
MAY_END = np.uint8(2)
# No phrase holds this token and the next one: a sentence, line or document ends between them.
CUT_AFTER = np.uint8(4)

ANCHOR = "a"
_JOINERS = frozenset("'\N{RIGHT SINGLE QUOTATION MARK}-\N{NON-BREAKING HYPHEN}")
_STOPS = tuple(".!?\N{HORIZONTAL ELLIPSIS}\N{IDEOGRAPHIC FULL STOP}\N{FULLWIDTH QUESTION MARK}")
_CLOSERS = "\"')]\N{RIGHT DOUBLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"
_PARTIAL = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Vocabulary:
    """Boolean properties of every token id, each (vocabulary size,).

    Attributes
    ----------
    spaced : begins with white space.
    joins_left, joins_right : its outer character is a letter, a digit, an apostrophe, a hyphen
        or part of a character, so that it forms a word with such a neighbour.
    word : holds a letter or a digit.
    stop : ends in a full stop, question or exclamation mark, closing quotes aside.
    closer : consists of closing quotes and brackets.
    line : holds a line end.
    """

    spaced: NDArray[np.bool_]
    joins_left: NDArray[np.bool_]
    joins_right: NDArray[np.bool_]
    word: NDArray[np.bool_]
    stop: NDArray[np.bool_]
    closer: NDArray[np.bool_]
    line: NDArray[np.bool_]


def token_texts(tokenizer: Any) -> list[str]:
    """Return the text that each id adds after a letter; ids without text give ''.

    Decoding a token after another one keeps its leading space, which SentencePiece and
    WordPiece decoders drop at the start of a text.
    """
    backend = tokenizer.backend_tokenizer
    size = backend.get_vocab_size(with_added_tokens=True)
    anchor = backend.encode(ANCHOR, add_special_tokens=False).ids
    alone = backend.decode(anchor, skip_special_tokens=True)
    pairs = [[*anchor, token] for token in range(size)]
    decoded = backend.decode_batch(pairs, skip_special_tokens=True)
    return [text[len(alone) :] if text.startswith(alone) else text for text in decoded]


def vocabulary_of(texts: list[str]) -> Vocabulary:
    """Classify the texts of :func:`token_texts`."""

    def table(predicate: Any) -> NDArray[np.bool_]:
        return np.fromiter((bool(predicate(text)) for text in texts), np.bool_, len(texts))

    return Vocabulary(
        spaced=table(lambda text: text[:1].isspace()),
        joins_left=table(lambda text: _joins(text[:1])),
        joins_right=table(lambda text: _joins(text[-1:])),
        word=table(lambda text: any(_wordlike(mark) for mark in text)),
        stop=table(lambda text: text.rstrip(_CLOSERS).endswith(_STOPS)),
        closer=table(lambda text: text != "" and not text.strip(_CLOSERS)),
        line=table(lambda text: "\n" in text or "\r" in text),
    )


def _wordlike(mark: str) -> bool:
    return mark.isalnum() or mark == _PARTIAL


def _joins(mark: str) -> bool:
    return mark != "" and (_wordlike(mark) or mark in _JOINERS)


def flags_of(
    tokens: NDArray[np.uint32], document_ends: NDArray[np.int64], vocabulary: Vocabulary
) -> NDArray[np.uint8]:
    """Return MAY_START, MAY_END and CUT_AFTER of every token of a run of documents.

    A phrase begins and ends at a word boundary with a token that holds a letter or digit. It
    runs over no line end and no end of a sentence (a stop mark with white space after it).
    Apostrophes and hyphens inside a word are no boundaries, and an abbreviation's full stop
    ends a sentence: both lose a few phrases rather than admit halves of words.

    Parameters
    ----------
    tokens : (n,) uint32
    document_ends : (documents,) int64, ascending
        Exclusive end of each document; the last is n.
    """
    count = len(tokens)
    flags = np.zeros(count, np.uint8)
    if count == 0:
        return flags
    ends = np.zeros(count, np.bool_)
    ends[document_ends[document_ends > 0] - 1] = True
    ids = tokens.astype(np.int64)
    spaced, line = vocabulary.spaced[ids], vocabulary.line[ids]

    gap = np.ones(count + 1, np.bool_)  # gap[i]: a word boundary before token i
    gap[1:-1] = spaced[1:] | ~(vocabulary.joins_right[ids[:-1]] & vocabulary.joins_left[ids[1:]])
    gap[1:] |= ends

    stop = vocabulary.stop[ids]
    stop[1:] |= vocabulary.closer[ids[1:]] & stop[:-1]
    cut = ends | line
    cut[:-1] |= line[1:] | (stop[:-1] & spaced[1:])

    word = vocabulary.word[ids] & ~line
    flags[word & gap[:-1]] |= MAY_START
    flags[word & gap[1:]] |= MAY_END
    flags[cut] |= CUT_AFTER
    return flags
