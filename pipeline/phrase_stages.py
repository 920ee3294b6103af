"""The second half of a build: count, merge, score, embed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.corpus_stages import Chunk, Tokenized
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Job
from phrasemem.pipeline.plan import Plan
from phrasemem.pipeline.report import CorpusReport
from phrasemem.pipeline.stage import Report
from phrasemem.pipeline.unigrams import UNIGRAMS_FILE

_BUCKET_MEMORY = "1GB"
_SCORE_MEMORY = "2GB"
_CHUNKS_A_BUCKET = 2
_MAX_BUCKETS = 4096


class NoPhrasesError(PhraseMemError):
    """Corpora in which nothing repeats often enough."""


@dataclass(frozen=True)
class Catalogue:
    """What has rows, the files of its vectors, and the counts of single tokens."""

    path: str
    unigrams: str
    candidates: int
    phrases: int
    single: int
    undecodable: dict[str, int]
    vectors: list[str]
    dim: int


def catalogue_of(
    config: BuildConfig,
    plan: Plan,
    tokenized: Tokenized,
    engine: Engine,
    reports: list[CorpusReport],
) -> Catalogue:
    """Count n-grams, choose phrases and embed them."""
    buckets = bucket_count(len(tokenized.chunks))
    count_hashes(config, plan, tokenized.chunks, buckets, engine)
    sum_unigrams(config, plan, tokenized, engine)
    find_survivors(config, plan, tokenized.chunks, buckets, engine)
    count_exactly(config, plan, tokenized.chunks, buckets, engine)
    merge_candidates(config, plan, tokenized.chunks, buckets, engine)
    chosen = score(config, plan, buckets, engine, reports)
    vectors, dim = embed(config, plan, chosen["phrases"] + chosen["single"], engine)
    return Catalogue(
        path=engine.file(plan.score, "catalogue.parquet"),
        unigrams=engine.file(plan.unigrams, UNIGRAMS_FILE),
        candidates=chosen["candidates"],
        phrases=chosen["phrases"],
        single=chosen["single"],
        undecodable={
            "phrases": chosen["undecodable"],
            "single": chosen["undecodable_single"],
        },
        vectors=vectors,
        dim=dim,
    )


def bucket_count(chunks: int) -> int:
    """Return a power of two that grows with the text and not with the workers."""
    wanted = min(_MAX_BUCKETS, max(4, chunks // _CHUNKS_A_BUCKET))
    return 1 << (wanted - 1).bit_length()


def count_hashes(
    config: BuildConfig, plan: Plan, chunks: Sequence[Chunk], buckets: int, engine: Engine
) -> None:
    """Pass A: hashes of all n-grams, a chunk."""
    from phrasemem.pipeline.count import hashes_part

    def job(chunk: Chunk) -> Job:
        arguments = {
            "source": engine.file(plan.tokenize, f"{chunk.key}.arrow"),
            "n_max": config.mining.n_max,
            "buckets": buckets,
            "corpus": chunk.corpus,
        }
        return Job(chunk.key, arguments)

    engine.run(plan.hashes, hashes_part, lambda: [job(chunk) for chunk in chunks])


def sum_unigrams(config: BuildConfig, plan: Plan, tokenized: Tokenized, engine: Engine) -> None:
    """Sum the counts of single tokens over all chunks."""
    from phrasemem.pipeline.unigrams import unigrams_part

    names = [f"{chunk.key}.unigrams.parquet" for chunk in tokenized.chunks]
    engine.run_one(
        plan.unigrams,
        unigrams_part,
        lambda: {
            "sources": [engine.file(plan.hashes, name) for name in names],
            "corpora": [corpus.name for corpus in config.corpora],
            "vocab_size": tokenized.vocab_size,
        },
    )


def find_survivors(
    config: BuildConfig, plan: Plan, chunks: Sequence[Chunk], buckets: int, engine: Engine
) -> None:
    """Hashes that are frequent over all chunks, a bucket."""
    from phrasemem.pipeline.merge import survivors_part

    sources = [engine.file(plan.hashes, f"{chunk.key}.parquet") for chunk in chunks]

    def job(bucket: int) -> Job:
        arguments = {
            "sources": sources,
            "bucket": bucket,
            "buckets": buckets,
            "min_count": config.mining.min_count,
            "memory_limit": _BUCKET_MEMORY,
        }
        return Job(_bucket_key(bucket), arguments)

    engine.run(plan.survivors, survivors_part, lambda: [job(b) for b in range(buckets)])


def count_exactly(
    config: BuildConfig, plan: Plan, chunks: Sequence[Chunk], buckets: int, engine: Engine
) -> None:
    """Pass B: exact counts of the surviving n-grams, a chunk."""
    from phrasemem.pipeline.count import counts_part

    survivors = [engine.file(plan.survivors, f"{_bucket_key(b)}.npy") for b in range(buckets)]

    def job(chunk: Chunk) -> Job:
        arguments = {
            "source": engine.file(plan.tokenize, f"{chunk.key}.arrow"),
            "survivors": survivors,
            "n_max": config.mining.n_max,
            "buckets": buckets,
            "corpus": chunk.corpus,
        }
        return Job(chunk.key, arguments)

    engine.run(plan.counts, counts_part, lambda: [job(chunk) for chunk in chunks])


def merge_candidates(
    config: BuildConfig, plan: Plan, chunks: Sequence[Chunk], buckets: int, engine: Engine
) -> None:
    """Exact counts summed over chunks, a bucket."""
    from phrasemem.pipeline.merge import candidates_part

    sources = [engine.file(plan.counts, f"{chunk.key}.parquet") for chunk in chunks]

    def job(bucket: int) -> Job:
        arguments = {
            "sources": sources,
            "bucket": bucket,
            "buckets": buckets,
            "corpora": len(config.corpora),
            "n_max": config.mining.n_max,
            "min_count": config.mining.min_count,
            "min_documents": config.mining.min_documents,
            "memory_limit": _BUCKET_MEMORY,
        }
        return Job(_bucket_key(bucket), arguments)

    engine.run(plan.candidates, candidates_part, lambda: [job(b) for b in range(buckets)])


def score(
    config: BuildConfig,
    plan: Plan,
    buckets: int,
    engine: Engine,
    reports: list[CorpusReport],
) -> Report:
    """Choose the phrases; returns the stage's report."""
    from phrasemem.pipeline.catalogue import score_part

    candidates = [
        engine.file(plan.candidates, f"{_bucket_key(bucket)}.parquet") for bucket in range(buckets)
    ]
    part = engine.run_one(
        plan.score,
        score_part,
        lambda: {
            "candidates": candidates,
            "unigrams": engine.file(plan.unigrams, UNIGRAMS_FILE),
            "corpora": [corpus.name for corpus in config.corpora],
            "phrase_shares": [corpus.budget.phrase_share for corpus in config.corpora],
            "model": config.model,
            "corpus_documents": [report.documents for report in reports],
            "n_max": config.mining.n_max,
            "min_count": config.mining.min_count,
            "min_documents": config.mining.min_documents,
            "max_phrases": config.mining.max_phrases,
            "shortest": config.mining.shortest,
            "stop_words": config.mining.stop_words,
            "memory_limit": _SCORE_MEMORY,
            "threads": engine.threads,
        },
    )
    for report in reports:
        report.phrases = part["phrases_of"].get(report.name, 0)
    if part["phrases"] == 0:
        mining = config.mining
        raise NoPhrasesError(
            f"no phrase occurs {mining.min_count} times in {mining.min_documents} documents",
            hint="give more text, or lower mining.min_count and mining.min_documents",
        )
    return part


def embed(config: BuildConfig, plan: Plan, rows: int, engine: Engine) -> tuple[list[str], int]:
    """Encode the texts, a range of the catalogue a part; return the files and the dimension."""
    from phrasemem.pipeline.embed import embed_part

    encoder = config.encoder
    catalogue = engine.file(plan.score, "catalogue.parquet")
    starts = range(0, rows, encoder.phrases_per_part)
    keys = [f"{number:06d}" for number in range(len(starts))]

    def job(key: str, start: int) -> Job:
        arguments = {
            "catalogue": catalogue,
            "start": start,
            "stop": min(start + encoder.phrases_per_part, rows),
            "encoder": encoder.id,
            "compute": plan.embed.settings["compute"],
            "batch_size": encoder.batch_size,
        }
        return Job(key, arguments)

    parts = engine.run(
        plan.embed, embed_part, lambda: [job(*pair) for pair in zip(keys, starts, strict=True)]
    )
    vectors = [engine.file(plan.embed, f"{key}.npy") for key in keys]
    return vectors, parts[keys[0]]["dim"]


def _bucket_key(bucket: int) -> str:
    return f"{bucket:05d}"
