"""``phrasemem drop-corpus``: a memory without one of its corpora."""

from __future__ import annotations

from pathlib import Path

import click

from phrasemem.cli.memory_path import MEMORY
from phrasemem.cli.pipeline_options import pipeline_needed
from phrasemem.cli.remaking import output_options, print_remade, tokenizer_option


@click.command("drop-corpus")
@click.argument("memory", type=MEMORY)
@click.argument("name")
@tokenizer_option
@output_options
def command(memory: Path, name: str, model: str | None, out: Path, replace: bool) -> None:
    """Take the corpus NAME out of MEMORY.

    Its counts and held-out documents go, and so do phrases that are too rare without it. The
    others are scored again and keep their vectors. With the count store of `phrasemem build
    --keep-counts` beside MEMORY the result is what a build without NAME would be. MEMORY is not
    changed.
    """
    with pipeline_needed():
        from phrasemem.pipeline.drop_corpus import drop_corpus

    print_remade(out, drop_corpus(memory, name, out, model=model, replace=replace))
