"""The docs are run: shell and Python blocks of README.md and docs/*.md, on a small memory.

``phrasemem`` and Python blocks are run as they stand, in a folder where ``build/memory`` is a
memory built by the real command from the ``tiny`` profile. ``make`` lines are checked with
``make -n``: they do what tests of their own cover, at full size.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: str
    number: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.number}:{self.language}"


def blocks(language: str) -> list[Block]:
    found = []
    for page in PAGES:
        for number, match in enumerate(_FENCE.finditer(page.read_text()), 1):
            if match[1] == language:
                found.append(Block(page.name, number, match[1], match[2]))
    return found


def shell_commands() -> list[tuple[Block, str]]:
    found = []
    for block in blocks("bash"):
        for line in block.code.replace("\\\n", " ").splitlines():
            if (command := line.split(" #")[0].strip()) and not command.startswith("#"):
                found.append((block, command))
    return found


COMMANDS = shell_commands()


def commands_of(program: str) -> list[str]:
    # In the order of the pages: a command may use what one before it has made.
    return [*dict.fromkeys(c for _, c in COMMANDS if shlex.split(c)[0] == program)]


def test_only_known_kinds_of_block() -> None:
    kinds = {m[1] for page in PAGES for m in _FENCE.finditer(page.read_text())}
    assert kinds <= {"bash", "python", "text", "yaml", "json", "sql"}
    assert {shlex.split(c)[0] for _, c in COMMANDS} <= {"make", "phrasemem", "git", "cd"}


@pytest.mark.parametrize("command", commands_of("make"))
def test_make_targets_exist(command: str) -> None:
    done = subprocess.run(
        ["make", "-n", *shlex.split(command)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", commands_of("phrasemem"))
def test_commands_run(command: str, docs_folder: Path) -> None:
    if "build " in command and "--profile tiny" not in command:
        command += " --help"
    program = Path(sys.executable).with_name("phrasemem")
    done = subprocess.run(
        [str(program), *shlex.split(command)[1:]],
        cwd=docs_folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_blocks_run(block: Block, docs_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.code],
        cwd=docs_folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
