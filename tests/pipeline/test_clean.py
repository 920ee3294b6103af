"""Cleaning: repairs where they are safe, a reason for every drop, the fast path as the slow."""

from __future__ import annotations

from pathlib import Path

import ftfy
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrasemem.pipeline.clean import (
    Dropped,
    clean_part,
    clean_text,
    is_language,
    judge,
    normal_form,
    text_hash,
)
from phrasemem.pipeline.documents import write_chunk
from phrasemem.pipeline.read import Document
from phrasemem.pipeline.repair import repair_lost_quotes

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
        repairs=["lost-quotes"],
        language="en",
        min_chars=100,
        language_margin=60,
    )
    assert report["documents"] == 2
    assert report["dropped"] == {"empty": 1, "other-language": 1, "too-short": 1}
    kept = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["id"] for row in kept] == ["0", "4"]
    assert [row["title_key"] for row in kept] == ["t0", "t4"]
    assert kept[1]["text"].startswith('The quick brown fox" that jumps')
    assert report["chars"] == sum(len(row["text"]) for row in kept)
