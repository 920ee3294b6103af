"""What the commands share that make a memory from memories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from phrasemem.pipeline.remake import Remade

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_options(command: _Command) -> _Command:
    """Add ``--out`` and ``--replace``."""
    out = click.option(
        "--out", type=click.Path(path_type=Path), required=True, help="Folder of the new memory."
    )
    replace = click.option("--replace", is_flag=True, help="Replace the memory that stands there.")
    return out(replace(command))


def tokenizer_option(command: _Command) -> _Command:
    """Add ``--model``."""
    return click.option(
        "--model", metavar="REF", help="Load the tokenizer from here, not from where it came."
    )(command)


def print_remade(out: Path, remade: Remade) -> None:
    """Verify a new memory, and print what became of the phrases."""
    from phrasemem.memfmt.verify import verify

    files = verify(out).files
    click.echo("\n".join(remade.lines()))
    click.echo(f"verified: {files} files are right in {out}")
