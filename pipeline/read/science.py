"""Records of scientific papers as JSON: S2ORC and the metadata of arXiv."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import Document, LeftOut


def from_arxiv(record: Any, corpus: Corpus, default_id: str, where: str) -> Document | LeftOut:
    """Make a document of title and abstract. LaTeX is left alone, line breaks are joined."""
    if not isinstance(record, Mapping):
        return LeftOut("not-an-object", where, detail=type(record).__name__)
    abstract, title = _flat(record.get("abstract")), _flat(record.get("title"))
    if not abstract:
        return LeftOut("no-abstract", where, bad=False)
    return _document(record.get("id"), title, [title, abstract], corpus, default_id)


def from_s2orc(record: Any, corpus: Corpus, default_id: str, where: str) -> Document | LeftOut:
    """Make a document of title, abstract and body.

    Two layouts: lists of paragraphs (``abstract`` and ``body_text``, also below ``pdf_parse``), and
    one text with the places of its parts (``content`` or ``body``). References are left out.
    """
    if not isinstance(record, Mapping):
        return LeftOut("not-an-object", where, detail=type(record).__name__)
    annotated = record.get("content") or record.get("body")
    try:
        if isinstance(annotated, Mapping):
            title, parts = _annotated(annotated)
            title = title or _flat(record.get("title"))
        else:
            title, parts = _paragraphs(record)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        return LeftOut("bad-annotations", where, detail=f"{type(error).__name__}: {error}")
    if not any(parts):
        return LeftOut("no-text", where, bad=False)
    key = record.get("corpusid") or record.get("paper_id") or record.get("corpus_id")
    return _document(key, title, [title, *parts], corpus, default_id)


def _paragraphs(record: Mapping[str, Any]) -> tuple[str, list[str]]:
    parsed = record.get("pdf_parse") or record.get("latex_parse") or {}
    metadata = record.get("metadata") or {}
    title = _flat(record.get("title") or metadata.get("title"))
    lists = [record.get(key) or parsed.get(key) or [] for key in ("abstract", "body_text")]
    if isinstance(lists[0], str):
        lists[0] = [{"text": lists[0]}]
    return title, [_flat(part["text"]) for parts in lists for part in parts]


def _annotated(content: Mapping[str, Any]) -> tuple[str, list[str]]:
    text = content.get("text")
    if text is None:
        return "", []
    places = content.get("annotations") or {}
    title = " ".join(_spans(text, places.get("title")))
    parts = [*_spans(text, places.get("abstract")), *_spans(text, places.get("paragraph"))]
    return title, parts or [_flat(line) for line in text.split("\n")]


def _spans(text: str, places: str | None) -> list[str]:
    """Return the parts of a text that an annotation names; annotations are JSON in JSON."""
    found = json.loads(places) if places else []
    return [_flat(text[int(place["start"]) : int(place["end"])]) for place in found]


def _document(
    key: Any, title: str, parts: Iterable[str], corpus: Corpus, default_id: str
) -> Document:
    return Document(
        id=str(key) if key not in (None, "") else default_id,
        corpus=corpus.name,
        kind=corpus.kind,
        title=title,
        text="\n".join(part for part in parts if part),
    )


def _flat(text: Any) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""
