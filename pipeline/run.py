"""The main path: corpora in, memory out; the stages from top to bottom.

Every stage is a plain function over parts (:mod:`phrasemem.pipeline.stage`). What there is to do
is known from fingerprints before anything heavy is imported, so a second run does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock

from phrasemem.memfmt import manifest, writer
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline import count_store, existing, pack
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.corpus_stages import Tokenized, tokenized_corpora
from phrasemem.pipeline.derive import Ingredients, pack_memory
from phrasemem.pipeline.earlier import (
    Earlier,
    extension_record,
    inexactness,
    known_documents,
)
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Executor
from phrasemem.pipeline.ledger import LOCK_FILE, Ledger
from phrasemem.pipeline.phrase_stages import Catalogue, catalogue_of, keeps_all, keeps_store
from phrasemem.pipeline.plan import Plan, make_plan
from phrasemem.pipeline.progress import PeakMemory, Reporter
from phrasemem.pipeline.report import BuildReport, CorpusReport
from phrasemem.pipeline.run_report import write_report
from phrasemem.pipeline.scoring import scoring_of
from phrasemem.pipeline.sources import Piece, find_pieces
from phrasemem.pipeline.space import Space, stages_that_run
from phrasemem.pipeline.stage import Report

# A worker that lacks one file of a corpus most likely lacks them all.
_FILES_CHECKED = 4


class BuildError(PhraseMemError):
    """A build that cannot start."""


def build(
    config: BuildConfig,
    out: Path,
    *,
    work: Path | None = None,
    base: Path | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    replace: bool = False,
    reporter: Reporter | None = None,
    low_disk: bool = False,
    check_disk: bool = True,
    keep_work: bool = True,
) -> BuildReport:
    """Build a memory.

    Parameters
    ----------
    config : BuildConfig
    out : Path
        The memory's folder. It appears complete or not at all; a memory that stands there is
        replaced if it has the same tokenizer, encoder and format.
    work : Path, optional
        Folder of the stages; ``.OUT.work`` beside ``out`` by default. Keep it: a build that was
        stopped goes on from there, and a changed setting reruns only what depends on it.
    base : Path, optional
        Where relative source paths start; the current folder by default.
    scheduler : str, optional
        Address of a Dask scheduler; by default a local cluster is started.
    workers : int, optional
        Processes of the local cluster; one a core by default, 0 for this process alone.
    replace : bool
        Replace a memory of another tokenizer, encoder or format.
    reporter : Reporter, optional
        Where progress is shown.
    low_disk : bool
        Remove what a stage wrote once no stage that follows reads it.
    check_disk : bool
        Stop before a stage for which the disk most likely has no room.
    keep_work : bool
        Whether what the stages wrote stays when the memory is whole; the report does.

    Raises
    ------
    PhraseMemError
        With one clear line, for whatever the user can mend.
    """
    out = out.absolute()
    work = (work or out.with_name(f".{out.name}.work")).absolute()
    reporter = reporter or Reporter()
    pieces = find_pieces(config.corpora, (base or Path()).absolute())
    plan = make_plan(config, pieces)

    if (done := finished(out, plan, config.mining.keep_counts, reporter)) is not None:
        return done
    existing.refuse_other_folder(out)
    if not replace:
        settings = plan.embed.settings
        encoder = (config.encoder.id, settings["encoder"], settings["how"])
        existing.refuse_other_memory(out, config.model, encoder, config.key_normalisation)
    where = Workplace(work, scheduler, workers, reporter, low_disk, check_disk, keep_work)
    return run_stages(config, plan, pieces, out, where)


def finished(out: Path, plan: Plan, keep_counts: bool, reporter: Reporter) -> BuildReport | None:
    """Return the report of a memory that is what the plan would make, or None."""
    record = existing.recorded_build(out)
    if record is None or record.get("fingerprint") != plan.fingerprint:
        return None
    if keep_counts and not count_store.stands_beside(out):
        return None
    reporter.say(f"nothing to do: {out} is what the configuration asks for")
    corpora = [CorpusReport.from_json(entry) for entry in record["corpora"]]
    return BuildReport(
        corpora,
        record["phrases"],
        _size(out),
        [],
        did_nothing=True,
        single=record["single"],
        notes=inexactness(record.get("extended")),
    )


@dataclass(frozen=True)
class Workplace:
    """Where stages run and what they leave; see :func:`build`."""

    work: Path
    scheduler: str | None
    workers: int | None
    reporter: Reporter
    low_disk: bool = False
    check_disk: bool = True
    keep_work: bool = True


def run_stages(
    config: BuildConfig,
    plan: Plan,
    pieces: list[Piece],
    out: Path,
    where: Workplace,
    earlier: Earlier | None = None,
) -> BuildReport:
    """Run the stages from top to bottom; the corpora come after those of ``earlier``."""
    stages = stages_that_run(
        plan.stages(),
        config.cleaning,
        keeps_all=keeps_all(plan),
        keeps_store=keeps_store(config, earlier),
    )
    space = Space(where.work, stages, low_disk=where.low_disk, check=where.check_disk)
    with (
        locked(where.work),
        Ledger(where.work, stages, {"out": str(out)}) as ledger,
        Executor(
            where.workers,
            where.scheduler,
            where.work / ".dask",
            shared=(where.work, out.parent),
            read=_inputs_of_workers(config, pieces),
        ) as executor,
        PeakMemory() as memory,
    ):
        engine = Engine(where.work, executor, where.reporter, memory, ledger, space)
        for name in space.make_again():
            where.reporter.say(f"{name}: runs again: its files were removed and are needed")
        reports = empty_reports(config)
        known = known_documents(plan, engine, earlier)
        tokenized = tokenized_corpora(config, plan, pieces, engine, reports, known)
        catalogue = catalogue_of(config, plan, tokenized, engine, reports, earlier)
        extended = extension_record(earlier, catalogue.path, tokenized.shorter_kept)
        _pack(config, plan, tokenized, catalogue, engine, reports, out, earlier, extended)
        report = BuildReport(
            [*(earlier.reports if earlier is not None else ()), *reports],
            catalogue.phrases,
            _size(out),
            engine.timings,
            did_nothing=False,
            single=catalogue.single,
            notes=inexactness(extended),
        )
        write_report(where.work, out, report, ledger.records())
        if not where.keep_work:
            space.remove_stages()
    return report


def _inputs_of_workers(config: BuildConfig, pieces: list[Piece]) -> list[Path]:
    """Return the local files that workers read, some of each corpus for all of it."""
    found = []
    for index in range(len(config.corpora)):
        local = [p.location for p in pieces if p.corpus == index and not p.is_dataset]
        found += local[:_FILES_CHECKED]
    models = [m for m in (config.model, config.encoder.id) if Path(m).exists()]
    return [Path(name) for name in (*found, *models)]


def empty_reports(config: BuildConfig) -> list[CorpusReport]:
    """Return a report of each corpus, to be filled by the stages."""
    return [
        CorpusReport(c.name, c.kind, c.licence, c.redistributable, ", ".join(c.sources))
        for c in config.corpora
    ]


def _pack(
    config: BuildConfig,
    plan: Plan,
    tokenized: Tokenized,
    catalogue: Catalogue,
    engine: Engine,
    own: list[CorpusReport],
    out: Path,
    earlier: Earlier | None,
    extended: Report | None,
) -> None:
    """Lay out the rows, write the shards, and give the memory its name."""
    reports = [*(earlier.reports if earlier is not None else ()), *own]
    shares = {} if earlier is None else dict(zip(earlier.names, earlier.shares, strict=True))
    held_out = [] if earlier is None else earlier.held_out
    record = {
        "corpora": [report.as_json() for report in reports],
        "fingerprint": plan.fingerprint,
        "phrases": catalogue.phrases,
        "single": catalogue.single,
        "scoring": scoring_of(config, catalogue.candidates, shares).as_json(),
        "undecodable": catalogue.undecodable,
    }
    ingredients = Ingredients(
        header=_header(config, plan, tokenized, catalogue, reports),
        catalogue=catalogue.path,
        unigrams=catalogue.unigrams,
        vectors=catalogue.vectors,
        phrases_per_part=config.encoder.phrases_per_part,
        held_out=[*held_out, *(Path(path) for path in tokenized.held_out)],
        record=record if extended is None else {**record, "extended": extended},
        seed=config.seed,
        shard_bits=config.shard_bits,
    )
    manifest = pack_memory(ingredients, plan.layout, plan.pack, engine, out)
    if keeps_store(config, earlier):
        documents = engine.file(plan.select, count_store.DOCUMENTS_FILE)
        count_store.write_store(count_store.store_path(out), manifest, catalogue.store, documents)


def _header(
    config: BuildConfig,
    plan: Plan,
    tokenized: Tokenized,
    catalogue: Catalogue,
    reports: list[CorpusReport],
) -> writer.Header:
    settings = plan.embed.settings
    shown = ("name", "kind", "licence", "source", "documents", "tokens")
    return pack.header_of(
        tokenizer=(tokenized.tokenizer, config.model, tokenized.vocab_size),
        encoder=(config.encoder.id, settings["encoder"], catalogue.dim),
        how=settings["how"],
        n_max=config.mining.n_max,
        corpora=[{name: getattr(report, name) for name in shown} for report in reports],
        folding_model=config.folding_model,
    )


@contextmanager
def locked(work: Path) -> Iterator[None]:
    """Keep a second build out of the work folder."""
    work.mkdir(parents=True, exist_ok=True)
    try:
        # Not 0: `phrasemem status` holds it for a moment to see whether a build does.
        with filelock.FileLock(work / LOCK_FILE, timeout=1):
            yield
    except filelock.Timeout as error:
        raise BuildError(
            "another build is at work in this folder", where=work, hint="give another --work"
        ) from error


def _size(memory: Path) -> int:
    """Return the bytes of what was built here: what is added later is not counted."""
    files = (path for path in memory.rglob("*") if path.is_file())
    return sum(
        path.stat().st_size
        for path in files
        if path.relative_to(memory).parts[0] not in manifest.ADDITIONS
    )
