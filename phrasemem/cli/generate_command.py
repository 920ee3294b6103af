"""``phrasemem generate``: continue a prompt, frozen and with memory, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from phrasemem.cli.backbone_options import backbone_options, load_backbone

if TYPE_CHECKING:
    from phrasemem.runtime.explain import Continuation


@click.command("generate")
@backbone_options
@click.option("--prompt", required=True, help="Text to continue.")
@click.option(
    "--max-new-tokens", type=click.IntRange(min=1), default=48, show_default=True, help="To write."
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Of sampling; 0 is greedy.",
)
@click.option("--seed", default=0, show_default=True, help="Of sampling, the same for both.")
def command(
    memory_path: Path,
    model: str | None,
    dtype: str,
    device: str,
    prompt: str,
    max_new_tokens: int,
    temperature: float,
    seed: int,
) -> None:
    """Continue a prompt with the frozen model and with memory; show which phrases fired."""
    backbone, tokenizer = load_backbone(memory_path, model, dtype, device)
    from phrasemem.runtime.explain import continue_both
    from phrasemem.runtime.memory import PhraseMemory

    with PhraseMemory.open(memory_path) as memory:
        frozen, attached = continue_both(
            backbone,
            memory,
            tokenizer,
            prompt,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed,
        )
    _print(prompt, frozen, attached)


def _print(prompt: str, frozen: Continuation, attached: Continuation) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    assert attached.stats is not None
    console = Console(width=None if Console().is_terminal else 100)
    table = Table(title=escape(prompt), show_lines=True)
    table.add_column(f"frozen, {1e3 * frozen.seconds_per_token:.1f} ms a token", ratio=1)
    table.add_column(f"with memory, {1e3 * attached.seconds_per_token:.1f} ms a token", ratio=1)
    table.add_row(escape(frozen.text), escape(attached.text))
    console.print(table)
    fired = Table("token", "", "phrase that ends there", title="hits, the prompt's first")
    for phrase in attached.fired:
        fired.add_row(str(phrase.position), escape(repr(phrase.token)), escape(repr(phrase.phrase)))
    console.print(fired)
    click.echo(
        f"{attached.stats.injections} injections at {attached.stats.positions} positions "
        f"in {attached.stats.forwards} forward passes"
    )
