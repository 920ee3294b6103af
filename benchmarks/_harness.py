"""One form for all benchmarks: timing, a JSON object a line, and a table.

A result is a measurement beside that of a named rival, both taken in this run. A rival that
is not installed is reported as SKIPPED and a target that is not reached as MISSED; neither
fails the run, since a benchmark informs and a test decides.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

OUT = Path("build/bench")


@dataclass(frozen=True)
class Result:
    """One measured figure beside its rival's.

    Parameters
    ----------
    name : str
        What was measured, such as ``lookup/32``.
    value, rival_value : float or None
        In ``unit``; None where a side was not run.
    unit : str
        Such as ``us/batch`` or ``lookups/s``.
    rival : str
        Library and call that did the same work.
    state : str
        ``warm`` or ``cold`` page cache.
    higher_is_better : bool
        Fixes the direction of ``ratio``: above 1 always means ahead of the rival.
    target : float or None
        Ratio to reach.
    note : str
        Anything a reader must know, such as a size.
    """

    name: str
    value: float | None
    unit: str
    rival: str
    rival_value: float | None
    state: str
    higher_is_better: bool = False
    target: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better than the rival; above 1 is ahead."""
        if not self.value or not self.rival_value:
            return None
        up = self.value / self.rival_value
        return up if self.higher_is_better else 1 / up

    @property
    def verdict(self) -> str:
        """SKIPPED, MISSED, OK, or nothing where there is no target."""
        if self.ratio is None:
            return "SKIPPED"
        if self.target is None:
            return ""
        return "OK" if self.ratio >= self.target else "MISSED"


def machine() -> str:
    """Describe this machine in one line: processor, cores, memory, Python."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            ln.split(":", 1)[1].strip() for ln in cpuinfo.open() if ln.startswith("model name")
        ]
        model = names[0] if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {python}"


def median_seconds(work: Callable[[], object], *, repeats: int, warm_up: int = 1) -> float:
    """Return the median time of ``repeats`` calls after ``warm_up`` unmeasured ones."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def report(results: list[Result], name: str) -> None:
    """Write ``build/bench/NAME.jsonl`` and print a table."""
    OUT.mkdir(parents=True, exist_ok=True)
    here = machine()
    with (OUT / f"{name}.jsonl").open("w") as file:
        for result in results:
            fields = asdict(result) | {"ratio": result.ratio, "machine": here}
            file.write(json.dumps(fields | {"verdict": result.verdict}) + "\n")
    table = Table("name", "value", "rival", "rival value", "unit", "ratio", "state", "", title=here)
    for result in results:
        table.add_row(*_cells(result))
    Console(width=None if Console().is_terminal else 140).print(table)


def _cells(result: Result) -> tuple[str, ...]:
    target = f" (>= {result.target:g})" if result.target is not None else ""
    return (
        f"{result.name} {result.note}".strip(),
        _figure(result.value),
        result.rival,
        _figure(result.rival_value),
        result.unit,
        _figure(result.ratio) + target,
        result.state,
        result.verdict,
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
