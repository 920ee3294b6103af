"""``phrasemem publish``: copy a verified memory to another folder."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("publish")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("dest", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace what stands at DEST.")
def command(path: Path, dest: Path, replace: bool) -> None:
    """Copy the memory at PATH to the folder DEST, verified before and after.

    DEST appears only when the copy is complete and found right.
    """
    from phrasemem.cli.verify_command import print_report
    from phrasemem.memfmt.transport import copy_memory

    print_report(copy_memory(path, dest, replace=replace))
    click.echo(f"{'published':<10} {dest}")
