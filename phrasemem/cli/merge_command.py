"""``phrasemem merge``: one memory of several."""

from __future__ import annotations

from pathlib import Path

import click

from phrasemem.cli.memory_path import MEMORY
from phrasemem.cli.pipeline_options import pipeline_needed
from phrasemem.cli.remaking import output_options, print_remade, tokenizer_option


@click.command("merge")
@click.argument("memories", type=MEMORY, nargs=-1, required=True)
@click.option(
    "--max-phrases",
    type=click.IntRange(min=1),
    help="Keep the best ones; as many as MEMORIES have if not given.",
)
@tokenizer_option
@output_options
def command(
    memories: tuple[Path, ...],
    max_phrases: int | None,
    model: str | None,
    out: Path,
    replace: bool,
) -> None:
    """Make one memory of the corpora of MEMORIES, which share tokenizer, encoder and key length.

    Counts are joined, phrases scored again; vectors are kept, those of the first memory that has
    the phrase. With the count store of `phrasemem build --keep-counts` beside each of MEMORIES the
    result is what a build of all corpora would be. MEMORIES are not changed.
    """
    with pipeline_needed():
        from phrasemem.pipeline.merge_memories import merge

    remade = merge(memories, out, max_phrases=max_phrases, model=model, replace=replace)
    print_remade(out, remade)
