"""Held-out documents and other text, cut into windows and batches of tokens."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from phrasemem.held_out import HELD_OUT_FILE, held_out_documents
from phrasemem.memfmt.errors import PhraseMemError

TEXT_KIND = "text"
PAD = 0


class TextError(PhraseMemError):
    """Text that is missing, empty or not in the form that its name promises."""


@dataclass(frozen=True)
class Document:
    """A text of one kind (web, encyclopedia, science, or ``text`` where it is not said)."""

    kind: str
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of one document; nothing before them is seen.

    Parameters
    ----------
    tokens : (t,) int64
    kind : str
    document : int
        Index of the document.
    """

    tokens: NDArray[np.int64]
    kind: str
    document: int


@dataclass(frozen=True)
class Batch:
    """Right-padded windows.

    Parameters
    ----------
    ids, mask : (B, T) int64
    windows : tuple of Window
    """

    ids: torch.Tensor
    mask: torch.Tensor
    windows: tuple[Window, ...]


def read_held_out(memory: Path, split: str) -> list[Document]:
    """Return a memory's held-out documents of a split, ``calibration`` or ``test``.

    Raises
    ------
    TextError
        If the memory was published without them, or has none.
    """
    path = memory / HELD_OUT_FILE
    if not path.is_file():
        raise TextError("this memory holds no held-out text", where=memory, hint="give --text")
    records = held_out_documents(memory)
    found = [Document(r["kind"], r["text"]) for r in records if r["split"] == split]
    if not found:
        raise TextError(f"this memory holds no {split} documents", where=path, hint="give --text")
    return _ordered(found)


def read_text(path: Path) -> list[Document]:
    """Read ``.jsonl`` (a field ``text``, perhaps ``kind``), or any other file as one document.

    Raises
    ------
    TextError
        With the line, if a record has no text.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TextError(f"not UTF-8: {error.reason}", where=path) from error
    except FileNotFoundError as error:
        raise TextError("there is no such text file", found=path) from error
    if path.suffix != ".jsonl":
        documents = [Document(TEXT_KIND, content)] if content.strip() else []
    else:
        lines = enumerate(content.splitlines(), start=1)
        documents = [_from_line(line, f"{path}:{n}") for n, line in lines if line.strip()]
    if not documents:
        raise TextError("the file holds no text", where=path)
    return _ordered(documents)


def cut(
    documents: Sequence[Document], tokenizer: Any, *, width: int, budget: int | None = None
) -> list[Window]:
    """Tokenize documents and cut them into windows.

    Parameters
    ----------
    documents : sequence of Document
    tokenizer : fast tokenizer
    width : int
        Longest window.
    budget : int, optional
        Tokens of each kind; the window that reaches it is cut short. All if not given.
    """
    windows = []
    spent: Counter[str] = Counter()
    for number, document in enumerate(documents):
        if budget is not None and spent[document.kind] >= budget:
            continue
        ids = np.array(tokenizer(document.text, verbose=False).input_ids, dtype=np.int64)
        if budget is not None:
            ids = ids[: budget - spent[document.kind]]
        spent[document.kind] += len(ids)
        for begin in range(0, len(ids), width):
            tokens = ids[begin : begin + width]
            if len(tokens) > 1:  # a single token predicts nothing
                windows.append(Window(tokens, document.kind, number))
    return windows


def batches(windows: Iterable[Window], tokens: int) -> Iterator[Batch]:
    """Group windows of like length into batches of about so many tokens."""
    group: list[Window] = []
    for window in sorted(windows, key=lambda w: -len(w.tokens)):
        if group and len(group[0].tokens) * (len(group) + 1) > tokens:
            yield _batch(group)
            group = []
        group.append(window)
    if group:
        yield _batch(group)


def _batch(group: list[Window]) -> Batch:
    shape = len(group), len(group[0].tokens)
    ids = torch.full(shape, PAD)
    mask = torch.zeros(shape, dtype=torch.int64)
    for i, window in enumerate(group):
        ids[i, : len(window.tokens)] = torch.from_numpy(window.tokens)
        mask[i, : len(window.tokens)] = 1
    return Batch(ids, mask, tuple(group))


def _ordered(documents: list[Document]) -> list[Document]:
    """Drop copies and order by content, so that a budget takes the same documents always."""
    return [d for _, d in sorted({d.digest: d for d in documents}.items())]


def _from_line(line: str, where: str) -> Document:
    try:
        record = json.loads(line)
        return Document(str(record.get("kind", TEXT_KIND)), record["text"])
    except (ValueError, KeyError, AttributeError) as error:
        raise TextError("not a record with a text", where=where) from error
