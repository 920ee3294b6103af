"""Stage ``clean``: repair, normalise, mask, and drop what is no document to be mined.

In this order: what repeats over the corpus goes, encoding is repaired, foreign paragraphs go,
personal data is masked; then length, language, quality and evaluation text decide about the whole.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ftfy
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.pipeline.evaluation import contaminated
from phrasemem.pipeline.language import is_language
from phrasemem.pipeline.near_duplicates import (
    SIGNATURE_BYTES,
    as_binary,
    bands_of,
    signatures_of,
)
from phrasemem.pipeline.paragraphs import without_foreign
from phrasemem.pipeline.personal import mask_personal
from phrasemem.pipeline.quality import measure, verdicts
from phrasemem.pipeline.repair import REPAIRS
from phrasemem.pipeline.repeats import read_hashes, strip_repeated
from phrasemem.pipeline.soundness import surely_sound
from phrasemem.pipeline.stage import Report, appears
from phrasemem.pipeline.words import Words, split_words

CLEAN_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("text_hash", pa.string()),
        ("title_key", pa.string()),
        # Of the search for near duplicates; null where it is off.
        ("signature", pa.binary(SIGNATURE_BYTES)),
        ("bands", pa.list_(pa.uint64())),
    ]
)
# Straight quotes stay straight and curly ones curly: what a user types must match.
_FTFY = ftfy.TextFixerConfig(uncurl_quotes=False, explain=False)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]")
_LINE_END = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
_OTHER_SPACES = re.compile(r"[^\S\n ]")
_IRREGULAR = re.compile(rf"{_INVISIBLE.pattern}|{_OTHER_SPACES.pattern}")
_SPACES = re.compile("  +")
_LINES = re.compile(r"\n[ \n]+")


@dataclass(frozen=True)
class Dropped:
    """Why a document is not kept."""

    reason: str


@dataclass
class Draft:
    """A document on its way: where it is in its chunk, and its text so far."""

    row: int
    text: str


def clean_part(
    folder: Path,
    key: str,
    *,
    source: str,
    cleaning: Mapping[str, Any],
    repairs: Sequence[str],
    language: str | None,
    kind: str,
    repeated: str | None,
    evaluation: str | None,
) -> Report:
    """Clean one chunk.

    Parameters
    ----------
    cleaning : mapping
        ``config.Cleaning`` as plain data.
    repeated, evaluation : str, optional
        What the stages ``repeated`` and ``evaluation`` wrote.

    Returns
    -------
    dict
        ``documents`` (kept), ``chars``, ``dropped`` (documents by reason), ``removed`` (what went
        out of documents, by reason).
    """
    table = pq.read_table(source)
    dropped: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    fixes = [REPAIRS[name] for name in repairs]
    texts = _without_repeated(table["text"].to_pylist(), repeated, cleaning, removed)
    drafts = []
    for row, text in enumerate(texts):
        cleaned = _clean_document(text, fixes, language, cleaning, removed)
        verdict = judge(cleaned, language, cleaning["min_chars"], cleaning["language_margin"])
        if verdict is None:
            drafts.append(Draft(row, cleaned))
        else:
            dropped[verdict.reason] += 1
    drafts, words = _judged_together(drafts, cleaning, language, kind, evaluation, dropped)
    titles = [clean_text(title, fixes) for title in table["title"].to_pylist()]
    identities = table["id"].to_pylist()
    rows = [_row(identities[draft.row], titles[draft.row], draft.text) for draft in drafts]
    with appears(folder / f"{key}.parquet") as temporary:
        _write(temporary, rows, words, cleaning["near_duplicates"]["threshold"])
    return {
        "documents": len(rows),
        "chars": sum(len(row[2]) for row in rows),
        "dropped": dict(sorted(dropped.items())),
        "removed": {reason: number for reason, number in sorted(removed.items()) if number},
    }


def _without_repeated(
    texts: list[str], repeated: str | None, cleaning: Mapping[str, Any], removed: Counter[str]
) -> list[str]:
    if repeated is None:
        return texts
    settings = cleaning["boilerplate"]
    stripped = strip_repeated(
        texts,
        read_hashes(repeated),
        span_words=settings["span_words"],
        sentence_words=settings["sentence_words"],
        most=settings["max_removed"],
    )
    removed["boilerplate"] += stripped.spans
    removed["boilerplate-chars"] += stripped.chars
    return stripped.texts


def _clean_document(
    text: str,
    fixes: Sequence[Callable[[str], str]],
    language: str | None,
    cleaning: Mapping[str, Any],
    removed: Counter[str],
) -> str:
    text = clean_text(text, fixes)
    if language is not None and cleaning["paragraph_chars"] is not None:
        text, foreign = without_foreign(
            text, language, cleaning["language_margin"], cleaning["paragraph_chars"]
        )
        removed["foreign-paragraph"] += foreign
    masked = mask_personal(text, cleaning["mask"], cleaning["phone_regions"], removed)
    # The mask brings line ends of its own, next to spaces and others.
    return masked if masked is text else clean_text(masked)


def _judged_together(
    drafts: list[Draft],
    cleaning: Mapping[str, Any],
    language: str | None,
    kind: str,
    evaluation: str | None,
    dropped: Counter[str],
) -> tuple[list[Draft], Words | None]:
    """Drop what the rules of quality and the evaluation files rule out.

    The words of what stays are returned where near duplicates are looked for.
    """
    rules = kind in cleaning["quality"]["kinds"]
    near = cleaning["near_duplicates"]["threshold"] is not None
    if not (rules or near or evaluation):
        return drafts, None
    texts = [draft.text for draft in drafts]
    words = split_words(texts)
    reasons: list[str | None] = [None] * len(drafts)
    if rules:
        reasons = verdicts(measure(texts, words), cleaning["quality"], language == "en")
    if evaluation is not None:
        found = contaminated(words, read_hashes(evaluation), cleaning["ngram"])
        reasons = [
            "contaminated" if hit else reason for reason, hit in zip(reasons, found, strict=True)
        ]
    dropped.update(reason for reason in reasons if reason is not None)
    kept = [draft for draft, reason in zip(drafts, reasons, strict=True) if reason is None]
    if near and len(kept) < len(drafts):
        words = split_words([draft.text for draft in kept])
    return kept, words if near else None


def _row(identity: str, title: str, text: str) -> tuple[str, str, str, str, str]:
    return identity, title, text, text_hash(text), normal_form(title)


def _write(
    path: Path, rows: Sequence[tuple[str, ...]], words: Words | None, threshold: float | None
) -> None:
    columns = zip(*rows, strict=True) if rows else [()] * 5
    arrays = [pa.array(column, pa.string()) for column in columns]
    if words is None or threshold is None:
        arrays += [pa.nulls(len(rows), field.type) for field in list(CLEAN_SCHEMA)[5:]]
    else:
        signatures = signatures_of(words)
        arrays.append(as_binary(signatures))
        arrays.append(pa.array(list(bands_of(signatures, threshold)), pa.list_(pa.uint64())))
    # Signatures are as good as random: compressing them costs time and saves nothing.
    compression = dict.fromkeys(CLEAN_SCHEMA.names[:5], "zstd")
    pq.write_table(pa.table(arrays, schema=CLEAN_SCHEMA), path, compression=compression)


def clean_text(text: str, repairs: Sequence[Callable[[str], str]] = ()) -> str:
    """Repair the encoding, drop invisible marks, and make white space regular.

    A line end stays one line end; every other run of white space becomes one space.
    """
    for repair in repairs:
        text = repair(text)
    if not surely_sound(text):
        text = ftfy.fix_text(text, _FTFY)
    if _is_irregular(text):
        text = _INVISIBLE.sub("", _LINE_END.sub("\n", text))
        text = _OTHER_SPACES.sub(" ", text)
    if "  " in text:
        text = _SPACES.sub(" ", text)
    if "\n" in text:
        text = _LINES.sub("\n", text.replace(" \n", "\n"))
    return text.strip()


def _is_irregular(text: str) -> bool:
    """Whether there is white space but spaces and line ends, or an invisible mark."""
    if text.isascii():
        # The other control characters are ftfy's to remove, and gone.
        return any(mark in text for mark in "\t\r\f\v")
    return _IRREGULAR.search(text) is not None


def judge(text: str, language: str | None, min_chars: int, language_margin: int) -> Dropped | None:
    """Say why a cleaned text is dropped, or None if it is kept."""
    if not text:
        return Dropped("empty")
    if len(text) < min_chars:
        return Dropped("too-short")
    if language is not None and not is_language(text, language, language_margin):
        return Dropped("other-language")
    return None


def normal_form(text: str) -> str:
    """Return what counts as the same text: compatibility forms, case and white space folded."""
    folded = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(folded.casefold().split())


def text_hash(text: str) -> str:
    """Return 32 hex digits of BLAKE2b over the normal form of a text."""
    return hashlib.blake2b(normal_form(text).encode(), digest_size=16).hexdigest()
