"""What cleaning must know beforehand: what repeats in a corpus, and what evaluation files hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phrasemem.pipeline.config import Boilerplate, BuildConfig
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Job
from phrasemem.pipeline.plan import Plan
from phrasemem.pipeline.report import CorpusReport

if TYPE_CHECKING:
    from phrasemem.pipeline.corpus_stages import Chunk

_MEMORY = "1GB"


@dataclass(frozen=True)
class LookedFor:
    """Files of hashes: what repeats, one a corpus, and evaluation n-grams; None where off."""

    repeated: list[str | None]
    evaluation: str | None


def what_to_look_for(
    config: BuildConfig,
    plan: Plan,
    chunks: Sequence[Chunk],
    engine: Engine,
    reports: Sequence[CorpusReport],
) -> LookedFor:
    """Run the stages ``lines``, ``repeated`` and ``evaluation``, as far as they are asked for."""
    repeated: list[str | None] = [None] * len(config.corpora)
    if (settings := config.cleaning.boilerplate) is not None:
        documents = _count_lines(settings, plan, chunks, engine, reports)
        _merge_lines(settings, plan, documents, engine)
        repeated = [engine.file(plan.repeated, f"{c:03d}.parquet") for c in range(len(repeated))]
    evaluation = None
    if config.cleaning.decontaminate:
        _read_evaluation(config, plan, engine)
        evaluation = engine.file(plan.evaluation, "all.parquet")
    return LookedFor(repeated, evaluation)


def _count_lines(
    settings: Boilerplate,
    plan: Plan,
    chunks: Sequence[Chunk],
    engine: Engine,
    reports: Sequence[CorpusReport],
) -> list[dict[str, int]]:
    """Return, for each corpus, how many documents of each chunk were looked at."""
    from phrasemem.pipeline.repeats import lines_part

    def job(chunk: Chunk) -> Job:
        arguments = {
            "source": engine.file(plan.read, f"{chunk.key}.parquet"),
            "share": settings.sample / max(1, reports[chunk.corpus].read),
            "span_words": settings.span_words,
            "sentence_words": settings.sentence_words,
        }
        return Job(chunk.key, arguments)

    parts = engine.run(plan.lines, lines_part, lambda: [job(chunk) for chunk in chunks])
    documents: list[dict[str, int]] = [{} for _ in reports]
    for chunk in chunks:
        documents[chunk.corpus][chunk.key] = parts[chunk.key]["documents"]
    return documents


def _merge_lines(
    settings: Boilerplate, plan: Plan, documents: Sequence[dict[str, int]], engine: Engine
) -> None:
    from phrasemem.pipeline.repeats import least_documents, repeated_part

    def job(corpus: int) -> Job:
        own = documents[corpus]
        arguments = {
            "sources": [engine.file(plan.lines, f"{key}.parquet") for key in own],
            "least": least_documents(sum(own.values()), settings.min_documents, settings.min_share),
            "memory_limit": _MEMORY,
        }
        return Job(f"{corpus:03d}", arguments)

    engine.run(plan.repeated, repeated_part, lambda: [job(c) for c in range(len(documents))])


def _read_evaluation(config: BuildConfig, plan: Plan, engine: Engine) -> None:
    from phrasemem.pipeline.evaluation import evaluation_files, evaluation_part

    files = list(evaluation_files(config.cleaning.decontaminate))
    arguments = {"files": files, "words": config.cleaning.ngram}
    engine.run_one(plan.evaluation, evaluation_part, lambda: arguments)
