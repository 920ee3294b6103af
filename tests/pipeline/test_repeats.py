"""Boilerplate: what many documents hold goes, what is an author's stays, whatever the chunks."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from phrasemem.pipeline.documents import write_chunk
from phrasemem.pipeline.read import Document
from phrasemem.pipeline.repeats import (
    least_documents,
    lines_part,
    read_hashes,
    repeated_part,
    strip_repeated,
)

SHARE_BAR = "Send Facebook Twitter google+ Whatsapp Tumblr linkedin Digg reddit Permalink http://dw.com/p/{}"
CALL = "Do you have information you want to share with the Post? Here's how."
RULES = {"span_words": 10, "sentence_words": 5}


def own(seed: int, sentences: int = 12) -> str:
    dice = random.Random(seed)
    words = [f"{a}{b}ing" for a in "bcdfghklmnprstvwz" for b in ("a", "e", "i", "o", "u", "ou")]
    return " ".join(" ".join(dice.choices(words, k=9)).capitalize() + "." for _ in range(sentences))


def news(count: int = 30) -> list[str]:
    """Return texts with a bar in front, a call behind and a dateline in a line of its own."""
    return [
        f"MOSCOW, February {number}\n{SHARE_BAR.format(f'2X{number}')} {own(number)} {CALL}"
        for number in range(count)
    ]


def repeated(
    folder: Path, texts: list[str], cuts: int, least: int = 10, **rules: object
) -> list[int]:
    folder.mkdir(exist_ok=True)
    sources = []
    for part in range(cuts):
        documents = [
            Document(str(i), "c", "web", "", text) for i, text in enumerate(texts[part::cuts])
        ]
        write_chunk(folder / f"in-{part}.parquet", documents)
        settings = {"share": 1.0, **RULES, **rules}
        lines_part(folder, f"l-{part}", source=str(folder / f"in-{part}.parquet"), **settings)  # type: ignore[arg-type]
        sources.append(str(folder / f"l-{part}.parquet"))
    repeated_part(folder, "all", sources=sources, least=least, memory_limit="200MB")
    return read_hashes(str(folder / "all.parquet")).tolist()


def test_templates_go_and_the_authors_words_stay(tmp_path: Path) -> None:
    texts = news()
    repeated(tmp_path, texts, cuts=3)
    hashes = read_hashes(str(tmp_path / "all.parquet"))
    stripped = strip_repeated(texts, hashes, **RULES, most=0.5)
    assert [text.strip() for text in stripped.texts] == [own(number) for number in range(30)]
    assert stripped.spans >= 60
    assert stripped.chars == sum(map(len, texts)) - sum(map(len, stripped.texts))


def test_what_is_repeated_does_not_depend_on_the_chunks(tmp_path: Path) -> None:
    texts = news()
    found = [repeated(tmp_path / str(cuts), texts, cuts) for cuts in (1, 2, 7)]
    assert found[0] == found[1] == found[2] == sorted(found[0])
    assert len(found[0]) > 5


def test_documents_count_not_occurrences(tmp_path: Path) -> None:
    line = "this line is said again and again by one author"
    texts = [f"{own(number)}\n{line}\n{line}\n{line}" for number in range(9)]
    assert repeated(tmp_path, texts, cuts=2) == []
    assert len(repeated(tmp_path, [*texts, f"{own(9)}\n{line}"], cuts=2)) > 0


def test_short_sentences_stay_and_short_lines_go(tmp_path: Path) -> None:
    texts = [
        f"{own(number, 6)} Not again today. {own(100 + number, 6)}\nLearn more"
        for number in range(12)
    ]
    repeated(tmp_path, texts, cuts=2)
    hashes = read_hashes(str(tmp_path / "all.parquet"))
    stripped = strip_repeated(texts, hashes, **RULES, most=0.5).texts
    assert all("Not again today." in text for text in stripped)
    assert not any("Learn more" in text for text in stripped)


def test_short_sentences_go_where_texts_begin_and_end_with_them(tmp_path: Path) -> None:
    texts = [
        f"MOSCOW, March {number}. {own(number, 6)} Source: agencies. {own(50 + number, 6)} "
        "Source: agencies"
        for number in range(12)
    ]
    repeated(tmp_path, texts, cuts=2)
    hashes = read_hashes(str(tmp_path / "all.parquet"))
    stripped = strip_repeated(texts, hashes, **RULES, most=0.5).texts
    assert not any("MOSCOW" in text for text in stripped)
    assert {text.count("Source: agencies") for text in stripped} == {1}


def test_copies_of_a_whole_text_are_left_to_the_search_for_duplicates(tmp_path: Path) -> None:
    texts = [own(1)] * 15 + [own(number) for number in range(2, 9)]
    repeated(tmp_path, texts, cuts=3)
    hashes = read_hashes(str(tmp_path / "all.parquet"))
    assert strip_repeated(texts, hashes, **RULES, most=0.5) == (texts, 0, 0)


def test_spans_can_be_off_and_documents_sampled(tmp_path: Path) -> None:
    texts = news()
    no_spans = repeated(tmp_path / "lines", texts, 2, span_words=None)
    assert 0 < len(no_spans) < len(repeated(tmp_path / "spans", texts, 2))
    assert repeated(tmp_path / "none", texts, 2, share=0.0) == []
    some = [repeated(tmp_path / f"s{cuts}", texts, cuts, least=5, share=0.5) for cuts in (1, 3)]
    assert some[0] == some[1] != []


@pytest.mark.parametrize(("documents", "least"), [(300, 10), (10_000, 10), (33_277, 34)])
def test_the_threshold_grows_with_the_corpus(documents: int, least: int) -> None:
    assert least_documents(documents, 10, 0.001) == least


def test_counts_are_exact(tmp_path: Path) -> None:
    texts = news(12)
    for least in (11, 12, 13):
        found = repeated(tmp_path / str(least), texts, 2, least=least, span_words=None)
        counts = Counter(["MOSCOW", CALL] * 12)
        assert bool(found) == (min(counts.values()) >= least)


def test_what_is_left_of_a_sentence_goes_if_it_is_short(tmp_path: Path) -> None:
    names = [f"{first}{last}" for first in ("anna", "berta", "carla") for last in "bcdfg"]
    weekly = "for the well known and widely read weekly paper of the capital city"
    texts = [
        f"{own(number)} Written by {name} {weekly}. {own(50 + number)}"
        for number, name in enumerate(names)
    ]
    repeated(tmp_path, texts, cuts=2)
    hashes = read_hashes(str(tmp_path / "all.parquet"))
    stripped = strip_repeated(texts, hashes, **RULES, most=0.5).texts
    assert not any(name in text for name, text in zip(names, stripped, strict=True))
