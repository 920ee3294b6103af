"""``phrasemem eval``: perplexity, frozen, attached and shuffled."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phrasemem.cli.backbone_options import backbone_options, load_backbone

if TYPE_CHECKING:
    from phrasemem.runtime.evaluate import KindResult


@click.command("eval")
@backbone_options
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    help="Text to judge by, .jsonl or .txt; the memory's held-out test documents if not given.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=0),
    default=10_000,
    show_default=True,
    help="Tokens of each kind; 0 for all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    memory_path: Path,
    model: str | None,
    dtype: str,
    device: str,
    text: Path | None,
    max_tokens: int,
    as_json: bool,
) -> None:
    """Measure perplexity on text that the memory has not seen.

    Three conditions: the frozen model, the model with memory attached, and with the memory's
    vectors shuffled over its phrases. What the phrases themselves give is attached against
    shuffled; the rest is a shift that all phrases share.
    """
    backbone, tokenizer = load_backbone(memory_path, model, dtype, device)
    from phrasemem.runtime.documents import read_held_out, read_text
    from phrasemem.runtime.evaluate import evaluate
    from phrasemem.runtime.memory import PhraseMemory

    documents = read_text(text) if text else read_held_out(memory_path, "test")
    with PhraseMemory.open(memory_path) as memory:
        kinds = evaluate(
            memory,
            backbone,
            tokenizer,
            documents,
            max_tokens=max_tokens or None,
            progress=lambda what: click.echo(f"eval: {what} done", err=True),
        )
    if as_json:
        click.echo(json.dumps({"kinds": {kind: asdict(r) for kind, r in kinds.items()}}))
    else:
        _print_table(kinds)


def _print_table(kinds: dict[str, KindResult]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="perplexity on held-out text")
    table.add_column("kind")
    for name in ("tokens", "frozen", "attached", "shuffled", "phrases' own part"):
        table.add_column(name, justify="right")
    for kind, result in kinds.items():
        table.add_row(
            kind,
            f"{result.tokens:,}",
            f"{result.frozen:.3f}",
            f"{result.attached:.3f} ({result.attached / result.frozen - 1:+.2%})",
            f"{result.shuffled:.3f} ({result.shuffled / result.frozen - 1:+.2%})",
            f"{result.attached / result.shuffled - 1:+.2%}",
        )
    Console(width=None if Console().is_terminal else 100).print(table)
