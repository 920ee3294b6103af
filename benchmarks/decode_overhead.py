"""Decode steps with memory attached against those of the frozen model, in turns.

    python -m benchmarks.decode_overhead [--full]

Both sides run the same weights and the same forced tokens, made of the memory's phrases, so
that most steps hit and inject. The memory is build/memory, or a small synthetic one.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._harness import Result, report
from phrasemem.backbone import (
    DEFAULT_MODEL,
    load_model,
    load_tokenizer,
    output_head,
    tokenizer_fingerprint,
)
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.writer import Entries, Header, PayloadSpec, TokenizerInfo, write_memory
from phrasemem.runtime.adapter import Adapter
from phrasemem.runtime.attach import AttachStats, attach
from phrasemem.runtime.memory import PhraseMemory

_REAL = Path("build/memory")
_SYNTHETIC = Path("build/bench/decode-memory")
_PHRASES = 50_000
_DIM = 384
_N_MAX = 6
_PROMPT = 64
_WARM_UP = 5
_RESAMPLES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="batch 16 too, and more steps")
    full = parser.parse_args().full
    model, tokenizer = load_model(DEFAULT_MODEL), load_tokenizer(DEFAULT_MODEL)
    path = _memory_for(tokenizer)
    with PhraseMemory.open(path) as memory:
        results = [
            _measure(model, tokenizer, memory, batch, 300 if full else 100)
            for batch in ([1, 16] if full else [1])
        ]
    report(results, "decode_overhead")


def _measure(model: Any, tokenizer: Any, memory: PhraseMemory, batch: int, steps: int) -> Result:
    # The twin shares every weight and none of the hooks.
    shared = {id(t): t for t in [*model.parameters(), *model.buffers()]}
    twin = copy.deepcopy(model, shared)
    tokens = _phrases_as_text(memory, batch, _PROMPT + _WARM_UP + steps)
    adapter = _adapter(memory, output_head(model).weight.shape[1])
    with attach(twin, memory, tokenizer=tokenizer, adapter=adapter) as handle:
        times = _in_turns(twin, model, tokens)[_WARM_UP:]
        stats = handle.stats()
    ours, theirs = np.median(times, axis=0)
    return Result(
        name=f"decode step/batch {batch}",
        value=float(ours),
        unit="ms/step",
        rival="the frozen model",
        rival_value=float(theirs),
        state="warm",
        note=_note(times, stats, memory.path),
    )


def _in_turns(ours: Any, theirs: Any, tokens: torch.Tensor) -> NDArray[np.float64]:
    """Return (steps, 2) milliseconds; the side that goes first changes with each step."""
    sides, caches = (ours, theirs), [_prefill(m, tokens[:, :_PROMPT]) for m in (ours, theirs)]
    times = np.zeros((tokens.shape[1] - _PROMPT, 2))
    for step in range(len(times)):
        ids = tokens[:, _PROMPT + step, None]
        for side in (0, 1) if step % 2 else (1, 0):
            begin = time.perf_counter()
            with torch.no_grad():
                sides[side](input_ids=ids, cache=caches[side], use_cache=True)
            times[step, side] = 1e3 * (time.perf_counter() - begin)
    return times


def _prefill(model: Any, ids: torch.Tensor) -> Any:
    with torch.no_grad():
        return model(input_ids=ids, use_cache=True, logits_to_keep=1).cache


def _note(times: NDArray[np.float64], stats: AttachStats, path: Path) -> str:
    difference = times[:, 0] - times[:, 1]
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(difference, (_RESAMPLES, len(difference))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    share = stats.injections / stats.positions
    return (
        f"({np.median(difference):+.2f} ms, 95% interval {low:+.2f}..{high:+.2f}; "
        f"{share:.0%} of positions hit; {path})"
    )


def _phrases_as_text(memory: PhraseMemory, batch: int, count: int) -> torch.Tensor:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(memory), (batch, count))
    lengths, tokens = memory.reader.row_tokens(rows.reshape(-1))
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    texts = [
        row[keep][:count]
        for row, keep in zip(tokens.reshape(batch, -1), inside.reshape(batch, -1), strict=True)
    ]
    return torch.from_numpy(np.stack(texts).astype(np.int64))


def _adapter(memory: PhraseMemory, width: int) -> Adapter:
    """Any map costs the same: a random one, so that every hit injects."""
    rng = np.random.default_rng(0)
    projection = rng.standard_normal((memory.payload.dim, width)).astype(np.float32)
    info = memory.payload.info
    bias = np.zeros(width, dtype=np.float32)
    return Adapter(projection, bias, 1e-3, payload=info.name, source=info.source)


def _memory_for(tokenizer: Any) -> Path:
    if (_REAL / "manifest.json").exists():
        return _REAL
    if not _SYNTHETIC.exists():
        _write_synthetic(tokenizer)
    return _SYNTHETIC


def _write_synthetic(tokenizer: Any) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, _N_MAX + 1, _PHRASES).astype(np.uint8)
    tokens = rng.integers(0, len(tokenizer), (_PHRASES, _N_MAX)).astype(np.uint32)
    tokens[np.arange(_N_MAX) >= lengths[:, None]] = 0
    tokens, kept = np.unique(tokens, axis=0, return_index=True)
    lengths = lengths[kept]
    vectors = rng.standard_normal((len(kept), _DIM)).astype(np.float32)
    info = TokenizerInfo(
        fingerprint=tokenizer_fingerprint(tokenizer),
        name=DEFAULT_MODEL,
        vocab_size=len(tokenizer),
    )
    header = Header(info, _N_MAX, [PayloadSpec("semantic", _DIM)])
    records = [Record("", 0.0, {}, 1)] * len(kept)
    entries = Entries(lengths, tokens, records, {"semantic": vectors})
    write_memory(_SYNTHETIC, entries, header)


if __name__ == "__main__":
    main()
