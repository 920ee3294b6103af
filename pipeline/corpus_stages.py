"""The first half of a build: read, count what repeats, clean, select, tokenize."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.cleaning_stages import LookedFor, what_to_look_for
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Job
from phrasemem.pipeline.plan import Plan
from phrasemem.pipeline.read import ReadError
from phrasemem.pipeline.report import CorpusReport
from phrasemem.pipeline.sources import Piece, refuse_changed
from phrasemem.pipeline.stage import forget

_SELECT_MEMORY = "1GB"


class CorpusError(PhraseMemError):
    """A corpus of which nothing is left."""


@dataclass(frozen=True)
class Chunk:
    """A partition from here on: some documents of one corpus, by the name of its files."""

    key: str
    corpus: int


@dataclass(frozen=True)
class Tokenized:
    """What the first half gives the second."""

    chunks: list[Chunk]
    held_out: list[str]
    tokenizer: str
    vocab_size: int
    shorter_kept: int


def tokenized_corpora(
    config: BuildConfig,
    plan: Plan,
    pieces: Sequence[Piece],
    engine: Engine,
    reports: list[CorpusReport],
    earlier: str | None = None,
) -> Tokenized:
    """Read, clean, select and tokenize; what became of each corpus goes into its report.

    ``earlier`` is a file of documents that are known already.
    """
    chunks = read(config, plan, pieces, engine, reports)
    known = what_to_look_for(config, plan, chunks, engine, reports)
    clean(config, plan, chunks, known, engine, reports)
    shorter_kept = select(config, plan, chunks, engine, reports, earlier)
    return tokenize(config, plan, chunks, shorter_kept, engine, reports)


def read(
    config: BuildConfig,
    plan: Plan,
    pieces: Sequence[Piece],
    engine: Engine,
    reports: list[CorpusReport],
) -> list[Chunk]:
    """Source files to chunks of documents."""
    from phrasemem.pipeline.documents import read_part

    parts = engine.run(plan.read, read_part, lambda: _read_jobs(config, pieces))
    if not engine.timings[-1].skipped:
        _refuse_changed(pieces, engine.work / plan.read.name)
    chunks = []
    for key, part in parts.items():
        corpus = int(key.split("-")[0])
        reports[corpus].read += part["documents"]
        reports[corpus].left_out.update(part["left_out"])
        chunks += [Chunk(name, corpus) for name in part["chunks"]]
    for report in reports:
        if report.read == 0:
            raise CorpusError(
                f"corpus {report.name!r} has no documents ({_reasons(report)})",
                where=report.source,
                hint="is it the right file, format and text_field?",
            )
    return chunks


def _refuse_changed(pieces: Sequence[Piece], folder: Path) -> None:
    try:
        refuse_changed(pieces)
    except ReadError:
        # What was read is not what the fingerprint says.
        forget(folder)
        raise


def _read_jobs(config: BuildConfig, pieces: Sequence[Piece]) -> list[Job]:
    jobs: list[Job] = []
    for ordinal, piece in enumerate(pieces):
        corpus = config.corpora[piece.corpus]
        shards = _shards(config, piece)
        siblings = sum(other.corpus == piece.corpus for other in pieces)
        # A dataset has shards, a file has spans; there is one of the other.
        for shard, span in product(range(shards), _spans(config, piece)):
            arguments = {
                "corpus": corpus.model_dump(),
                "name": piece.name,
                "location": piece.location,
                "shard": shard,
                "shards": shards,
                "pieces_of_corpus": siblings * shards,
                "chunk_chars": config.partition_chars,
                "span": span,
                "max_record_bytes": config.reading.max_record_bytes,
            }
            key = f"{piece.corpus:03d}-{ordinal:06d}-{shard:06d}"
            jobs.append(Job(key if span is None else f"{key}-{_named(span)}", arguments))
    return jobs


def _named(span: tuple[int, int]) -> str:
    """Name a span in the key of its part, so that keys sort as the file does."""
    return f"{span[0]:015d}-{span[1]:015d}"


def _spans(config: BuildConfig, piece: Piece) -> list[tuple[int, int] | None]:
    """Cut a large file into spans.

    Not where the corpus has a budget: each file reads its share of it from its start, and a share
    for each span would be other documents for another size of spans.
    """
    corpus = config.corpora[piece.corpus]
    if piece.is_dataset or corpus.budget.max_documents or corpus.budget.max_bytes:
        return [None]
    from phrasemem.pipeline.read import Source, format_of
    from phrasemem.pipeline.read.spans import spans_of

    source = Source(piece.location, piece.name)
    return spans_of(source, format_of(source, corpus.format), config.reading.split_bytes)


def _shards(config: BuildConfig, piece: Piece) -> int:
    if not piece.is_dataset:
        return 1
    from phrasemem.pipeline.read.hub import shard_count

    return shard_count(config.corpora[piece.corpus], piece.location)


def clean(
    config: BuildConfig,
    plan: Plan,
    chunks: Sequence[Chunk],
    known: LookedFor,
    engine: Engine,
    reports: list[CorpusReport],
) -> None:
    """Repair and normalise text, remove what is no author's, drop what is no document."""
    from phrasemem.pipeline.clean import clean_part

    def job(chunk: Chunk) -> Job:
        corpus = config.corpora[chunk.corpus]
        arguments = {
            "source": engine.file(plan.read, f"{chunk.key}.parquet"),
            "cleaning": config.cleaning.model_dump(),
            "repairs": corpus.repairs,
            "language": corpus.language,
            "kind": corpus.kind,
            "repeated": known.repeated[chunk.corpus],
            "evaluation": known.evaluation,
        }
        return Job(chunk.key, arguments)

    parts = engine.run(plan.clean, clean_part, lambda: [job(chunk) for chunk in chunks])
    for chunk in chunks:
        reports[chunk.corpus].dropped.update(parts[chunk.key]["dropped"])
        reports[chunk.corpus].removed.update(parts[chunk.key]["removed"])
    for report in reports:
        if report.dropped.total() == report.read:
            raise CorpusError(
                f"cleaning leaves nothing of corpus {report.name!r} ({_reasons(report)})",
                where=report.source,
            )


