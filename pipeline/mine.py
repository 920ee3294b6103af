"""The first half of a build: from corpora to the catalogue, without vectors and memory."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.corpus_stages import tokenized_corpora
from phrasemem.pipeline.derive import CATALOGUE_FILE
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Executor
from phrasemem.pipeline.ledger import Ledger
from phrasemem.pipeline.phrase_stages import choose_phrases
from phrasemem.pipeline.plan import Plan, make_plan
from phrasemem.pipeline.progress import PeakMemory, Reporter
from phrasemem.pipeline.report import CorpusReport
from phrasemem.pipeline.run import Workplace, empty_reports, locked
from phrasemem.pipeline.scored_table import SCORED_FILE
from phrasemem.pipeline.sources import find_pieces
from phrasemem.pipeline.space import Space, stages_that_run


@dataclass(frozen=True)
class Mined:
    """What mining left in the work folder.

    Attributes
    ----------
    work : Path
    plan : Plan
    corpora : list of CorpusReport
    candidates, phrases : int
    max_phrases : int
        The budget; that of bytes may leave less than ``mining.max_phrases``.
    """

    work: Path
    plan: Plan
    corpora: list[CorpusReport]
    candidates: int
    phrases: int
    max_phrases: int

    @property
    def catalogue(self) -> Path:
        """The chosen phrases."""
        return self.work / self.plan.score.name / CATALOGUE_FILE

    @property
    def scored(self) -> Path:
        """All candidates with their scores, and why each is in or out."""
        return self.work / self.plan.score.name / SCORED_FILE


def mine(config: BuildConfig, where: Workplace, base: Path | None = None) -> Mined:
    """Run the stages up to ``score``; a build in the same work folder goes on from there.

    Parameters
    ----------
    config : BuildConfig
    where : Workplace
    base : Path, optional
        Where relative source paths start; the current folder by default.

    Raises
    ------
    PhraseMemError
        With one clear line, for whatever the user can mend.
    """
    pieces = find_pieces(config.corpora, (base or Path()).absolute())
    plan = make_plan(config, pieces)
    keeps_all = config.mining.keep_counts
    stages = stages_that_run(
        plan.stages(), config.cleaning, keeps_all=keeps_all, keeps_store=keeps_all
    )
    space = Space(where.work, stages, low_disk=where.low_disk, check=where.check_disk)
    with (
        locked(where.work),
        Ledger(where.work, stages) as ledger,
        Executor(
            where.workers, where.scheduler, where.work / ".dask", shared=(where.work,)
        ) as executor,
        PeakMemory() as memory,
    ):
        engine = Engine(where.work, executor, where.reporter, memory, ledger, space)
        for name in space.make_again():
            where.reporter.say(f"{name}: runs again: its files were removed and are needed")
        reports = empty_reports(config)
        tokenized = tokenized_corpora(config, plan, pieces, engine, reports, None)
        chosen, _ = choose_phrases(config, plan, tokenized, engine, reports)
    return Mined(
        where.work, plan, reports, chosen["candidates"], chosen["phrases"], chosen["max_phrases"]
    )


def quiet(work: Path, workers: int | None = None) -> Workplace:
    """Return a workplace that says nothing."""
    return Workplace(work.absolute(), None, workers, Reporter(io.StringIO()))
