"""Runs one stage after another: skips what is done, goes on where a build stopped, measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from phrasemem.pipeline.executor import Executor, Job
from phrasemem.pipeline.ledger import Ledger
from phrasemem.pipeline.progress import PeakMemory, Reporter, StageTiming
from phrasemem.pipeline.space import Space, folder_bytes
from phrasemem.pipeline.stage import Report, Stage, finish, part_report, prepare

PartReports = dict[str, Report]


class Engine:
    """The work folder and whatever runs stages in it.

    Attributes
    ----------
    work : Path
        One folder a stage.
    timings : list of StageTiming
        Of the stages so far.
    """

    def __init__(
        self,
        work: Path,
        executor: Executor,
        reporter: Reporter,
        memory: PeakMemory,
        ledger: Ledger | None = None,
        space: Space | None = None,
    ) -> None:
        self.work = work
        self.timings: list[StageTiming] = []
        self._executor = executor
        self._reporter = reporter
        self._memory = memory
        self._ledger = ledger or Ledger()
        self._space = space or Space(work, (), check=False)

    @property
    def threads(self) -> int:
        """Threads that a stage of a single part may use."""
        return self._executor.threads

    def file(self, stage: Stage, name: str) -> str:
        """Return the path of a file that a stage writes."""
        return str(self.work / stage.name / name)

    def run(
        self,
        stage: Stage,
        function: Callable[..., Report],
        make_jobs: Callable[[], Sequence[Job]],
        folder: Path | None = None,
    ) -> PartReports:
        """Run the parts of a stage that are not done yet.

        Parameters
        ----------
        stage : Stage
        function : callable
            Takes (folder, key, **arguments); must be importable in a worker.
        make_jobs : callable
            Called only if the stage is not complete. Keys sort in the order of the parts.
        folder : Path, optional
            Where the stage writes, if not in the work folder; then no marker of completion is
            left, and what becomes of the folder is the caller's business.

        Returns
        -------
        dict
            Report of every part, in the order of the keys.
        """
        started = time.monotonic()
        self._memory.take()
        place = folder or self.work / stage.name
        prepared = prepare(place, stage)
        if prepared.note:
            self._reporter.say(f"{stage.name}: {prepared.note}")
        if prepared.report is not None:
            self.timings.append(StageTiming(stage.name, 0.0, 0, skipped=True))
            self._ledger.skip(stage, len(prepared.report["parts"]))
            self._space.release_after(stage.name)
            return dict(sorted(prepared.report["parts"].items()))
        self._space.ask_for_room(stage.name)
        reports = self._run_missing(stage, function, make_jobs(), place)
        size = folder_bytes(place)
        if folder is None:
            finish(place, {"parts": reports})
            self._space.release_after(stage.name)
        self.record(stage.name, started, say=folder is None, size=size)
        return reports

    def run_one(
        self, stage: Stage, function: Callable[..., Report], arguments: Callable[[], dict[str, Any]]
    ) -> Report:
        """Run a stage that has a single part."""
        return self.run(stage, function, lambda: [Job("all", arguments())])["all"]

    def record(self, name: str, started: float, say: bool = True, size: int = 0) -> None:
        """Take down what a stage took and its bytes on disk; the same name again adds to it."""
        seconds, peak = time.monotonic() - started, self._memory.take()
        self._ledger.end(name, seconds, peak, size)
        if self.timings and self.timings[-1].name == name:
            before = self.timings.pop()
            seconds, peak = seconds + before.seconds, max(peak, before.peak_bytes)
        self.timings.append(StageTiming(name, seconds, peak, skipped=False))
        if say:
            self._reporter.say(f"{name}: {seconds:.1f} s, peak memory {peak / 1e9:.2f} GB")

    def _run_missing(
        self, stage: Stage, function: Callable[..., Report], jobs: Sequence[Job], folder: Path
    ) -> PartReports:
        reports = {}
        missing = []
        for job in jobs:
            before = part_report(folder, job.key)
            if before is None:
                missing.append(job)
            else:
                reports[job.key] = before
        self._ledger.begin(stage, len(jobs), len(reports))
        with self._reporter.stage(stage.name, len(jobs), len(reports)) as tick:
            for key, done in self._executor.run(function, folder, missing):
                reports[key] = done.report
                self._ledger.part(stage, done)
                tick(len(reports))
        return dict(sorted(reports.items()))
