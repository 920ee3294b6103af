"""The report of a run: its figures, its coverage, and that hostile texts stay texts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrasemem.pipeline.ledger import StageRecord
from phrasemem.pipeline.report import BuildReport, CorpusReport
from phrasemem.pipeline.run_report import as_html, coverage, report_of, write_report

HOSTILE = "<script>alert('x')</script>$\\frac{1}{2}$&amp;"


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    table = pa.table(
        {
            "n": pa.array([1, 2, 2, 3], pa.uint8()),
            "count": pa.array([90, 5, 10, 4], pa.uint32()),
            "score": pa.array([None, 1.0, 3.0, 2.0], pa.float32()),
        }
    )
    folder = tmp_path / "memory"
    folder.mkdir()
    pq.write_table(table, folder / "catalogue.parquet")
    return folder


def build_report() -> BuildReport:
    corpus = CorpusReport(HOSTILE, "web", HOSTILE, False, HOSTILE, read=12, documents=7, tokens=50)
    corpus.dropped[HOSTILE] = 3
    corpus.decisions.update({"kept": 7, "duplicate": 2})
    corpus.removed[HOSTILE] = 1234
    return BuildReport([corpus], 3, 1000, [], did_nothing=False, single=1, notes=[HOSTILE])


STAGES = [
    StageRecord("read", "f", "done", 4, 4, 0, 2.5, 4.0, 3.0, 10_000_000, 77),
    StageRecord("store", "f"),
]


def test_the_figures(memory: Path) -> None:
    report = report_of(memory, build_report(), STAGES)
    assert report["lengths"] == {"2": 2, "3": 1}
    assert report["coverage"]["points"] == [
        {"phrases": 1, "coverage": 20 / 50},
        {"phrases": 2, "coverage": 32 / 50},
        {"phrases": 3, "coverage": 42 / 50},
    ]
    assert report["corpora"][0]["not_mined"] == {HOSTILE: 3, "duplicate": 2}
    assert [stage["name"] for stage in report["stages"]] == ["read"]
    assert report["stages"][0]["bytes"] == 77


def test_the_page_stands_alone_and_escapes(memory: Path, tmp_path: Path) -> None:
    page = write_report(tmp_path / "work", memory, build_report(), STAGES)
    text = page.read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "1,234" in text  # removed from texts
    assert "http://" not in text.replace("http://www.w3.org/", "")
    assert text.count("<svg") == 5
    for start in range(5):
        svg = "<svg" + text.split("<svg")[start + 1].split("</svg>")[0] + "</svg>"
        ElementTree.fromstring(svg)
    assert json.loads((page.parent / "report.json").read_text())["phrases"] == 3


def test_without_matplotlib_the_install_line_is_shown(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = as_html(report_of(memory, build_report(), STAGES))
    assert "<svg" not in text
    assert "phrasemem[report]" in text


@given(st.lists(st.tuples(st.integers(2, 6), st.integers(1, 100), st.integers(0, 5)), max_size=40))
def test_coverage_is_a_running_sum(rows: list[tuple[int, int, int]]) -> None:
    lengths, counts, scores = (list(column) for column in zip(*rows, strict=True)) if rows else (
        [], [], [],
    )  # fmt: skip
    table = pa.table(
        {
            "n": pa.array(lengths, pa.uint8()),
            "count": pa.array(counts, pa.uint32()),
            "score": pa.array(np.array(scores, np.float32)),
        }
    )
    ordered = sorted(range(len(rows)), key=lambda row: -scores[row])
    points: list[Any] = coverage(table, 10)
    assert [p["phrases"] for p in points][-1:] == ([len(rows)] if rows else [])
    for point in points:
        best = ordered[: int(point["phrases"])]
        assert point["coverage"] * 10 == pytest.approx(sum(counts[r] * lengths[r] for r in best))
