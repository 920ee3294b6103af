"""A catalogue's phrases as keys of another tokenizer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phrasemem.pipeline.boundaries import ANCHOR
from phrasemem.pipeline.tokens import token_ids

TOO_LONG = "longer than n_max"
SINGLE_TOKEN = "a single token"
NOT_ITS_TEXT = "tokens do not decode to the text"
NO_PHRASE = "the row of a single token or of the root"

_BATCH = 8192
_SUMS = ("count", "documents")


@dataclass(frozen=True)
class Rekeyed:
    """Phrases under their new keys.

    Attributes
    ----------
    table : table
        A catalogue ordered by n and tokens.
    rows : (k,) int64
        For each phrase the row of the old catalogue whose score and vector it has.
    joined : int
        Rows that fell together with one of a higher score.
    dropped : Counter
        Rows that have no key any more, by reason.
    """

    table: pa.Table
    rows: NDArray[np.int64]
    joined: int
    dropped: Counter[str]


def rekey(table: pa.Table, tokenizer: Any, n_max: int) -> Rekeyed:
    """Give every phrase of a catalogue the key that its text has in running text.

    Rows whose texts get one key are joined: counts are summed, of scores the highest stays. The
    documents are summed too, which is an upper bound: a document may hold both.

    Parameters
    ----------
    table : table
        A catalogue.
    tokenizer : fast tokenizer
    n_max : int
        Longest key.
    """
    texts: list[str] = table["text"].to_pylist()
    old_lengths = table["n"].to_numpy()
    lengths = np.zeros(len(texts), np.int64)
    tokens = np.zeros((len(texts), n_max), np.uint32)
    dropped: Counter[str] = Counter()
    for start in range(0, len(texts), _BATCH):
        keys = running_keys(texts[start : start + _BATCH], tokenizer)
        for row, key in enumerate(keys, start):
            if reason := _misfit(int(old_lengths[row]), len(key), n_max):
                dropped[reason] += 1
            else:
                lengths[row] = len(key)
                tokens[row, : len(key)] = key
    kept = np.flatnonzero(lengths)
    return _joined(table, kept, lengths[kept], tokens[kept], dropped)


def _misfit(old_length: int, length: int, n_max: int) -> str | None:
    """Say why a row has no new key, if it has none."""
    if old_length < 2:
        return NO_PHRASE
    if length == 0:
        return NOT_ITS_TEXT
    if length == 1:
        return SINGLE_TOKEN
    return TOO_LONG if length > n_max else None


def running_keys(texts: list[str], tokenizer: Any) -> list[list[int]]:
    """Return the tokens that texts have after another word and a space.

    Empty where a tokenizer joins the text with the word before it, or changes it, so that its
    tokens do not give it back.
    """
    backend = tokenizer.backend_tokenizer
    anchor = backend.encode(ANCHOR, add_special_tokens=False).ids
    # Some tokenizers add a space at the start of a text by themselves: behind a word none does.
    encoded = [ids.tolist() for ids in token_ids([f"{ANCHOR} {t}" for t in texts], backend)]
    keys = [ids[len(anchor) :] for ids in encoded]
    decoded = backend.decode_batch(keys, skip_special_tokens=False)
    return [
        key if ids[: len(anchor)] == anchor and back.strip() == text else []
        for key, ids, back, text in zip(keys, encoded, decoded, texts, strict=True)
    ]


def _joined(
    table: pa.Table,
    kept: NDArray[np.int64],
    lengths: NDArray[np.int64],
    tokens: NDArray[np.uint32],
    dropped: Counter[str],
) -> Rekeyed:
    """Sum the rows of each key, the row of the highest score first."""
    scores = table["score"].to_numpy()[kept]
    order = np.lexsort((kept, -scores, *tokens.T[::-1], lengths))
    rows, lengths, tokens = kept[order], lengths[order], tokens[order]
    new = np.ones(len(rows), np.bool_)
    new[1:] = (lengths[1:] != lengths[:-1]) | (tokens[1:] != tokens[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    best = table.take(pa.array(rows[first]))
    flat = tokens[first][np.arange(tokens.shape[1]) < lengths[first][:, None]]
    offsets = np.concatenate([[0], np.cumsum(lengths[first])]).astype(np.int32)
    columns = {
        "row": pa.array(np.arange(len(first), dtype=np.uint32)),
        "tokens": pa.ListArray.from_arrays(offsets, flat),
        "n": pa.array(lengths[first].astype(np.uint8)),
    }
    for name in table.column_names:
        if name.partition("_")[0] in _SUMS:
            values = table[name].to_numpy()[rows].astype(np.int64)
            sums = np.add.reduceat(values, first) if len(first) else values
            columns[name] = pa.array(sums).cast(table.schema.field(name).type)
    for name, column in columns.items():
        best = best.set_column(best.schema.get_field_index(name), name, column)
    return Rekeyed(best, rows[first], len(rows) - len(first), dropped)
