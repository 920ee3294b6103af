"""Write docs/cli.md from ``--help``, or check that it is up to date (``--check``)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from phrasemem.cli import cli

TARGET = Path(__file__).parent / "cli.md"
_WIDTH = 88


def reference() -> str:
    """Return the Markdown page: the help of the group and of every command."""
    parts = ["# Command line\n\nMade by `make docs-write` from `--help`; do not edit.\n"]
    root = click.Context(
        cli, info_name="phrasemem", terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    parts.append(_section("phrasemem", cli.get_help(root)))
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        if command is not None:
            inner = click.Context(command, info_name=name, parent=root)
            parts.append(_section(f"phrasemem {name}", command.get_help(inner)))
    return "\n".join(parts)


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{text}\n```\n"


def main() -> int:
    """Return 1 where the page on disk differs."""
    wanted = reference()
    if "--check" not in sys.argv:
        TARGET.write_text(wanted)
        return 0
    if not TARGET.exists() or TARGET.read_text() != wanted:
        print(f"{TARGET.name} is out of date: run `make docs-write`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
