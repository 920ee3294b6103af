"""What the tests of the readers share: one corpus, one way to read a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read import Document, LeftOut, Source, format_of, read_file
from phrasemem.pipeline.read.spans import spans_of

ODD_FILES = Path(__file__).parents[3].parent / "shared" / "odd-files"


class Found(NamedTuple):
    """Documents, and (reason, where) of what was left out."""

    documents: list[Document]
    left_out: list[tuple[str, str]]
    bad: list[str]

    @property
    def texts(self) -> list[str]:
        return [document.text for document in self.documents]

    @property
    def ids(self) -> list[str]:
        return [document.id for document in self.documents]


def make_corpus(**changes: Any) -> Corpus:
    fields = {"name": "c", "kind": "web", "source": "x", "licence": "unknown"}
    return Corpus.model_validate({**fields, **changes})


def read_source(
    path: Path | str,
    format: Any = "auto",
    *,
    split: int | None = None,
    limit: int = 1 << 26,
    **changes: Any,
) -> Found:
    """Read a file, in spans of ``split`` bytes if given."""
    whole = Source(str(path), str(path).rpartition("/")[2], None, limit)
    kind = format_of(whole, format)
    spans = [None] if split is None else spans_of(whole, kind, split)
    settings = make_corpus(**changes)
    sources = [Source(whole.location, whole.name, span, limit) for span in spans]
    records = [record for source in sources for record in read_file(source, kind, settings)]
    documents = [record for record in records if isinstance(record, Document)]
    left_out = [record for record in records if isinstance(record, LeftOut)]
    assert len(documents) + len(left_out) == len(records)
    pairs = [(record.reason, record.where) for record in left_out]
    return Found(documents, pairs, [record.reason for record in left_out if record.bad])


@pytest.fixture(scope="session")
def corpus() -> Callable[..., Corpus]:
    return make_corpus


@pytest.fixture(scope="session")
def read() -> Callable[..., Found]:
    return read_source


@pytest.fixture(scope="session")
def odd_file() -> Callable[[str], Path]:
    def find(name: str) -> Path:
        path = ODD_FILES / name
        if not path.exists():
            pytest.skip("the folder of odd files is not beside the checkout")
        return path

    return find
