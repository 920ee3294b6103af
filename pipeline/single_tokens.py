"""Rows for single tokens and for the root: what payloads of continuations fall back to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phrasemem.pipeline.catalogue_table import ENTROPIES
from phrasemem.pipeline.unigrams import Unigrams


def single_rows(
    unigrams: Unigrams,
    corpus_documents: Sequence[int],
    n_max: int,
    *,
    shortest: int,
    min_count: int,
    min_documents: int,
) -> pa.Table:
    """Return the rows of the catalogue that are no phrases: the root first, then tokens, rising.

    A token has a row if it passes the limits, be it a function word or a mark; the root, if
    asked for, always has one: its counts are all tokens, its documents all documents. They are
    not scored and take nothing of the budget of phrases.

    Parameters
    ----------
    unigrams : Unigrams
    corpus_documents : sequence of int
        Mined documents of each corpus.
    n_max : int
    shortest : int
        2 for no rows, 1 for tokens, 0 for tokens and the root.
    min_count, min_documents : int

    Returns
    -------
    table
        n, t0.., count, documents, count_0.., documents_0.., npmi, llr, cvalue, score,
        and entropies, which are not known.
    """
    counts, documents = unigrams.counts.astype(np.int64), unigrams.documents.astype(np.int64)
    kept = (counts.sum(axis=1) >= min_count) & (documents.sum(axis=1) >= min_documents)
    tokens, counts, documents = unigrams.tokens[kept], counts[kept], documents[kept]
    lengths = np.ones(len(tokens), np.uint8)
    if shortest > 1:
        lengths, tokens, counts, documents = lengths[:0], tokens[:0], counts[:0], documents[:0]
    if shortest == 0:
        lengths = np.concatenate([np.zeros(1, np.uint8), lengths])
        tokens = np.concatenate([np.zeros(1, np.uint32), tokens])
        counts = np.concatenate([[unigrams.corpus_tokens()], counts])
        documents = np.concatenate([[list(corpus_documents)], documents])
    return _table(lengths, tokens, counts, documents, n_max)


def _table(
    lengths: NDArray[np.uint8],
    tokens: NDArray[np.uint32],
    counts: NDArray[np.int64],
    documents: NDArray[np.int64],
    n_max: int,
) -> pa.Table:
    none = np.zeros(len(lengths))
    corpora = range(counts.shape[1])
    return pa.table(
        {
            "n": lengths,
            "t0": tokens,
            **{f"t{place}": np.zeros(len(lengths), np.uint32) for place in range(1, n_max)},
            "count": counts.sum(axis=1),
            "documents": documents.sum(axis=1),
            **{f"count_{corpus}": counts[:, corpus] for corpus in corpora},
            **{f"documents_{corpus}": documents[:, corpus] for corpus in corpora},
            **dict.fromkeys(("npmi", "llr", "cvalue", "score"), none),
            **dict.fromkeys(ENTROPIES, pa.nulls(len(lengths), pa.float32())),
        }
    )
