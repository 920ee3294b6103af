"""From a record with fields to a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import Document, LeftOut


def from_record(record: Any, corpus: Corpus, default_id: str, where: str) -> Document | LeftOut:
    """Make a document of one record, by the corpus' field names."""
    if not isinstance(record, Mapping):
        return LeftOut("not-an-object", where, detail=type(record).__name__)
    text = record.get(corpus.text_field)
    if text is None:
        return LeftOut("no-text-field", where, detail=f"no field {corpus.text_field!r}")
    if not isinstance(text, str):
        return LeftOut("text-not-a-string", where, detail=type(text).__name__)
    title = record.get(corpus.title_field) if corpus.title_field else ""
    key = record.get(corpus.id_field) if corpus.id_field else None
    return Document(
        id=str(key) if key not in (None, "") else default_id,
        corpus=corpus.name,
        kind=corpus.kind,
        title=title if isinstance(title, str) else "",
        text=text,
    )
