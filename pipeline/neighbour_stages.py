"""Branching entropies of the candidates, from the text that was counted: three stages."""

from __future__ import annotations

from collections.abc import Sequence

from phrasemem.pipeline.buckets import BUCKETED
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.corpus_stages import Chunk
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Job
from phrasemem.pipeline.plan import Plan


def branch(
    config: BuildConfig,
    plan: Plan,
    chunks: Sequence[Chunk],
    buckets: Sequence[str],
    engine: Engine,
    memory_limit: str,
) -> None:
    """Give the candidates of every bucket their entropies.

    Parameters
    ----------
    buckets : sequence of str
        Keys of the parts of the stage ``candidates``, in order.
    """
    find_targets(config, plan, buckets, engine)
    count_neighbours(config, plan, chunks, buckets, engine)
    join_entropies(config, plan, chunks, buckets, engine, memory_limit)


def find_targets(config: BuildConfig, plan: Plan, buckets: Sequence[str], engine: Engine) -> None:
    """Hashes of the candidates, a bucket."""
    from phrasemem.pipeline.neighbours import targets_part

    def job(bucket: str) -> Job:
        candidates = engine.file(plan.candidates, f"{bucket}.parquet")
        return Job(bucket, {"candidates": candidates, "n_max": config.mining.n_max})

    engine.run(plan.targets, targets_part, lambda: [job(bucket) for bucket in buckets])


def count_neighbours(
    config: BuildConfig,
    plan: Plan,
    chunks: Sequence[Chunk],
    buckets: Sequence[str],
    engine: Engine,
) -> None:
    """Tokens beside the candidates, a chunk."""
    from phrasemem.pipeline.neighbours import neighbours_part

    targets = [engine.file(plan.targets, f"{bucket}.npy") for bucket in buckets]

    def job(chunk: Chunk) -> Job:
        arguments = {
            "source": engine.file(plan.tokenize, f"{chunk.key}.arrow"),
            "targets": targets,
            "n_max": config.mining.n_max,
            "folding_model": config.folding_model,
        }
        return Job(chunk.key, arguments)

    engine.run(plan.neighbours, neighbours_part, lambda: [job(chunk) for chunk in chunks])


def join_entropies(
    config: BuildConfig,
    plan: Plan,
    chunks: Sequence[Chunk],
    buckets: Sequence[str],
    engine: Engine,
    memory_limit: str,
) -> None:
    """Candidates with their entropies, a bucket."""
    from phrasemem.pipeline.neighbours import entropies_part

    sources = [engine.file(plan.neighbours, f"{chunk.key}{BUCKETED}") for chunk in chunks]

    def job(number: int, bucket: str) -> Job:
        arguments = {
            "candidates": engine.file(plan.candidates, f"{bucket}.parquet"),
            "sources": sources,
            "bucket": number,
            "n_max": config.mining.n_max,
            "memory_limit": memory_limit,
        }
        return Job(bucket, arguments)

    engine.run(plan.entropies, entropies_part, lambda: [job(*pair) for pair in enumerate(buckets)])
