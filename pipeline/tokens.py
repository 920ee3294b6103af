"""Stage ``tokenize``: the mined documents as token ids with boundary flags; the held-out aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phrasemem import backbone
from phrasemem.pipeline.boundaries import Vocabulary, flags_of, token_texts, vocabulary_of
from phrasemem.pipeline.select import CALIBRATION, KEEP, TEST, decisions_of
from phrasemem.pipeline.stage import Report, appears

_SCHEMA = pa.schema([("tokens", pa.large_list(pa.uint32())), ("flags", pa.large_list(pa.uint8()))])
_SPLITS = {CALIBRATION: "calibration", TEST: "test"}
_BATCH = 256


class TokenRun(NamedTuple):
    """Documents as one run: tokens (n,) uint32, flags (n,) uint8, ends (documents,) int64."""

    tokens: NDArray[np.uint32]
    flags: NDArray[np.uint8]
    ends: NDArray[np.int64]


def tokenize_part(
    folder: Path,
    key: str,
    *,
    source: str,
    decisions: str,
    chunk: int,
    corpus: str,
    kind: str,
    model: str,
) -> Report:
    """Tokenize one chunk.

    Returns
    -------
    dict
        ``documents``, ``tokens``, ``held_out`` (documents), ``tokenizer`` (fingerprint),
        ``vocab_size``.
    """
    from phrasemem.pipeline.fast_tokens import fast_token_ids

    table = pq.read_table(source, columns=["id", "text"])
    verdicts = decisions_of(Path(decisions), chunk)
    texts: list[str] = table["text"].to_pylist()
    held_out = [
        {"id": identity, "corpus": corpus, "kind": kind, "text": text, "split": _SPLITS[verdict]}
        for identity, text, verdict in zip(table["id"].to_pylist(), texts, verdicts, strict=True)
        if verdict in _SPLITS
    ]
    mined = [text for text, verdict in zip(texts, verdicts, strict=True) if verdict == KEEP]
    run = _run_of(fast_token_ids(mined, model), _vocabulary(model))
    _write_run(folder / f"{key}.arrow", run)
    if held_out:
        with appears(folder / f"{key}.heldout.jsonl") as temporary:
            lines = [json.dumps(d, ensure_ascii=False, sort_keys=True) for d in held_out]
            temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {
        "documents": len(mined),
        "tokens": len(run.tokens),
        "held_out": len(held_out),
        "tokenizer": _fingerprint(model),
        "vocab_size": len(_vocabulary(model).word),
    }


def encode(texts: list[str], tokenizer: Any, vocabulary: Vocabulary) -> TokenRun:
    """Return texts as one run of token ids, without special tokens.

    Text that looks like a special token is tokenized as the text it is.
    """
    return _run_of(list(token_ids(texts, tokenizer.backend_tokenizer)), vocabulary)


def _run_of(pieces: list[NDArray[np.uint32]], vocabulary: Vocabulary) -> TokenRun:
    tokens = np.concatenate(pieces) if pieces else np.zeros(0, np.uint32)
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    return TokenRun(tokens, flags_of(tokens, ends, vocabulary), ends)


def token_ids(texts: list[str], backend: Any) -> Iterator[NDArray[np.uint32]]:
    """Yield the ids of each text, without special tokens; see :func:`encode`."""
    before = backend.encode_special_tokens
    backend.encode_special_tokens = True
    try:
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            for encoding in backend.encode_batch_fast(batch, add_special_tokens=False):
                yield np.array(encoding.ids, np.uint32)
    finally:
        backend.encode_special_tokens = before


@lru_cache(maxsize=1)
def corpus_tokenizer(model: str) -> Any:
    """Return the tokenizer of a model, ready for texts of any length."""
    tokenizer = backbone.load_tokenizer(model)
    # A tokenizer's saved truncation or padding must not touch the corpus.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


@lru_cache(maxsize=1)
def _fingerprint(model: str) -> str:
    return backbone.tokenizer_fingerprint(corpus_tokenizer(model))


@lru_cache(maxsize=1)
def _vocabulary(model: str) -> Vocabulary:
    return vocabulary_of(token_texts(corpus_tokenizer(model)))


def _write_run(path: Path, run: TokenRun) -> None:
    offsets = pa.array(np.concatenate([[0], run.ends]), pa.int64())
    columns = [
        pa.LargeListArray.from_arrays(offsets, pa.array(run.tokens)),
        pa.LargeListArray.from_arrays(offsets, pa.array(run.flags)),
    ]
    with appears(path) as temporary, pa.ipc.new_file(temporary, _SCHEMA) as writer:
        writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))


def read_run(path: Path) -> TokenRun:
    """Read what a part of the stage wrote."""
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
        tokens, flags = batch.column("tokens"), batch.column("flags")
        return TokenRun(
            tokens.values.to_numpy(zero_copy_only=True).copy(),
            flags.values.to_numpy(zero_copy_only=True).copy(),
            tokens.offsets.to_numpy(zero_copy_only=True)[1:].astype(np.int64),
        )
