"""Masks: mail addresses and phone numbers go, the numbers of science and books stay."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from phrasemem.pipeline.boundaries import CUT_AFTER, flags_of, vocabulary_of
from phrasemem.pipeline.clean import clean_text
from phrasemem.pipeline.personal import MASK, mask_personal

BOTH, REGIONS = ["email", "phone"], ["US", "GB"]
HIDDEN = MASK.strip()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Write to jane.doe+x@mail.example.co.uk, please.", "Write to\n[...]\n, please."),
        ("<cecily.liu@mail.chinadailyuk.com>", "<\n[...]\n>"),
        ("a@b.io and c_d@e-f.org", "[...]\nand\n[...]"),
        ("Call +44 20 7946 0958 now", "Call\n[...]\nnow"),
        ("(212) 555-2368 or 212-736-5000", "[...]\nor\n[...]"),
        ("Phone: 020 7946 0958.", "Phone:\n[...]\n."),
        ("Tel. 020 7946 0958", "Tel.\n[...]"),
        ("dial 1-800-273-8255 today", "dial\n[...]\ntoday"),
        ("+353 1 666 6650", "[...]"),
    ],
)
def test_addresses_and_numbers_are_masked(text: str, masked: str) -> None:
    assert clean_text(mask_personal(text, BOTH, REGIONS, Counter())) == masked


@pytest.mark.parametrize(
    "text",
    [
        "in the years 1998-2004 and 1998-2004.",
        "ISBN 978-3-16-148410-0 and ISBN 0-306-40615-2",
        "PMID: 12345678, PMID 31452104; doi:10.1016/j.cell.2020-555-1234",
        "p < 0.0001, n = 212 555 999 cells",
        "(P=0.001; 95% CI 1.212-555.2368)",
        "NCT01234567, GSE 212555, CAS 50-78-2, 212-555-23689",
        "J Biol Chem 275(12): 8929-8935, 2000",
        "a change of +3.25 5 10 20 30 percent",
        "Fig. 3a-c, 100 200 3000 4000 and 2001:0db8:85a3",
        "@handle, foo@bar and a @ b.com",
        "at 12:30 on 2017-01-27, 01/27/2017 page32",
        "1 000 000 000 and 1,234,567,890 and 555 123 4567",
        "$212.555.2368 or v212.555.2368",
    ],
)
def test_other_numbers_stay(text: str) -> None:
    counts: Counter[str] = Counter()
    assert mask_personal(text, BOTH, REGIONS, counts) == text
    assert counts.total() == 0


def test_only_what_is_asked_for_is_masked_and_counted() -> None:
    text = "a@b.io, +44 20 7946 0958, c@d.org"
    counts: Counter[str] = Counter()
    assert mask_personal(text, [], REGIONS, counts) == text
    assert mask_personal(text, ["phone"], REGIONS, counts).count(HIDDEN) == 1
    assert mask_personal(text, ["email"], REGIONS, counts).count(HIDDEN) == 2
    assert counts == {"phone": 1, "email": 2}


def test_hostile_text_takes_no_long() -> None:
    for text in ("a." * 50_000 + "@", "@" * 100_000, "+1" + " 1" * 100_000, "a@" + "b." * 50_000):
        assert mask_personal(text, BOTH, REGIONS, Counter()) is not None


def test_no_phrase_holds_or_spans_a_mask() -> None:
    text = mask_personal("please write a@b.io for details", ["email"], REGIONS, Counter())
    pieces = ["please", " write", " ", "\n", "[", "...", "]", "\n", " for", " details"]
    assert "".join(pieces) == text
    tokens = np.arange(len(pieces), dtype=np.uint32)
    flags = flags_of(tokens, np.array([len(pieces)]), vocabulary_of(pieces))
    cut = flags & CUT_AFTER != 0
    assert cut[2:8].any()
    assert cut[2]
    assert cut[7]
