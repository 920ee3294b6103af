"""``phrasemem calibrate``: fit the adapter of a backbone to a memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from phrasemem.cli.backbone_options import backbone_options, load_backbone

if TYPE_CHECKING:
    from phrasemem.runtime.adapter import Adapter


@click.command("calibrate")
@backbone_options
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    help="Text to calibrate on, .jsonl or .txt; the memory's own calibration documents if not "
    "given.",
)
@click.option(
    "--point",
    default="head",
    show_default=True,
    help="Where vectors are added: head, or layer:K for the input of decoder block K.",
)
@click.option(
    "--gate",
    type=click.Choice(["none", "relu-cos"]),
    help="none at the head, relu-cos at a layer if not given.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=2),
    default=50_000,
    show_default=True,
    help="Tokens to run, shared evenly by the kinds of text.",
)
def command(
    memory_path: Path,
    model: str | None,
    dtype: str,
    device: str,
    text: Path | None,
    point: str,
    gate: str | None,
    max_tokens: int,
) -> None:
    """Fit the map from the memory's vectors to a backbone, and write it into the memory.

    No gradient descent: one pass over some text, then closed-form regression. Where nothing
    helps on text that was kept apart, the scale is 0 and attaching changes nothing.
    """
    backbone, tokenizer = load_backbone(memory_path, model, dtype, device)
    from phrasemem.runtime.calibrate import calibrate
    from phrasemem.runtime.documents import read_text

    adapter = calibrate(
        memory_path,
        backbone,
        tokenizer,
        documents=read_text(text) if text else None,
        point=point,
        gate=gate,  # type: ignore[arg-type]  # click.Choice allows no other
        max_tokens=max_tokens,
        progress=lambda what: click.echo(f"calibrate: {what}", err=True),
    )
    click.echo("\n".join(report_lines(adapter)))


def report_lines(adapter: Adapter) -> list[str]:
    """Return what calibration found, a line an entry."""
    report = adapter.report
    lines = [f"calibrated on {report['tokens']:,} tokens, {report['hits']:,} hits"]
    for key in ("method", "penalty", "explained_variance", "nats_per_hit", "nats_per_token"):
        if key in report:
            lines.append(f"  {key.replace('_', ' ')}: {_figures(report[key])}")
    verdict = "" if adapter.scale else "nothing helped: the adapter changes nothing"
    lines.append(f"  {adapter.point}, gate {adapter.gate}, scale {adapter.scale:.4g} {verdict}")
    return [line.rstrip() for line in lines]


def _figures(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_figures(part)}" for key, part in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
