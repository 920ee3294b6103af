"""The ``phrasemem`` command: parse, call, print. Each command is a module of this package."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from phrasemem._version import __version__
from phrasemem.cli.plain_text import one_line
from phrasemem.memfmt.errors import PhraseMemError

# Imported only when called: `phrasemem --help` must not wait for torch or dask.
_COMMANDS = {
    "build": "Mine corpora, embed phrases and write a memory.",
    "calibrate": "Fit the adapter of a backbone to a memory.",
    "diff": "Tell what differs between two memories.",
    "drop-corpus": "Take a corpus out of a memory.",
    "eval": "Perplexity on held-out text: frozen, attached, shuffled.",
    "extend": "Add corpora to a memory without the text that it was built from.",
    "generate": "Generate text, frozen and with memory, side by side.",
    "inspect": "Show what a memory holds, and where its bytes are.",
    "lookup": "Find the phrases of a text in a memory.",
    "mine": "Mine corpora, and say why a phrase is in or out.",
    "merge": "Make one memory of several.",
    "publish": "Copy a verified memory to another folder.",
    "pull": "Fetch a memory from a registry.",
    "push": "Publish a memory in a registry.",
    "retokenize": "Give the phrases of a memory the keys of another tokenizer.",
    "sql": "Run SQL over the catalogue of a memory.",
    "status": "Show how far a build is, or where it stopped.",
    "verify": "Check every byte of a memory.",
}


class _LazyGroup(click.Group):
    """A command group that imports a command's module when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"phrasemem.cli.{cmd_name.replace('-', '_')}_command")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="phrasemem")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Build a phrase memory, and let a frozen causal language model read it."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors become one line on standard error and exit status 1."""
    given: Any = sys.argv[1:] if arguments is None else arguments
    try:
        cli.main(args=given, prog_name="phrasemem")
    except (PhraseMemError, OSError) as error:
        if "--debug" in given:
            raise
        click.echo(f"phrasemem: {one_line(str(error)) or type(error).__name__}", err=True)
        raise SystemExit(1) from None
