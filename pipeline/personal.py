"""Personal data in text: mail addresses and phone numbers are masked.

The mask holds no letter and stands on a line of its own, so no phrase holds or spans it, whatever
the tokenizer. Phone numbers are Google's libphonenumber's to judge; a pattern for what is written
like one comes first, since judging every number of a scientific text would take longer than all
other cleaning, and would find phone numbers among page ranges.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

MASK = "\n[...]\n"
EMAIL, PHONE = "email", "phone"

# Local part as RFC 5322 writes it unquoted, labels as RFC 1123; bounded, so that no text is slow.
_EMAIL = re.compile(
    r"(?<![A-Za-z0-9.!#$%&'*+/=?^_`{|}~-])[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])"
)
# How numbers are written, each with what a text must hold for the pattern to be worth a search:
# +44 20 7946 0958; (212) 555-0123, 212-555-0123 and 212.555.0123; "Tel. 020 7946 0958".
_LOCAL = r"0\d(?:[ .\-/()]{0,2}\d){6,12}(?![\w-]|\.\d)"
_PHONES = (
    (
        re.compile(r"\+"),
        re.compile(r"\+(?<![\w+/.=#-]\+)[1-9](?:[ .\-/()]{0,2}\d){6,14}(?![\w-]|\.\d)"),
    ),
    (
        re.compile(r"\d[ .-]\d{4}(?!\d)"),
        re.compile(
            r"(?<![\w+/.=#$-])(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{4}"
            r"(?![\w-]|\.\d)"
        ),
    ),
    (re.compile(r"(?:el[.:]|hone:) 0"), re.compile(rf"(?<=el[.:] ){_LOCAL}|(?<=hone: ){_LOCAL}")),
)


def mask_personal(
    text: str, what: Sequence[str], regions: Sequence[str], counts: Counter[str]
) -> str:
    """Mask what is asked for and count it.

    Parameters
    ----------
    what : sequence of {"email", "phone"}
    regions : sequence of str
        Where a number without a country code may be from, as ISO 3166 codes; the first that
        libphonenumber finds it valid in is enough.
    """
    if EMAIL in what and "@" in text:
        text, number = _EMAIL.subn(MASK, text)
        counts[EMAIL] += number
    if PHONE in what:
        for hint, pattern in _PHONES:
            if hint.search(text):
                text = _mask_phones(text, pattern, tuple(regions), counts)
    return text


def _mask_phones(
    text: str, pattern: re.Pattern[str], regions: tuple[str, ...], counts: Counter[str]
) -> str:
    def replace(match: re.Match[str]) -> str:
        if not is_phone_number(match.group().strip(), regions):
            return match.group()
        counts[PHONE] += 1
        return MASK

    return pattern.sub(replace, text)


@lru_cache(maxsize=4096)
def is_phone_number(written: str, regions: tuple[str, ...]) -> bool:
    """Whether libphonenumber takes a number for one that may be in use."""
    if "." in written and not set(written).isdisjoint(" -"):
        return False  # a decimal point among other numbers
    import phonenumbers

    for region in (None,) if written.startswith("+") else regions:
        try:
            number = phonenumbers.parse(written, region)
        except phonenumbers.NumberParseException:
            continue
        if phonenumbers.is_valid_number(number):
            return True
    return False
