"""Read, clean, tokenize and count, whole stages with their files, against tokenizing alone.

    python -m benchmarks.front [--full]

The rival is the tokenizer's own ``encode_batch`` on the cleaned texts in memory, its ids not even
taken out. Ours begins with a file and ends with the counted n-grams in files. The documents are
read twice: from PubMed's XML, most of which is markup and citations without an abstract, and from
JSON lines that hold their text alone, as web corpora come. Both sides run on one core; seconds
are those of the processor, user and system. The ids of both must be equal.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import _corpus
from benchmarks._harness import OUT, Result, report
from phrasemem.pipeline.count import counts_part, hashes_part
from phrasemem.pipeline.fast_tokens import fast_token_ids
from phrasemem.pipeline.merge import survivors_part
from phrasemem.pipeline.tokens import corpus_tokenizer, read_run, token_ids

_FOLDER = OUT / "front"
_BATCH = 256
_BUCKETS = 4
_N_MAX, _MIN_COUNT = 6, 4


class _Clock:
    """Processor seconds by what they were for."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def take(self, name: str, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        begin = time.process_time()
        result = work(*arguments, **named)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - begin
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="9 million tokens instead of 3")
    files = 2 if parser.parse_args().full else 1
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    warm, clock = _Clock(), _Clock()
    _front(warm, 1, 400_000)  # compiles, and loads the tokenizers
    tokenized = _front(clock, files, _corpus.config().partition_chars)
    tokens = sum(len(read_run(Path(ids)).tokens) for _, ids in tokenized)
    for name, seconds in clock.seconds.items():
        print(f"{name:10} {seconds:6.2f} s  {tokens / seconds / 1e6:6.2f} Mtokens/s")
    theirs, own = _rival(tokenized)
    rest = sum(clock.seconds[name] for name in ("clean", "tokenize", "count"))
    lines, xml = (tokens / (rest + clock.seconds[name]) for name in ("read lines", "read"))
    note = f"{tokens:,} tokens"
    report(
        [
            _result("front/whole, JSON lines", lines, theirs, 0.85, note),
            _result("front/whole, PubMed XML", xml, theirs, 0.85, note),
            _result("front/tokenize stage", tokens / clock.seconds["tokenize"], theirs, None, note),
            _result("front/ids in memory", own, theirs, None, note),
        ],
        "front",
    )


def _result(name: str, ours: float, theirs: float, target: float | None, note: str) -> Result:
    rival = "tokenizers encode_batch alone"
    return Result(name, ours, "tokens/s", rival, theirs, "warm", True, target, note)


def _front(clock: _Clock, files: int, chunk_chars: int) -> list[tuple[str, str]]:
    """Run the stages; returns the cleaned texts and the ids of each chunk."""
    found = []
    for number in range(files):
        for name in clock.take("read", _corpus.read, _FOLDER, number, chunk_chars):
            _corpus.write_lines(_FOLDER, name)
            clock.take("read lines", _corpus.read_lines, _FOLDER, name)
            source = clock.take("clean", _corpus.clean, _FOLDER, name)
            kept = _corpus.decisions(_FOLDER, source)
            found.append((source, clock.take("tokenize", _corpus.tokenize, _FOLDER, source, kept)))
    clock.take("count", _count, [ids for _, ids in found])
    return found


def _count(sources: list[str]) -> None:
    folder = _FOLDER
    shared = {"n_max": _N_MAX, "buckets": _BUCKETS, "corpus": 0}
    hashed = [str(folder / f"h{number}.arrow") for number in range(len(sources))]
    survivors = [str(folder / f"s{bucket}.npy") for bucket in range(_BUCKETS)]
    for number, source in enumerate(sources):
        hashes_part(folder, f"h{number}", source=source, **shared)
    for bucket in range(_BUCKETS):
        survivors_part(
            folder, f"s{bucket}", sources=hashed, bucket=bucket,
            min_count=_MIN_COUNT, memory_limit="1GB",
        )  # fmt: skip
    for number, source in enumerate(sources):
        counts_part(folder, f"c{number}", source=source, survivors=survivors, **shared)


def _rival(tokenized: list[tuple[str, str]]) -> tuple[float, float]:
    """Return the tokens a second of the tokenizer itself, and of ours without any file."""
    model = _corpus.config().model
    backend = corpus_tokenizer(model).backend_tokenizer
    clock, tokens = _Clock(), 0
    for source, ids in tokenized:
        texts = pq.read_table(source, columns=["text"])["text"].to_pylist()
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            clock.take("theirs", backend.encode_batch, batch, add_special_tokens=False)
        clock.take("ours", fast_token_ids, texts, model)
        run = read_run(Path(ids))
        if not np.array_equal(np.concatenate(list(token_ids(texts, backend))), run.tokens):
            raise SystemExit(f"{source}: the stage's ids are not the tokenizer's")
        tokens += len(run.tokens)
    return tokens / clock.seconds["theirs"], tokens / clock.seconds["ours"]


if __name__ == "__main__":
    main()
