"""Bars on a terminal, plain lines elsewhere; the memory of workers counts."""

from __future__ import annotations

import io
import subprocess
import sys

from phrasemem.pipeline.progress import PeakMemory, Reporter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_a_file_does_not() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        reporter = Reporter(stream)
        with reporter.stage("embed", 4, 1) as tick:
            tick(3)
        reporter.say("embed: done")
    assert "3/4" in terminal.getvalue()
    assert file.getvalue() == "embed: done\n"


def test_a_long_stage_prints_plain_lines(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("phrasemem.pipeline.progress._PLAIN_EVERY_SECONDS", 0.0)
    file = io.StringIO()
    with Reporter(file).stage("embed", 4, 1) as tick:
        tick(3)
    assert file.getvalue() == "embed: 3 of 4 parts\n"


def test_the_peak_holds_child_processes() -> None:
    code = "x = bytearray(200_000_000); print('ready', flush=True); input()"
    with PeakMemory() as memory:
        before = memory.take()
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            assert memory.take() - before > 190_000_000
            child.communicate(b"\n")
    assert before > 10_000_000
