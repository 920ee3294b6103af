"""``phrasemem status``: how far a build is."""

from __future__ import annotations

import json
from pathlib import Path

import click

from phrasemem.cli.pipeline_options import pipeline_needed
from phrasemem.cli.plain_text import one_line


@click.command("status")
@click.argument("work", type=click.Path(path_type=Path), default=Path("build/work"))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(work: Path, as_json: bool) -> None:
    """Show how far the build in the folder WORK is, or where it stopped.

    WORK is the --work of the build, build/work if not given. Nothing is changed.
    """
    with pipeline_needed("status"):
        from phrasemem.pipeline.status import status_lines, status_of

    status = status_of(work)
    if as_json:
        click.echo(json.dumps(status, indent=1))
    else:
        first, *table = status_lines(status, work)
        click.echo("\n".join((one_line(first), *table)))
