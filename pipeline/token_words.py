"""What the words of a phrase are like, out of token ids: a table over the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from phrasemem.pipeline.boundaries import vocabulary_of

# On scikit-learn's list, but words of a subject as well: *control system*, *interest rate* and
# *forest fire* are phrases. That list has such faults: Nothman, Qin, Yurchak (2018), "Stop word
# lists in free open-source software packages".
_CONTENT_WORDS = """
amount back bill bottom call con cry de describe detail empty fill find fire found front full
interest mill move name part serious show side sincere system thick thin top
"""
STOP_WORDS = ENGLISH_STOP_WORDS.difference(_CONTENT_WORDS.split())

_JOINERS = "'-\N{RIGHT SINGLE QUOTATION MARK}\N{NON-BREAKING HYPHEN}"
_PARTIAL = "\N{REPLACEMENT CHARACTER}"


def word_table(texts: Sequence[str], stop_words: str | None) -> pa.Table:
    """Return what scores and rules need of every token.

    Only English has a list of stop words; for other languages only marks count.

    Parameters
    ----------
    texts : sequence of str
        What :func:`phrasemem.pipeline.boundaries.token_texts` returns.
    stop_words : str or None

    Returns
    -------
    table
        token; is_function (a stop word, or without letter and digit), is_stop, is_mark (neither
        letter nor digit, and no apostrophe or hyphen that joins words), has_digit, opens (a word
        begins with it, whatever stands before); all but the first boolean.
    """
    stops = STOP_WORDS if stop_words == "english" else frozenset[str]()
    vocabulary = vocabulary_of(list(texts))
    is_stop = [text.strip().lower() in stops for text in texts]
    wordless = [not any(mark.isalnum() for mark in text) for text in texts]
    return pa.table(
        {
            "token": pa.array(np.arange(len(texts), dtype=np.uint32)),
            "is_function": np.logical_or(is_stop, wordless),
            "is_stop": np.array(is_stop, np.bool_),
            "is_mark": [
                plain and text.strip(f"{_JOINERS}{_PARTIAL} ") != ""
                for text, plain in zip(texts, wordless, strict=True)
            ],
            "has_digit": [any(mark.isdigit() for mark in text) for text in texts],
            "opens": vocabulary.spaced | ~vocabulary.joins_left,
        }
    )
