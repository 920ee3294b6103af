"""How the stages of a build from ``hashes`` to ``pack`` grow with the number of entries.

    python -m benchmarks.stages_scale [--full | --copies N [N ...]]

There is not enough text at hand for 10M phrases. So the token ids of the profile ``demo`` are taken
several times, each time numbered anew by another fixed permutation of the vocabulary, with word
boundaries where they were: n-grams of different copies differ and have the same statistics, so
tokens, candidates and entries grow alike. Words in it are none, which the factors for stop words
and the like feel, and some tokens do not decode. ``min_count`` is 2, to reach the entries with less
text, and everything that breaks no rule becomes an entry. Vectors are random, of 16 numbers:
embedding is not measured here.

The stages themselves run, through the engine, by two workers. There is no rival. Writes
build/bench/stages_scale.md beside the usual lines.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks._harness import OUT, Result, machine, report
from phrasemem.pipeline import pack, phrase_stages
from phrasemem.pipeline.config import BuildConfig, load_config
from phrasemem.pipeline.corpus_stages import Chunk, Tokenized, tokenized_corpora
from phrasemem.pipeline.derive import CATALOGUE_FILE, Ingredients, pack_memory
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Executor
from phrasemem.pipeline.ledger import Ledger
from phrasemem.pipeline.plan import Plan, make_plan
from phrasemem.pipeline.progress import PeakMemory, Reporter
from phrasemem.pipeline.report import CorpusReport
from phrasemem.pipeline.run import empty_reports
from phrasemem.pipeline.sources import find_pieces
from phrasemem.pipeline.tokens import _write_run, read_run
from phrasemem.pipeline.unigrams import UNIGRAMS_FILE

_FOLDER = OUT / "stages_scale"
_COPIES, _FULL = [1], [1, 3, 10]
_MIN_COUNT, _DIM, _WORKERS = 2, 16, 2
_EVERYTHING = 1_000_000_000


@dataclass(frozen=True)
class _Row:
    """What one stage took; ``peak_mb`` is of all processes, pages that they share in each."""

    stage: str
    entries: int
    candidates: int
    tokens: int
    seconds: float
    cpu_seconds: float
    peak_mb: float
    mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help=f"copies: {_FULL}")
    parser.add_argument("--copies", type=int, nargs="+", help="how often the text is taken")
    arguments = parser.parse_args()
    copies = arguments.copies or (_FULL if arguments.full else _COPIES)
    config = _config()
    front = _FOLDER.absolute() / "front"
    plan, tokenized, reports = _front(config, front)
    rows = []
    for number in copies:
        rows += _measured(config, plan, tokenized, reports, front, number)
        report([result for row in rows for result in _results(row)], "stages_scale")
        (OUT / "stages_scale.md").write_text(_table(rows))
        print(_table(rows))


def _config() -> BuildConfig:
    config = load_config(Path("corpora.yaml"), "demo")
    mining = {"min_count": _MIN_COUNT, "max_phrases": _EVERYTHING}
    encoder = {"phrases_per_part": 65_536}
    return config.model_copy(
        update={
            "mining": config.mining.model_copy(update=mining),
            "encoder": config.encoder.model_copy(update=encoder),
            "shard_bits": None,
        }
    )


def _front(config: BuildConfig, work: Path) -> tuple[Plan, Tokenized, list[CorpusReport]]:
    """Read, clean and tokenize; nothing to do if that was done before."""
    pieces = find_pieces(config.corpora, Path().absolute())
    plan = make_plan(config, pieces)
    reports = empty_reports(config)
    with _engine(work, Ledger(work, plan.stages())) as engine:
        tokenized = tokenized_corpora(config, plan, pieces, engine, reports)
    return plan, tokenized, reports


@contextmanager
def _engine(work: Path, ledger: Ledger) -> Iterator[Engine]:
    work.mkdir(parents=True, exist_ok=True)
    with Executor(_WORKERS, None, work / ".dask") as executor, PeakMemory() as memory:
        yield Engine(work, executor, Reporter(), memory, ledger)


def _measured(
    config: BuildConfig,
    plan: Plan,
    tokenized: Tokenized,
    reports: list[CorpusReport],
    front: Path,
    copies: int,
) -> list[_Row]:
    """Run the stages on so many copies of the text."""
    work = _FOLDER.absolute() / f"{copies}"
    shutil.rmtree(work, ignore_errors=True)
    (work / plan.tokenize.name).mkdir(parents=True)
    chunks = [
        _renumbered(chunk, front / plan.tokenize.name, work / plan.tokenize.name, number, tokenized)
        for number in range(copies)
        for chunk in tokenized.chunks
    ]
    grown = [
        replace(one, documents=copies * one.documents, tokens=copies * one.tokens)
        for one in reports
    ]
    ledger = Ledger(None, plan.stages())
    with _engine(work, ledger) as engine:
        larger = replace(tokenized, chunks=chunks)
        chosen, _ = phrase_stages.choose_phrases(config, plan, larger, engine, grown)
        entries = chosen["phrases"]
        vectors = _vectors(work / plan.embed.name, entries, config.encoder.phrases_per_part)
        ingredients = _ingredients(config, plan, larger, grown, engine, vectors)
        pack_memory(ingredients, plan.layout, plan.pack, engine, work / "memory")
    tokens = sum(one.tokens for one in grown)
    shutil.rmtree(work)
    return [
        _Row(
            record.name, entries, chosen["candidates"], tokens, record.seconds,
            record.cpu_seconds, record.peak_bytes / 1e6, record.bytes / 1e6,
        )
        for record in ledger.records()
        if record.state == "done"
    ]  # fmt: skip


def _renumbered(chunk: Chunk, source: Path, target: Path, copy: int, tokenized: Tokenized) -> Chunk:
    """Write one chunk of one copy; the first copy stays as it is."""
    key = f"{copy:03d}-{chunk.key}"
    run = read_run(source / f"{chunk.key}.arrow")
    if copy:
        names = np.random.default_rng([copy, 7]).permutation(tokenized.vocab_size)
        run = run._replace(tokens=names.astype(np.uint32)[run.tokens])
    _write_run(target / f"{key}.arrow", run)
    return Chunk(key, chunk.corpus)


def _vectors(folder: Path, entries: int, rows_a_part: int) -> list[str]:
    folder.mkdir()
    paths = []
    for number, start in enumerate(range(0, entries, rows_a_part)):
        shape = (min(rows_a_part, entries - start), _DIM)
        vectors = np.random.default_rng([number, 3]).standard_normal(shape).astype(np.float16)
        paths.append(str(folder / f"{number:06d}.npy"))
        np.save(paths[-1], vectors)
    return paths


def _ingredients(
    config: BuildConfig,
    plan: Plan,
    tokenized: Tokenized,
    reports: list[CorpusReport],
    engine: Engine,
    vectors: list[str],
) -> Ingredients:
    shown = ("name", "kind", "licence", "source", "documents", "tokens")
    return Ingredients(
        header=pack.header_of(
            tokenizer=(tokenized.tokenizer, config.model, tokenized.vocab_size),
            encoder=("random", "0", _DIM),
            how="random",
            n_max=config.mining.n_max,
            corpora=[{name: getattr(one, name) for name in shown} for one in reports],
        ),
        catalogue=engine.file(plan.score, CATALOGUE_FILE),
        unigrams=engine.file(plan.unigrams, UNIGRAMS_FILE),
        vectors=vectors,
        phrases_per_part=config.encoder.phrases_per_part,
        held_out=[],
        record={},
        seed=config.seed,
        shard_bits=config.shard_bits,
    )


def _results(row: _Row) -> list[Result]:
    note = f"{row.entries:,} entries"
    none = {"rival": "none", "rival_value": None, "state": "warm", "note": note}
    return [
        Result(f"stages_scale/{row.stage}", row.seconds, "s", **none),
        Result(f"stages_scale/{row.stage} peak", row.peak_mb, "MB", **none),
        Result(f"stages_scale/{row.stage} disk", row.mb, "MB", **none),
    ]


def _table(rows: list[_Row]) -> str:
    """Return the figures as Markdown, with the exponents between the least and the most entries."""
    load = os.getloadavg()[0]
    lines = [f"{machine()}; {_WORKERS} workers; load {load:.1f} at the end", ""]
    names = list(asdict(rows[0]))
    lines += ["| " + " | ".join([*names, "exponent"]) + " |", "|---" * (len(names) + 1) + "|"]
    for row in rows:
        first = next(other for other in rows if other.stage == row.stage)
        cells = [
            f"{value:,.4g}" if isinstance(value, float) else f"{value}"
            for value in asdict(row).values()
        ]
        lines.append("| " + " | ".join([*cells, _exponent(first, row)]) + " |")
    return "\n".join(lines) + "\n"


def _exponent(first: _Row, row: _Row) -> str:
    """Return how processor seconds grow: as entries to this power, from the first size on."""
    if row.entries <= first.entries or not first.cpu_seconds or not row.cpu_seconds:
        return "-"
    growth = math.log(row.cpu_seconds / first.cpu_seconds)
    return f"{growth / math.log(row.entries / first.entries):.2f}"


if __name__ == "__main__":
    main()
