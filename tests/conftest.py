"""Rules for every test: a skip prints its reason, and CI allows only the skips on a list."""

from __future__ import annotations

import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_LONGEST = ("test_docs", "test_inspect_sql", "test_kill", "test_build", "test_extend")
_ALLOWED = ROOT / "tests" / "allowed_skips.txt"


def _allowed_patterns() -> list[str]:
    lines = (line.split("#")[0].strip() for line in _ALLOWED.read_text().splitlines())
    return [line for line in lines if line]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, so that no process is left with one at the end."""
    items.sort(key=lambda item: _place(item.path.stem))


def _place(file: str) -> int:
    return _LONGEST.index(file) if file in _LONGEST else len(_LONGEST)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None:
        return
    patterns = _allowed_patterns()
    skipped = {report.nodeid for report in reporter.stats.get("skipped", [])}
    unexpected = sorted(n for n in skipped if not any(fnmatch(n, p) for p in patterns))
    if unexpected:
        reporter.write_line(f"\nskips that tests/allowed_skips.txt does not name: {unexpected}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def docs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build ``build/memory`` of the ``tiny`` profile in a scratch folder, by the real command."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "corpora.yaml").write_bytes((ROOT / "corpora.yaml").read_bytes())
    command = [str(Path(sys.executable).with_name("phrasemem")), "build", "--profile", "tiny"]
    command += ["--calibration-tokens", "2000"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder
