"""The report of a run, for people: ``report/report.json`` and ``report.html`` in the work folder.

A memory is immutable and the same for every run, so seconds and dates stand here and not in it.
"""

from __future__ import annotations

import json
import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.pipeline.ledger import StageRecord
from phrasemem.pipeline.report import BuildReport

REPORT_FOLDER = "report"
COVERAGE = (
    "tokens in occurrences of the k phrases of highest score, for each token of the corpora: the "
    "sum of count times length over the mined tokens. Phrases that overlap or lie in each other "
    "count each time, so it is an upper bound of the share of the corpora that they cover, and "
    "can be above 1."
)
_CATALOGUE = "catalogue.parquet"
_TEMPLATE = Path(__file__).with_name("run_report.html")


def write_report(
    work: Path, memory: Path, report: BuildReport, stages: Sequence[StageRecord]
) -> Path:
    """Write the report of a build that has ended; return its HTML file.

    Parameters
    ----------
    work : Path
    memory : Path
        Must be complete.
    report : BuildReport
    stages : sequence of StageRecord
        Seconds and bytes over all runs that it took.
    """
    content = report_of(memory, report, stages)
    folder = work / REPORT_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    page = folder / "report.html"
    page.write_text(as_html(content), encoding="utf-8")
    return page


def report_of(memory: Path, report: BuildReport, stages: Sequence[StageRecord]) -> dict[str, Any]:
    """Return the report as plain data."""
    table = pq.read_table(memory / _CATALOGUE, columns=["n", "count", "score"])
    phrases = table.filter(pa.compute.greater_equal(table["n"], 2))
    tokens = sum(corpus.tokens for corpus in report.corpora)
    return {
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": platform.node(),
        "memory": str(memory),
        "bytes": report.bytes,
        "tokens": tokens,
        "phrases": report.phrases,
        "single": report.single,
        "notes": report.notes,
        "corpora": [
            {**corpus.as_json(), "not_mined": _not_mined(corpus)} for corpus in report.corpora
        ],
        "lengths": _lengths(phrases),
        "coverage": {"definition": COVERAGE, "points": coverage(phrases, tokens)},
        "stages": [asdict(stage) for stage in stages if stage.state == "done"],
    }


def _not_mined(corpus: Any) -> dict[str, int]:
    reasons: Counter[str] = corpus.left_out + corpus.dropped + corpus.decisions
    return {name: number for name, number in sorted(reasons.items()) if name != "kept"}


def _lengths(phrases: pa.Table) -> dict[str, int]:
    lengths, numbers = np.unique(phrases["n"].to_numpy(), return_counts=True)
    return {str(n): int(number) for n, number in zip(lengths, numbers, strict=True)}


def coverage(phrases: pa.Table, tokens: int) -> list[dict[str, float]]:
    """Return what the best 1, 2, 4, ... phrases reach, and what all do; see ``COVERAGE``.

    Parameters
    ----------
    phrases : Table
        n, count, score.
    tokens : int
        Mined tokens of all corpora.
    """
    best = np.argsort(-phrases["score"].to_numpy(), kind="stable")
    covered = phrases["count"].to_numpy().astype(np.int64) * phrases["n"].to_numpy()
    running = np.cumsum(covered[best])
    sizes = sorted({*(1 << power for power in range(len(best).bit_length())), len(best)} - {0})
    return [
        {"phrases": size, "coverage": float(running[size - 1]) / max(1, tokens)} for size in sizes
    ]


def as_html(content: dict[str, Any]) -> str:
    """Return one page that needs no other file; every text in it is escaped.

    Plots are drawn where matplotlib is installed (the extra ``report``).
    """
    from jinja2 import Environment

    from phrasemem.pipeline.run_plots import plots_of

    page = Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return page.render(report=content, plots=plots_of(content))
