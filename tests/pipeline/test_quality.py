"""Quality rules: each drops what it is named after, and prose passes all."""

from __future__ import annotations

from pathlib import Path

import pytest

from phrasemem.pipeline.clean import clean_part
from phrasemem.pipeline.config import Cleaning, Quality
from phrasemem.pipeline.documents import write_chunk
from phrasemem.pipeline.quality import RULES, measure, verdicts
from phrasemem.pipeline.read import Document
from phrasemem.pipeline.words import split_words

NOUNS = (
    "river mountain garden window market letter doctor engine harbour teacher" + " winter morning"
).split()
PROSE = """The river was high that spring, and nobody wanted to cross it with a loaded cart.
A letter came from the harbour to say that two ships have been lost in the storm.
My brother read it aloud while our mother stood by the window of the old kitchen.
She asked whether the doctor had returned, but there was no answer to be given.
Later in the evening we walked up the hill and looked over the roofs of the town.
Smoke rose from the engine house where men were still at work on the broken pump.
Nothing in the market square moved, except for a dog that slept under a bench."""
LIMITS = Quality().model_dump()

BAD = {
    "placeholder-text": PROSE + "\nLorem ipsum dolor sit amet",
    "too-few-words": "The morning that follows is to be remembered with gratitude.",
    "odd-word-length": PROSE + " " + " ".join(f"antidisestablishmentarian{n}" for n in range(60)),
    "few-alphabetic-words": PROSE + "\n" + " ".join(str(1000 + n * 7) for n in range(40)),
    "many-symbols": PROSE + "\n" + "# " * 60,
    "code": PROSE + "\nfunction f(x) { if (x) { return {}; } }",
    "bullets": "\n".join("* " + line for line in PROSE.split("\n")),
    "ellipses": "\n".join(line.rstrip(".") + "..." for line in PROSE.split("\n")),
    "repeated-lines": PROSE + "\nSign in\nSign in\nSign in\nSign in\nSign in\nSign in\nSign in",
    "repeated-words": PROSE + "\n" + " ".join(["buy cheap shoes online today here"] * 12),
    "few-stop-words": " ".join(f"{a} {b[:-2]}" for a in NOUNS for b in NOUNS[:7]),
}  # fmt: skip


def reason(text: str, english: bool = True, **limits: object) -> str | None:
    [found] = verdicts(measure([text], split_words([text])), {**LIMITS, **limits}, english)
    return found


def test_prose_passes() -> None:
    assert reason(PROSE) is None


@pytest.mark.parametrize("name", [name for name in RULES if name != "too-many-words"])
def test_each_rule_drops_what_it_is_named_after(name: str) -> None:
    assert reason(BAD[name]) == name


def test_thresholds_are_settings() -> None:
    assert reason(PROSE, max_words=100) == "too-many-words"
    assert reason(BAD["too-few-words"], min_words=5) is None
    assert reason(BAD["many-symbols"], max_symbols=0.6) is None
    assert reason(BAD["few-stop-words"], english=False) is None


def test_documents_are_judged_apart() -> None:
    texts = [PROSE, *BAD.values(), "", PROSE]
    found = verdicts(measure(texts, split_words(texts)), LIMITS, True)
    assert found == [None, *BAD, "too-few-words", None]
    assert measure([], split_words([])).words.shape == (0,)


def test_only_the_kinds_that_are_named_are_judged(tmp_path: Path) -> None:
    texts = [PROSE, BAD["repeated-words"], BAD["code"]]
    write_chunk(
        tmp_path / "in.parquet",
        [Document(str(i), "c", "web", "", text) for i, text in enumerate(texts)],
    )
    for kind, dropped in (("web", {"code": 1, "repeated-words": 1}), ("science", {})):
        report = clean_part(
            tmp_path,
            kind,
            source=str(tmp_path / "in.parquet"),
            cleaning=Cleaning().model_dump(),
            repairs=[],
            language="en",
            kind=kind,
            repeated=None,
            evaluation=None,
        )
        assert report["dropped"] == dropped
