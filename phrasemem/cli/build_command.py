"""``phrasemem build``: corpora in, memory out."""

from __future__ import annotations

from pathlib import Path

import click

from phrasemem.memfmt.errors import PhraseMemError


class MissingExtraError(PhraseMemError):
    """A command whose extra is not installed."""


@click.command(name="build")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=Path("corpora.yaml"),
    show_default=True,
    help="Corpora and settings; relative paths in it start from its folder.",
)
@click.option("--profile", help="Profile of the configuration; its default if not given.")
@click.option("--model", help="Backbone whose tokenizer the keys are in: pypi:, folder or name.")
@click.option("--encoder", help="Sentence encoder of the phrases: pypi:, folder or name.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("build/memory"),
    show_default=True,
    help="Folder of the memory.",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    default=Path("build/work"),
    show_default=True,
    help="Folder of unfinished work; a stopped build goes on from there.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    help="Local worker processes; one a core if not given, 0 for none.",
)
@click.option("--scheduler", metavar="ADDRESS", help="A running Dask scheduler, tcp://HOST:PORT.")
@click.option("--replace", is_flag=True, help="Replace a memory of another tokenizer or encoder.")
@click.option("--no-calibrate", is_flag=True, help="Do not fit the adapter of the backbone.")
def command(
    config_path: Path,
    profile: str | None,
    model: str | None,
    encoder: str | None,
    out: Path,
    work: Path,
    workers: int | None,
    scheduler: str | None,
    replace: bool,
    no_calibrate: bool,
) -> None:
    """Mine corpora, embed phrases and write a memory.

    A second run does nothing; a changed setting reruns only what depends on it.
    """
    try:
        from phrasemem.pipeline.config import load_config
        from phrasemem.pipeline.run import build
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"building needs {error.name}", hint='pip install "phrasemem[pipeline]"'
        ) from error

    config = load_config(config_path, profile, model=model, encoder=encoder)
    report = build(
        config,
        out,
        work=work,
        base=config_path.absolute().parent,
        scheduler=scheduler,
        workers=workers,
        replace=replace,
    )
    # Calibration and the check of the written memory are joined in here.
    click.echo("\n".join(report.lines()))
    click.echo("\nTry next:")
    click.echo(f'  phrasemem lookup {out} "natural selection"')
    click.echo(f'  phrasemem generate --memory {out} --prompt "The theory of evolution"')