def select(
    config: BuildConfig,
    plan: Plan,
    chunks: Sequence[Chunk],
    engine: Engine,
    reports: list[CorpusReport],
    earlier: str | None,
) -> int:
    """Drop duplicates and set the held-out documents aside.

    Returns how many are longer than a document of their title that stays for being there already.
    """
    from phrasemem.pipeline.select import select_part

    listed = [
        {"path": engine.file(plan.clean, f"{chunk.key}.parquet"), "corpus": chunk.corpus}
        for chunk in chunks
    ]
    part = engine.run_one(
        plan.select,
        select_part,
        lambda: {
            "chunks": listed,
            "held_out": [config.held_out_share(corpus) for corpus in config.corpora],
            "names": [corpus.name for corpus in config.corpora],
            "kinds": [corpus.kind for corpus in config.corpora],
            "memory_limit": _SELECT_MEMORY,
            "threshold": config.cleaning.near_duplicates.threshold,
            "keep": "all" in plan.select.settings,
            "earlier": earlier,
        },
    )
    for report, decisions in zip(reports, part["decisions"], strict=True):
        report.decisions.update(decisions)
    return int(part["shorter_kept"])


def tokenize(
    config: BuildConfig,
    plan: Plan,
    chunks: Sequence[Chunk],
    shorter_kept: int,
    engine: Engine,
    reports: list[CorpusReport],
) -> Tokenized:
    """Mined documents to token ids, held-out documents to JSON lines."""
    from phrasemem.pipeline.tokens import tokenize_part

    def job(position: int, chunk: Chunk) -> Job:
        corpus = config.corpora[chunk.corpus]
        arguments = {
            "source": engine.file(plan.clean, f"{chunk.key}.parquet"),
            "decisions": engine.file(plan.select, "decisions.parquet"),
            "chunk": position,
            "corpus": corpus.name,
            "kind": corpus.kind,
            "model": config.model,
        }
        return Job(chunk.key, arguments)

    parts = engine.run(
        plan.tokenize, tokenize_part, lambda: [job(*pair) for pair in enumerate(chunks)]
    )
    for chunk in chunks:
        reports[chunk.corpus].documents += parts[chunk.key]["documents"]
        reports[chunk.corpus].tokens += parts[chunk.key]["tokens"]
    held_out = [
        engine.file(plan.tokenize, f"{chunk.key}.heldout.jsonl")
        for chunk in chunks
        if parts[chunk.key]["held_out"]
    ]
    first = parts[chunks[0].key]
    tokenizer = first["tokenizer"], first["vocab_size"]
    return Tokenized(list(chunks), held_out, *tokenizer, shorter_kept)


def _reasons(report: CorpusReport) -> str:
    counts = report.left_out + report.dropped
    return ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items())) or "empty"
