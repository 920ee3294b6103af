"""How far a build is: while it runs, when it was killed, when it failed, when it is over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import filelock
import pytest

from phrasemem.pipeline.ledger import LOCK_FILE, STATUS_FILE, Ledger, StageRecord
from phrasemem.pipeline.stage import Stage
from phrasemem.pipeline.status import StatusError, status_lines, status_of
from phrasemem.pipeline.worker import Done

READ = Stage("read", 1)
CLEAN = Stage("clean", 1, {"min_chars": 100})
CHANGED = Stage("clean", 1, {"min_chars": 50})
OUT = {"out": "memory"}


def records(work: Path, *stages: Stage) -> dict[str, StageRecord]:
    return {record.name: record for record in Ledger(work, stages).records()}


def half_way(work: Path) -> None:
    """Leave a status as a build does that was killed in its second stage."""
    ledger = Ledger(work, (READ, CLEAN), OUT)
    ledger.__enter__()
    ledger.begin(READ, 1, 0)
    ledger.part(READ, Done({}, 2.0, 1.5))
    ledger.end("read", 2.5, 1000, 77)
    ledger.begin(CLEAN, 4, 0)
    ledger.part(CLEAN, Done({}, 1.0, 0.5))
    ledger._write("running")
    ledger._stop.set()
    ledger._thread.join()


def test_a_folder_without_a_build(tmp_path: Path) -> None:
    with pytest.raises(StatusError, match="no build has run"):
        status_of(tmp_path / "none")


def test_a_build_that_runs(tmp_path: Path) -> None:
    half_way(tmp_path)
    with filelock.FileLock(tmp_path / LOCK_FILE):
        status = status_of(tmp_path)
    assert (status["state"], status["locked"]) == ("running", True)
    assert status["rate"] > 0
    assert status["eta"] == pytest.approx(3 / status["rate"])
    assert status["bytes"] == (tmp_path / STATUS_FILE).stat().st_size
    lines = status_lines(status, tmp_path)
    assert lines[0].startswith("running for ")
    assert [line.split() for line in lines[3:5]] == [
        ["read", "done", "1", "of", "1", "2.5"],
        ["clean", "running", "1", "of", "4"],
    ]


def test_a_build_that_was_killed(tmp_path: Path) -> None:
    half_way(tmp_path)
    (tmp_path / LOCK_FILE).touch()
    status = status_of(tmp_path)
    assert (status["state"], status["locked"], status["eta"]) == ("killed", False, None)
    lines = status_lines(status, tmp_path)
    assert lines[0].startswith("stopped at clean ")
    assert f"run the same command again with --work {tmp_path}" in lines[0]
    assert lines[4].split()[1] == "stopped"


def test_what_an_earlier_run_took_counts_if_the_stage_is_the_same(tmp_path: Path) -> None:
    half_way(tmp_path)
    same = records(tmp_path, READ, CLEAN)
    assert (same["clean"].state, same["clean"].cpu_seconds) == ("waiting", 0.5)
    assert (same["read"].seconds, same["read"].bytes) == (2.5, 77)
    assert records(tmp_path, READ, CHANGED)["clean"].cpu_seconds == 0.0


def test_a_resumed_stage_adds_up(tmp_path: Path) -> None:
    half_way(tmp_path)
    with Ledger(tmp_path, (READ, CLEAN), OUT) as ledger:
        ledger.skip(READ, 1)
        ledger.begin(CLEAN, 4, 1)
        for _ in range(3):
            ledger.part(CLEAN, Done({}, 1.0, 0.5))
        ledger.end("clean", 9.0, 500, 88)
    status = status_of(tmp_path)
    assert status["state"] == "finished"
    clean = status["stages"][1]
    assert (clean["done"], clean["done_before"], clean["cpu_seconds"]) == (4, 1, 2.0)
    assert status["stages"][0]["seconds"] == 2.5


@pytest.mark.parametrize(
    ("error", "told"), [(OSError(28, "No space left"), "No space left"), (ValueError(3), "Value")]
)
def test_a_build_that_failed_says_why(tmp_path: Path, error: Exception, told: str) -> None:
    def fail() -> None:
        with Ledger(tmp_path, (READ,), OUT) as ledger:
            ledger.begin(READ, 1, 0)
            raise error

    with pytest.raises(type(error)):
        fail()
    status = status_of(tmp_path)
    assert status["state"] == "failed"
    assert told in status_lines(status, tmp_path)[0]


def test_a_damaged_status_is_none(tmp_path: Path) -> None:
    (tmp_path / STATUS_FILE).write_text('{"stages": [')
    with pytest.raises(StatusError):
        status_of(tmp_path)
    (tmp_path / STATUS_FILE).write_text(json.dumps({"stages": [{"other": 1}]}))
    assert records(tmp_path, READ)["read"].done == 0


def test_the_command(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from phrasemem.cli import cli

    half_way(tmp_path)
    plain = CliRunner().invoke(cli, ["status", str(tmp_path)])
    assert plain.exit_code == 0
    assert plain.output.startswith("stopped at clean")
    data: dict[str, Any] = json.loads(
        CliRunner().invoke(cli, ["status", str(tmp_path), "--json"]).output
    )
    assert data["state"] == "killed"
