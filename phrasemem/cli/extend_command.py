"""``phrasemem extend``: add corpora to a memory."""

from __future__ import annotations

from pathlib import Path

import click

from phrasemem.cli.build_command import print_verified
from phrasemem.cli.memory_path import MEMORY
from phrasemem.cli.pipeline_options import cluster_options, corpora_options, pipeline_needed


@click.command("extend")
@click.argument("memory", type=MEMORY, metavar="MEMORY")
@corpora_options
@click.option("--model", help="Reference of the model, if not the profile's.")
@click.option("--encoder", help="Reference of the encoder, if not the profile's.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder of the new memory."
)
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    help="Folder of unfinished work; beside OUT if not given.",
)
@cluster_options
def command(
    memory: Path,
    config_path: Path,
    profile: str | None,
    model: str | None,
    encoder: str | None,
    out: Path,
    work: Path | None,
    workers: int | None,
    scheduler: str | None,
) -> None:
    """Add the corpora of a profile that MEMORY does not have, and write another memory.

    Only their text is read. With the count store that `phrasemem build --keep-counts` leaves
    beside MEMORY, the result is what a build of all corpora would be; without it, what is not
    exact is said. Adapters are not carried over: calibrate the new memory.
    """
    with pipeline_needed("extending"):
        from phrasemem.pipeline.config import load_config
        from phrasemem.pipeline.extend import extend

    report = extend(
        memory,
        load_config(config_path, profile, model=model, encoder=encoder),
        out,
        work=work,
        base=config_path.absolute().parent,
        scheduler=scheduler,
        workers=workers,
    )
    if not report.did_nothing:
        print_verified(out)
    click.echo("\n".join(report.lines()))
    click.echo(f"\nTry next:\n  phrasemem calibrate --memory {out}")
