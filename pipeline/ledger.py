"""What a build writes down while it runs: ``status.json`` in the work folder.

It is for people and for the report of a run. Nothing of it goes into a memory or into a marker:
these must be the same bytes for every run.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.stage import Stage
from phrasemem.pipeline.worker import Done

STATUS_FILE = "status.json"
LOCK_FILE = ".lock"
HEARTBEAT_SECONDS = 2.0


@dataclass
class StageRecord:
    """What is known of one stage; sums are over all runs that wrote its parts.

    Attributes
    ----------
    state : str
        ``waiting``, ``running`` or ``done``.
    parts, done : int
        In all, and done; ``done_before`` of them before this run.
    seconds : float
        By the clock; ``part_seconds`` and ``cpu_seconds`` are summed over its parts.
    peak_bytes : int
        Resident memory of this process and local workers.
    bytes : int
        On disk when the stage ended.
    begun : float or None
        When this run began it, in seconds since 1970.
    """

    name: str
    fingerprint: str
    state: str = "waiting"
    parts: int = 0
    done: int = 0
    done_before: int = 0
    seconds: float = 0.0
    part_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    bytes: int = 0
    begun: float | None = None


class Ledger:
    """Keeps the records of the stages, and writes them every two seconds while it is open.

    Parameters
    ----------
    folder : Path, optional
        The work folder; nothing is written without.
    stages : sequence of Stage
        In order. What an earlier run took for a stage of the same fingerprint is kept.
    described : dict
        What else ``status`` shows: plain JSON data.
    """

    def __init__(
        self,
        folder: Path | None = None,
        stages: Sequence[Stage] = (),
        described: dict[str, Any] | None = None,
    ) -> None:
        self._path = None if folder is None else folder / STATUS_FILE
        before = _records(self._path)
        self._records = {stage.name: _carried(stage, before) for stage in stages}
        self._described = described or {}
        self._started = time.time()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="ledger", daemon=True)

    def __enter__(self) -> Ledger:
        self._write("running")
        self._thread.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._stop.set()
        self._thread.join()
        if error is None:
            self._write("finished")
        else:
            told = str(error) if isinstance(error, (PhraseMemError, OSError)) else repr(error)
            self._write("failed", told)

    def records(self) -> list[StageRecord]:
        """Return the records in the order of the stages."""
        return list(self._records.values())

    def skip(self, stage: Stage, parts: int) -> None:
        """Take down that a stage was done before this run."""
        record = self._of(stage)
        record.state, record.parts, record.done, record.done_before = "done", parts, parts, parts

    def begin(self, stage: Stage, parts: int, done: int) -> None:
        """Take down that a stage begins, with some parts done already."""
        record = self._of(stage)
        if not done:
            self._records[stage.name] = record = StageRecord(stage.name, stage.fingerprint)
        record.state, record.begun = "running", time.time()
        record.parts, record.done, record.done_before = parts, done, done

    def part(self, stage: Stage, done: Done) -> None:
        """Take down that a part ended."""
        record = self._of(stage)
        record.done += 1
        record.part_seconds += done.seconds
        record.cpu_seconds += done.cpu_seconds

    def end(self, name: str, seconds: float, peak_bytes: int, size: int) -> None:
        """Take down that a stage ended, or what it took besides."""
        record = self._records.get(name)
        if record is not None:
            record.state = "done"
            record.seconds += seconds
            record.peak_bytes = max(record.peak_bytes, peak_bytes)
            record.bytes = size

    def _of(self, stage: Stage) -> StageRecord:
        return self._records.setdefault(stage.name, StageRecord(stage.name, stage.fingerprint))

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            self._write("running")

    def _write(self, state: str, error: str | None = None) -> None:
        if self._path is None:
            return
        content = {
            **self._described,
            "state": state,
            "error": error,
            "pid": os.getpid(),
            "host": platform.node(),
            "started": self._started,
            "heartbeat": time.time(),
            "stages": [asdict(record) for record in self.records()],
        }
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with self._lock:
            try:
                temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
                temporary.replace(self._path)
            except OSError:
                # A full disk must be told by the stage that needs it, not by its record.
                temporary.unlink(missing_ok=True)


def read_status(folder: Path) -> dict[str, Any] | None:
    """Return what the last build in a work folder wrote down, or None."""
    try:
        content: dict[str, Any] = json.loads((folder / STATUS_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return content


def _records(path: Path | None) -> dict[str, StageRecord]:
    content = None if path is None else read_status(path.parent)
    try:
        found = [StageRecord(**record) for record in (content or {}).get("stages", [])]
    except TypeError:
        return {}  # of another version
    return {record.name: record for record in found}


def _carried(stage: Stage, before: dict[str, StageRecord]) -> StageRecord:
    record = before.get(stage.name)
    if record is None or record.fingerprint != stage.fingerprint:
        return StageRecord(stage.name, stage.fingerprint)
    record.state, record.begun = "waiting", None
    return record
