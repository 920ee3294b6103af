"""Rules for every test: a skip prints its reason, and CI allows only the skips on a list."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

import pytest

_ALLOWED = Path(__file__).parent / "allowed_skips.txt"


def _allowed_patterns() -> list[str]:
    lines = (line.split("#")[0].strip() for line in _ALLOWED.read_text().splitlines())
    return [line for line in lines if line]


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
