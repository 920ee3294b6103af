"""The interval of a difference between two systems, in cases that can be worked out."""

from __future__ import annotations

from benchmarks.quality._bootstrap import difference_interval

GOLD = [{f"{number} a", f"{number} b"} for number in range(50)]
ALL = set().union(*GOLD)
FIRST = {phrase for phrase in ALL if phrase.endswith("a")}


def test_a_difference_that_every_document_shows_is_certain() -> None:
    assert difference_interval(GOLD, ALL, ALL) == (0.0, 0.0)
    assert difference_interval(GOLD, ALL, FIRST) == (50.0, 50.0)
    assert difference_interval(GOLD, set(), ALL) == (-100.0, -100.0)


def test_a_difference_in_some_documents_is_as_uncertain_as_their_number() -> None:
    half = set().union(*GOLD[:25])
    low, high = difference_interval(GOLD, half, set())
    # Of a draw about 1 - 1/e of the documents are there, each once.
    assert 25 < low < 40
    assert 60 < high < 75


def test_a_phrase_of_many_documents_counts_once() -> None:
    assert difference_interval([{"same", f"{n} a"} for n in range(9)], {"same"}, set())[1] < 50
