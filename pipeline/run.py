"""The main path: corpora in, memory out; the stages from top to bottom.

Every stage is a plain function over parts (:mod:`phrasemem.pipeline.stage`). What there is to do
is known from fingerprints before anything heavy is imported, so a second run does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from phrasemem.memfmt import manifest, writer
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline import existing, pack
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.corpus_stages import Tokenized, tokenized_corpora
from phrasemem.pipeline.derive import Ingredients, pack_memory
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Executor
from phrasemem.pipeline.phrase_stages import Catalogue, catalogue_of
from phrasemem.pipeline.plan import Plan, make_plan
from phrasemem.pipeline.progress import PeakMemory, Reporter
from phrasemem.pipeline.report import BuildReport, CorpusReport
from phrasemem.pipeline.scoring import scoring_of
from phrasemem.pipeline.sources import find_pieces


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

    record = existing.recorded_build(out)
    if record is not None and record["fingerprint"] == plan.fingerprint:
        reporter.say(f"nothing to do: {out} is what the configuration asks for")
        corpora = [CorpusReport.from_json(entry) for entry in record["corpora"]]
        counts = record["phrases"], _size(out)
        return BuildReport(corpora, *counts, [], did_nothing=True, single=record["single"])

    existing.refuse_other_folder(out)
    if not replace:
        encoder = (config.encoder.id, plan.embed.settings["encoder"])
        existing.refuse_other_memory(out, config.model, encoder)
    with (
        _locked(work),
        Executor(workers, scheduler, work / ".dask") as executor,
        PeakMemory() as memory,
    ):
        engine = Engine(work, executor, reporter, memory)
        reports = [
            CorpusReport(c.name, c.kind, c.licence, c.redistributable, ", ".join(c.sources))
            for c in config.corpora
        ]
        tokenized = tokenized_corpora(config, plan, pieces, engine, reports)
        catalogue = catalogue_of(config, plan, tokenized, engine, reports)
        _pack(config, plan, tokenized, catalogue, engine, reports, out)
    return BuildReport(
        reports,
        catalogue.phrases,
        _size(out),
        engine.timings,
        did_nothing=False,
        single=catalogue.single,
    )


def _pack(
    config: BuildConfig,
    plan: Plan,
    tokenized: Tokenized,
    catalogue: Catalogue,
    engine: Engine,
    reports: list[CorpusReport],
    out: Path,
) -> None:
    """Lay out the rows, write the shards, and give the memory its name."""
    record = {
        "corpora": [report.as_json() for report in reports],
        "fingerprint": plan.fingerprint,
        "phrases": catalogue.phrases,
        "single": catalogue.single,
        "scoring": scoring_of(config, catalogue.candidates).as_json(),
        "undecodable": catalogue.undecodable,
    }
    ingredients = Ingredients(
        header=_header(config, plan, tokenized, catalogue, reports),
        catalogue=catalogue.path,
        unigrams=catalogue.unigrams,
        vectors=catalogue.vectors,
        phrases_per_part=config.encoder.phrases_per_part,
        held_out=[Path(path) for path in tokenized.held_out],
        record=record,
        seed=config.seed,
        shard_bits=config.shard_bits,
    )
    pack_memory(ingredients, plan.layout, plan.pack, engine, out)


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
        compute=settings["compute"],
        n_max=config.mining.n_max,
        corpora=[{name: getattr(report, name) for name in shown} for report in reports],
    )


@contextmanager
def _locked(work: Path) -> Iterator[None]:
    """Keep a second build out of the work folder."""
    work.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(work / ".lock", timeout=0):
            yield
    except filelock.Timeout as error:
        raise BuildError(
            "another build is at work in this folder", where=work, hint="give another --work"
        ) from error


def _size(memory: Path) -> int:
    """Return the bytes of what was built here: adapters come later and are not counted."""
    files = (path for path in memory.rglob("*") if path.is_file())
    return sum(
        path.stat().st_size
        for path in files
        if path.relative_to(memory).parts[0] != manifest.ADAPTERS_NAME
    )
