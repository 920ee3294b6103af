"""Count all n-grams of 2 to 6 tokens exactly, token ids given.

    python -m benchmarks.count [--full]

Each side runs on one core, the rivals on the same ids as words of text, a line a document. KenLM's
``count_ngrams`` counts the n-grams of 6 alone and writes them; gensim's Phrases counts pairs.
Ours counts all lengths and the documents of each n-gram, in partitions of the default size. Every
window within a document counts here; what a build counts, where phrases begin and end at words,
and writes, in its two passes, is measured too. Seconds are those of the processor, user and
system, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import _corpus, _kenlm
from benchmarks._harness import OUT, Result, report
from benchmarks._memory_use import growth
from phrasemem.pipeline.boundaries import CUT_AFTER, MAY_END, MAY_START
from phrasemem.pipeline.count import counts_part, hashes_part
from phrasemem.pipeline.merge import survivors_part
from phrasemem.pipeline.ngrams import counted
from phrasemem.pipeline.tokens import TokenRun, read_run

_N_MAX, _MIN_COUNT, _BUCKETS = 6, 4, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="9 million tokens instead of 3")
    files = 2 if parser.parse_args().full else 1
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sources = _corpus.token_files(files, _corpus.config().partition_chars)
    runs = [_all_windows(read_run(Path(source))) for source in sources]
    tokens = sum(len(run.tokens) for run in runs)
    counted(runs[0], _N_MAX)  # compiles
    whole = _joined(runs)
    expected = _totals(whole)
    ours = tokens / _seconds(lambda: [counted(run, _N_MAX) for run in runs])
    stages = tokens / _stages(sources)
    peak = growth(lambda: counted(runs[0], _N_MAX))[2] * 1e6 / len(runs[0].tokens)
    kenlm, gensim = _kenlm_rate(whole, expected), _gensim_rate(whole, expected)
    note, rival = f"{tokens:,} tokens", "KenLM count_ngrams -o 6"

    def result(
        name: str, value: float, rival: str, rate: float | None, target: float | None
    ) -> Result:
        return Result(name, value, "tokens/s", rival, rate, "warm", True, target, note)

    report(
        [
            result("count/all windows", ours, rival, kenlm, 3.0),
            result("count/all windows", ours, "gensim Phrases, pairs alone", gensim, 4.0),
            result("count/two passes to files, as a build", stages, rival, kenlm, None),
            Result("count/peak", peak, "bytes/token", "none", None, "warm", note="all windows"),
        ],
        "count",
    )


def _all_windows(run: TokenRun) -> TokenRun:
    flags = np.full(len(run.tokens), MAY_START | MAY_END, np.uint8)
    flags[run.ends[run.ends > 0] - 1] |= CUT_AFTER
    return run._replace(flags=flags)


def _joined(runs: list[TokenRun]) -> TokenRun:
    sizes = np.cumsum([0, *(len(run.tokens) for run in runs)])
    ends = [run.ends + before for run, before in zip(runs, sizes[:-1], strict=True)]
    tokens = np.concatenate([run.tokens for run in runs])
    flags = np.concatenate([run.flags for run in runs])
    return TokenRun(tokens, flags, np.concatenate(ends))


def _totals(run: TokenRun) -> dict[int, tuple[int, int]]:
    """Return distinct n-grams and the sum of their counts, a length."""
    found = counted(run, _N_MAX)
    cuts = np.searchsorted(found.lengths, range(2, _N_MAX + 2))
    return {
        length: (int(end - begin), int(found.counts[begin:end].sum(dtype=np.int64)))
        for length, begin, end in zip(range(2, _N_MAX + 1), cuts[:-1], cuts[1:], strict=True)
    }


def _seconds(work: Callable[[], object]) -> float:
    """Return the least processor time of three."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def _stages(sources: list[str]) -> float:
    """Return the seconds of both passes and the merge between them, files included."""
    folder = OUT / "count"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shared = {"n_max": _N_MAX, "buckets": _BUCKETS, "corpus": 0}
    hashed = [str(folder / f"h{number}.arrow") for number in range(len(sources))]
    survivors = [str(folder / f"s{bucket}.npy") for bucket in range(_BUCKETS)]

    def build() -> None:
        for number, source in enumerate(sources):
            hashes_part(folder, f"h{number}", source=source, **shared)
        for bucket in range(_BUCKETS):
            survivors_part(
                folder, f"s{bucket}", sources=hashed, bucket=bucket,
                min_count=_MIN_COUNT, memory_limit="1GB",
            )  # fmt: skip
        for number, source in enumerate(sources):
            counts_part(folder, f"c{number}", source=source, survivors=survivors, **shared)

    return _seconds(build)


def _kenlm_rate(run: TokenRun, expected: dict[int, tuple[int, int]]) -> float | None:
    try:
        program = _kenlm.build()
    except _kenlm.NotBuiltError as error:
        print(f"SKIPPED KenLM: {error}")
        return None
    text = OUT / "kenlm" / "ids.txt"
    _kenlm.write_text(text, _corpus.documents(run.tokens, run.ends))
    rate = len(run.tokens) / min(_kenlm.count(program, text, _N_MAX)[1] for _ in range(3))
    for length, totals in expected.items():
        found = _kenlm.totals(_kenlm.count(program, text, length)[0], length)
        if found != totals:
            raise SystemExit(f"KenLM counts {found} n-grams of {length}, we {totals}")
    return rate


def _gensim_rate(run: TokenRun, expected: dict[int, tuple[int, int]]) -> float | None:
    try:
        from gensim.models.phrases import Phrases
    except ImportError as error:
        print(f"SKIPPED gensim: {error}; pip install 'phrasemem[bench]'")
        return None
    texts = [list(map(str, part)) for part in _corpus.documents(run.tokens, run.ends)]
    begin = time.process_time()
    model = Phrases(texts, min_count=1, delimiter="_")
    rate = len(run.tokens) / (time.process_time() - begin)
    pairs = [times for key, times in model.vocab.items() if "_" in key]
    if (len(pairs), sum(pairs)) != expected[2]:
        raise SystemExit(f"gensim counts {len(pairs)} pairs, {sum(pairs)} in all")
    return rate


if __name__ == "__main__":
    main()
