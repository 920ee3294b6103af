"""The second half of a build: count, merge, score, embed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.buckets import BUCKETED
from phrasemem.pipeline.config import CHOOSING, BuildConfig
from phrasemem.pipeline.corpus_stages import Chunk, Tokenized
from phrasemem.pipeline.count_store import CountStore
from phrasemem.pipeline.earlier import Earlier
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Job
from phrasemem.pipeline.neighbour_stages import branch
from phrasemem.pipeline.plan import Plan, encoder_options
from phrasemem.pipeline.report import CorpusReport
from phrasemem.pipeline.stage import Report
from phrasemem.pipeline.unigrams import UNIGRAMS_FILE

_BUCKET_MEMORY = "1GB"
_SCORE_MEMORY = "2GB"
_TOKENS_A_BUCKET = 2_000_000
_MAX_BUCKETS = 4096


class NoPhrasesError(PhraseMemError):
    """Corpora in which nothing repeats often enough."""


@dataclass(frozen=True)
class Catalogue:
    """What has rows, the files of its vectors, and the counts of single tokens.

    ``store`` names the files of the count store, which are there where one is kept.
    """

    path: str
    unigrams: str
    candidates: int
    phrases: int
    single: int
    undecodable: dict[str, int]
    vectors: list[str]
    dim: int
    store: list[str]


def catalogue_of(
    config: BuildConfig,
    plan: Plan,
    tokenized: Tokenized,
    engine: Engine,
    reports: list[CorpusReport],
    earlier: Earlier | None = None,
) -> Catalogue:
    """Choose phrases and embed them.

    Corpora come after those of the memory ``earlier``; phrases that it has keep their vectors.
    """
    chosen, buckets = choose_phrases(config, plan, tokenized, engine, reports, earlier)
    vectors, dim = embed(config, plan, chosen["phrases"] + chosen["single"], engine, earlier)
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
        store=[engine.file(plan.store, f"{_bucket_key(b)}.parquet") for b in range(buckets)],
    )


def choose_phrases(
    config: BuildConfig,
    plan: Plan,
    tokenized: Tokenized,
    engine: Engine,
    reports: list[CorpusReport],
    earlier: Earlier | None = None,
) -> tuple[Report, int]:
    """Count n-grams and choose phrases: the report of the stage ``score``, and the buckets."""
    store = earlier.store if earlier is not None else None
    buckets = store.buckets if store is not None else bucket_count(sum(r.tokens for r in reports))
    count_hashes(config, plan, tokenized.chunks, buckets, engine)
    sum_unigrams(config, plan, tokenized, engine, earlier)
    if not keeps_all(plan):
        find_survivors(config, plan, tokenized.chunks, buckets, engine)
    count_exactly(config, plan, tokenized.chunks, buckets, engine, earlier)
    if keeps_store(config, earlier):
        fill_store(config, plan, tokenized.chunks, buckets, engine, store)
    merge_candidates(config, plan, tokenized.chunks, buckets, engine, earlier)
    if not keeps_all(plan):
        keys = [_bucket_key(bucket) for bucket in range(buckets)]
        branch(config, plan, tokenized.chunks, keys, engine, _BUCKET_MEMORY)
    chosen = score(config, plan, buckets, engine, reports, earlier)
    return chosen, buckets


def keeps_all(plan: Plan) -> bool:
    """Tell whether n-grams are counted down to those that occur once."""
    return "all" in plan.counts.settings


def keeps_store(config: BuildConfig, earlier: Earlier | None) -> bool:
    """Tell whether a count store is filled: one that lacks the earlier corpora would be none."""
    return config.mining.keep_counts if earlier is None else earlier.store is not None


def bucket_count(tokens: int) -> int:
    """Return a power of two that grows with the text, not with the workers or how it was cut.

    A count store has these buckets: its bytes depend on them.
    """
    wanted = min(_MAX_BUCKETS, max(4, tokens // _TOKENS_A_BUCKET))
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
            "folding_model": config.folding_model,
        }
        return Job(chunk.key, arguments)

    engine.run(plan.hashes, hashes_part, lambda: [job(chunk) for chunk in chunks])


def sum_unigrams(
    config: BuildConfig,
    plan: Plan,
    tokenized: Tokenized,
    engine: Engine,
    earlier: Earlier | None,
) -> None:
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
            "earlier": None
            if earlier is None
            else (str(earlier.memory / UNIGRAMS_FILE), earlier.names),
        },
    )


def find_survivors(
    config: BuildConfig, plan: Plan, chunks: Sequence[Chunk], buckets: int, engine: Engine
) -> None:
    """Hashes that are frequent over all chunks, a bucket."""
    from phrasemem.pipeline.merge import survivors_part

    sources = [engine.file(plan.hashes, f"{chunk.key}{BUCKETED}") for chunk in chunks]

    def job(bucket: int) -> Job:
        arguments = {
            "sources": sources,
            "bucket": bucket,
            "min_count": config.mining.min_count,
            "memory_limit": _BUCKET_MEMORY,
        }
        return Job(_bucket_key(bucket), arguments)

    engine.run(plan.survivors, survivors_part, lambda: [job(b) for b in range(buckets)])


def count_exactly(
    config: BuildConfig,
    plan: Plan,
    chunks: Sequence[Chunk],
    buckets: int,
    engine: Engine,
    earlier: Earlier | None,
) -> None:
    """Pass B: exact counts of the surviving n-grams, or of all, a chunk."""
    from phrasemem.pipeline.count import counts_part

    survivors = [engine.file(plan.survivors, f"{_bucket_key(b)}.npy") for b in range(buckets)]

    def job(position: int, chunk: Chunk) -> Job:
        arguments = {
            "source": engine.file(plan.tokenize, f"{chunk.key}.arrow"),
            "survivors": None if keeps_all(plan) else survivors,
            "n_max": config.mining.n_max,
            "buckets": buckets,
            "corpus": chunk.corpus + (len(earlier.names) if earlier is not None else 0),
            "folding_model": config.folding_model,
            "chunk": position,
        }
        return Job(chunk.key, arguments)

    engine.run(plan.counts, counts_part, lambda: [job(*pair) for pair in enumerate(chunks)])


def fill_store(
    config: BuildConfig,
    plan: Plan,
    chunks: Sequence[Chunk],
    buckets: int,
    engine: Engine,
    earlier: CountStore | None,
) -> None:
    """Sum the counts of every n-gram in each corpus, a bucket."""
    from phrasemem.pipeline.merge import store_part

    sources = [engine.file(plan.counts, f"{chunk.key}{BUCKETED}") for chunk in chunks]

    def job(bucket: int) -> Job:
        arguments = {
            "sources": sources,
            "earlier": None if earlier is None else earlier.bucket(bucket),
            "bucket": bucket,
            "buckets": buckets,
            "n_max": config.mining.n_max,
            "memory_limit": _BUCKET_MEMORY,
        }
        return Job(_bucket_key(bucket), arguments)

    engine.run(plan.store, store_part, lambda: [job(b) for b in range(buckets)])


def merge_candidates(
    config: BuildConfig,
    plan: Plan,
    chunks: Sequence[Chunk],
    buckets: int,
    engine: Engine,
    earlier: Earlier | None,
) -> None:
    """Exact counts summed over chunks, a bucket; those of an earlier memory come before."""
    from phrasemem.pipeline.merge import candidates_part

    in_store = keeps_store(config, earlier)
    counted = [engine.file(plan.counts, f"{chunk.key}{BUCKETED}") for chunk in chunks]
    if earlier is not None:
        counted.append(engine.file(plan.earlier, "counts.parquet"))

    def job(bucket: int) -> Job:
        key = _bucket_key(bucket)
        arguments = {
            "sources": [engine.file(plan.store, f"{key}.parquet")] if in_store else counted,
            "bucket": None if in_store else bucket,
            "buckets": buckets,
            "corpora": len(_names(config, earlier)),
            "n_max": config.mining.n_max,
            "min_count": config.mining.min_count,
            "min_documents": config.mining.min_documents,
            "memory_limit": _BUCKET_MEMORY,
            "carried": _surfaces(config),
        }
        return Job(key, arguments)

    engine.run(plan.candidates, candidates_part, lambda: [job(b) for b in range(buckets)])


def _surfaces(config: BuildConfig) -> list[str]:
    """Return the columns of the ids that stood where a folded n-gram first occurred."""
    if config.folding_model is None:
        return []
    return [f"s{place}" for place in range(config.mining.n_max)]


def _names(config: BuildConfig, earlier: Earlier | None) -> list[str]:
    """Return the names of all corpora in the order of their counts."""
    before = earlier.names if earlier is not None else []
    return [*before, *(corpus.name for corpus in config.corpora)]


def score(
    config: BuildConfig,
    plan: Plan,
    buckets: int,
    engine: Engine,
    reports: list[CorpusReport],
    earlier: Earlier | None,
) -> Report:
    """Choose the phrases; returns the stage's report."""
    from phrasemem.pipeline.catalogue import score_part

    stage = plan.candidates if keeps_all(plan) else plan.entropies
    candidates = [engine.file(stage, f"{_bucket_key(bucket)}.parquet") for bucket in range(buckets)]
    part = engine.run_one(
        plan.score,
        score_part,
        lambda: {
            "candidates": candidates,
            "unigrams": engine.file(plan.unigrams, UNIGRAMS_FILE),
            "corpora": _names(config, earlier),
            "phrase_shares": plan.score.settings["phrase_shares"],
            "model": config.model,
            "corpus_documents": [
                *(earlier.documents if earlier is not None else ()),
                *(report.documents for report in reports),
            ],
            "n_max": config.mining.n_max,
            "min_count": config.mining.min_count,
            "min_documents": config.mining.min_documents,
            "kinds": plan.score.settings["kinds"],
            **config.mining.model_dump(include=CHOOSING),
            "max_phrases": _most_phrases(config, plan),
            "memory_limit": _SCORE_MEMORY,
            "threads": engine.threads,
            "carried": _surfaces(config),
        },
    )
    for report in (*(earlier.reports if earlier is not None else ()), *reports):
        report.phrases = part["phrases_of"].get(report.name, 0)
    if part["phrases"] == 0:
        mining = config.mining
        raise NoPhrasesError(
            f"no phrase occurs {mining.min_count} times in {mining.min_documents} documents",
            hint="give more text, or lower mining.min_count and mining.min_documents",
        )
    return part


def _most_phrases(config: BuildConfig, plan: Plan) -> int:
    """Return the budget of phrases, of which that of bytes may leave less."""
    mining = config.mining
    if mining.max_bytes is None:
        return mining.max_phrases
    from phrasemem.pipeline.byte_budget import phrases_within
    from phrasemem.pipeline.embed import dimension_of

    dim = dimension_of(encoder_options(config))
    return min(mining.max_phrases, phrases_within(mining.max_bytes, mining.n_max, dim))


def embed(
    config: BuildConfig, plan: Plan, rows: int, engine: Engine, earlier: Earlier | None
) -> tuple[list[str], int]:
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
            "encoder": encoder_options(config),
            "batch_size": plan.embed.settings["batch_size"],
            "kept": [] if earlier is None else [str(earlier.memory)],
        }
        return Job(key, arguments)

    parts = engine.run(
        plan.embed, embed_part, lambda: [job(*pair) for pair in zip(keys, starts, strict=True)]
    )
    vectors = [engine.file(plan.embed, f"{key}.npy") for key in keys]
    return vectors, parts[keys[0]]["dim"]


def _bucket_key(bucket: int) -> str:
    return f"{bucket:05d}"
