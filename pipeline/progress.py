"""What a build tells while it runs, and what it measures: seconds and peak memory a stage."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

import psutil

_SAMPLE_SECONDS = 0.2
_PLAIN_EVERY_SECONDS = 15.0


@dataclass(frozen=True)
class StageTiming:
    """What a stage took in this run.

    Attributes
    ----------
    seconds : float
    peak_bytes : int
        Largest sum of the resident memory of this process and its workers, sampled five times
        a second; pages that processes share count in each. 0 if the stage was skipped.
        Workers of another machine are not seen.
    skipped : bool
    """

    name: str
    seconds: float
    peak_bytes: int
    skipped: bool


Ticker = Callable[[int], None]


class Reporter:
    """Progress bars on a terminal, plain lines elsewhere; all on one stream.

    Parameters
    ----------
    stream : text file, optional
        Standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    def say(self, text: str) -> None:
        """Print one line."""
        print(text, file=self.stream, flush=True)

    @contextmanager
    def stage(self, name: str, total: int, done: int) -> Iterator[Ticker]:
        """Show the progress of one stage; the ticker takes the number of finished parts."""
        if self.stream.isatty():
            with self._bar(name, total, done) as ticker:
                yield ticker
        else:
            yield self._lines(name, total)

    @contextmanager
    def _bar(self, name: str, total: int, done: int) -> Iterator[Ticker]:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description:<11}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        console = Console(file=self.stream)
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(name, total=total, completed=done)
            yield lambda finished: progress.update(task, completed=finished)

    def _lines(self, name: str, total: int) -> Ticker:
        last = time.monotonic()

        def tick(finished: int) -> None:
            nonlocal last
            if time.monotonic() - last >= _PLAIN_EVERY_SECONDS:
                last = time.monotonic()
                self.say(f"{name}: {finished} of {total} parts")

        return tick


class PeakMemory:
    """Samples the resident memory of this process and all below it, in a thread."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def take(self) -> int:
        """Return the peak in bytes since the last call."""
        self._sample()
        peak, self._peak = self._peak, 0
        return peak

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        total = 0
        for process in (self._process, *self._process.children(recursive=True)):
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue  # it ended between the listing and the look
        self._peak = max(self._peak, total)
