"""Cleaning: repairs where they are safe, a reason for every drop, the fast path as the slow."""

from __future__ import annotations

from pathlib import Path

import ftfy
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.pipeline.clean import (
    Dropped,
    clean_part,
    clean_text,
    judge,
    normal_form,
    text_hash,
)
from phrasemem.pipeline.config import Cleaning
from phrasemem.pipeline.documents import write_chunk
from phrasemem.pipeline.language import is_language
from phrasemem.pipeline.paragraphs import without_foreign
from phrasemem.pipeline.read import Document
from phrasemem.pipeline.repair import repair_lost_quotes
from phrasemem.pipeline.soundness import surely_sound

ENGLISH = "The quick brown fox jumps over the lazy dog, and then it goes home to sleep. " * 2
GERMAN = "Der schnelle braune Fuchs springt über den faulen Hund und geht dann nach Hause. " * 2


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ('the Senate voted on her"?highly', 'the Senate voted on her" highly'),
        ('safer areas,"?he told', 'safer areas," he told'),
        ('of the party."?Do you', 'of the party." Do you'),
        ('so ugly!"?Nicole', 'so ugly!" Nicole'),
        ('serious issues."?"the government', 'serious issues." "the government'),
        ('and more "?sent right', "and more \N{EN DASH} sent right"),
        ('the "?and', "the \N{EN DASH} and"),
        ('at this point-"?seven years', "at this point- seven years"),
        ('I can"t say they"ll or we"ve, Gov"t', "I can't say they'll or we've, Gov't"),
        ('O"\ufffdNeill said "\ufffdUnder', "O'Neill said \"Under"),
        # What neighbours do not settle, and sound text, stay.
        ('just like the "?0s', 'just like the "?0s'),
        ('Did he say "yes"? He did', 'Did he say "yes"? He did'),
        ('a 12" disc and "terms"', 'a 12" disc and "terms"'),
        ("no quotes? None.", "no quotes? None."),
    ],
)
def test_lost_quotes_come_back_only_where_it_is_safe(broken: str, whole: str) -> None:
    assert repair_lost_quotes(broken) == whole


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("schÃ¶n und grÃ¼n", "schön und grün"),
        ("a\u00a0b\u2003c\td", "a b c d"),
        ("one\r\ntwo\rthree\n\n\n four ", "one\ntwo\nthree\nfour"),
        ("zero\u200bwidth\ufeff soft\u00adhyphen", "zerowidth softhyphen"),
        ("fish &amp; chips", "fish & chips"),
        ("curly \u2018quotes\u2019 stay", "curly \u2018quotes\u2019 stay"),
        ("bell\x07 and \x1b[31mred", "bell and red"),
    ],
)
def test_text_becomes_regular(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


@given(st.text(st.characters(max_codepoint=0x2FF), max_size=60))
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    once = clean_text(text)
    assert "\r" not in once
    assert "  " not in once
    assert "\n\n" not in once
    if "&" not in once and once.isascii():
        assert clean_text(once) == once


@given(st.text(st.characters(max_codepoint=0x7F), max_size=80))
def test_skipping_ftfy_is_equal_to_ftfy(text: str) -> None:
    config = ftfy.TextFixerConfig(uncurl_quotes=False, explain=False)
    assert clean_text(text) == clean_text(ftfy.fix_text(text, config))


# What ftfy mends and what it leaves, in bits that chance joins.
_BROKEN = ["\u00e2\u20ac\u2122", "\u00c3\u00a9", "\u00c2 ", "\u00d0\u00b6", "&amp;", "\x85", "\x96"]
_ODD = ["\ufb01", "\uff21", "e\u0301", "\u200b", "\ufffd"]
_SOUND = ["caf\u00e9", "\n", "\u201cquote\u201d", "R&B", "\u2014", "a ", "Z."]
_BITS = st.sampled_from(_BROKEN) | st.sampled_from(_ODD) | st.sampled_from(_SOUND)


@settings(max_examples=300, deadline=None)
@given(st.lists(_BITS | st.text(max_size=3), max_size=8).map("".join))
def test_what_is_surely_sound_ftfy_leaves_alone(text: str) -> None:
    if surely_sound(text):
        config = ftfy.TextFixerConfig(uncurl_quotes=False, explain=False)
        assert clean_text(ftfy.fix_text(text, config)) == clean_text(text)


def test_most_text_beyond_ascii_is_surely_sound() -> None:
    assert surely_sound(
        "The \u201cna\u00efve\u201d caf\u00e9 \u2014 it\u2019s open, R & B on 5\u20136 May"
    )
    assert not surely_sound("it\u00e2\u20ac\u2122s")
    assert not surely_sound("One.\n\u00c2 Two")


def test_foreign_paragraphs_go_and_short_ones_stay() -> None:
    english, german = ENGLISH * 2, GERMAN * 2
    mixed = f"{english}\n{german}\n{GERMAN[:80]}\n{english}"
    assert without_foreign(mixed, "en", 60, 300) == (
        f"{english}\n{GERMAN[:80]}\n{english}",
        1,
    )
    assert without_foreign(german, "en", 60, 300) == (german, 0)
    assert without_foreign(f"{ENGLISH}\n{GERMAN}", "en", 60, 300)[1] == 0


@pytest.mark.parametrize(
    ("text", "language", "verdict"),
    [
        (ENGLISH, "en", None),
        (GERMAN, "en", Dropped("other-language")),
        (GERMAN, "de", None),
        (GERMAN, None, None),
        ("", "en", Dropped("empty")),
        ("short", "en", Dropped("too-short")),
    ],
)
def test_every_drop_has_its_reason(
    text: str, language: str | None, verdict: Dropped | None
) -> None:
    assert judge(text, language, min_chars=100, language_margin=60) == verdict


def test_a_term_laden_text_in_english_is_english() -> None:
    latin = "Theileria parva piroplasm infection of mouse erythrocytes was detected, following "
    latin += "intraperitoneal inoculation of mice with irradiated cultures of T. parva."
    assert is_language(latin, "en", 60)


def test_the_normal_form_folds_case_width_and_space() -> None:
    assert normal_form("\uff34he  \ufb01rst\nSTRASSE") == "the first strasse"
    assert text_hash("The  first") == text_hash("the FIRST")
    assert text_hash("the first") != text_hash("the second")
    assert len(text_hash("")) == 32


def test_a_part_counts_what_it_drops(tmp_path: Path) -> None:
    texts = [ENGLISH, "short", GERMAN, "", ENGLISH.replace("fox", 'fox"?that')]
    documents = [Document(str(i), "c", "web", f" T{i} ", text) for i, text in enumerate(texts)]
    write_chunk(tmp_path / "in.parquet", documents)
    report = clean_part(
        tmp_path,
        "out",
        source=str(tmp_path / "in.parquet"),
        cleaning=Cleaning().model_dump(),
        repairs=["lost-quotes"],
        language="en",
        kind="encyclopedia",
        repeated=None,
        evaluation=None,
    )
    assert report["documents"] == 2
    assert report["dropped"] == {"empty": 1, "other-language": 1, "too-short": 1}
    assert report["removed"] == {}
    kept = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["id"] for row in kept] == ["0", "4"]
    assert [row["title_key"] for row in kept] == ["t0", "t4"]
    assert kept[1]["text"].startswith('The quick brown fox" that jumps')
    assert report["chars"] == sum(len(row["text"]) for row in kept)
