"""Whether a text surely needs no repair by ftfy, which takes longer than all other cleaning."""

from __future__ import annotations

import re
import unicodedata

from ftfy.badness import BADNESS_RE

# What ftfy changes by itself: entities, control characters, ligatures, odd widths, specials.
_ENTITY = re.compile(r"&#?\w")
_CHANGED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u0132\u0133\u0149\u01c4-\u01cc\u01f1-\u01f3"
    "\u2028\u2029\u206a-\u206f\u3000\ufb00-\ufb06\ufeff-\uffef\ufff9-\ufffc]"
    "|[\ud800-\udfff]"
)
_CHANGED_ASCII = bytes([*range(9), *range(11, 32), 127])
_FOREIGN = re.compile("[^\x00-\x7f]+")
# ftfy's marks of a wrong decoding are at most so long, and each holds a character beyond ASCII.
_NEAR = 8
# ftfy looks at each line by itself.
_BAD = re.compile(BADNESS_RE.pattern, BADNESS_RE.flags | re.MULTILINE)


def surely_sound(text: str) -> bool:
    """Whether ftfy would change nothing but line ends.

    Outside ASCII the search for wrong decodings, nearly all of ftfy's time, looks only at what is
    next to characters beyond ASCII. A property test holds this to ftfy itself.
    """
    if "&" in text and _ENTITY.search(text) is not None:
        return False
    if text.isascii():
        data = text.encode("ascii")
        return len(data.translate(None, _CHANGED_ASCII)) == len(data)
    if _CHANGED.search(text) is not None or not unicodedata.is_normalized("NFC", text):
        return False
    spans = (match.span() for match in _FOREIGN.finditer(text))
    near = "\n".join(text[max(0, start - _NEAR) : end + _NEAR] for start, end in spans)
    return _BAD.search(near) is None
