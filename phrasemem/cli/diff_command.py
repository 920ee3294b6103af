"""``phrasemem diff``: what differs between two memories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phrasemem.cli.memory_path import MEMORY
from phrasemem.cli.plain_text import one_line

if TYPE_CHECKING:
    from phrasemem.memfmt.compare import Difference, Phrase, Phrases
    from phrasemem.memfmt.records import Record


@click.command("diff")
@click.argument("a", type=MEMORY)
@click.argument("b", type=MEMORY)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--quiet", is_flag=True, help="Print nothing; only the exit status tells.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Phrases of each kind that are named, the best by score.",
)
@click.pass_context
def command(
    context: click.Context, a: Path, b: Path, as_json: bool, quiet: bool, limit: int
) -> None:
    """Tell what differs between the memories A and B; the exit status is 1 where anything does.

    Compared are tokenizer, encoder, payloads, corpora, phrases with counts and scores, vectors of
    common phrases, and other files. How the memories were made (build.json, shards, adapters) is
    not.
    """
    from phrasemem.memfmt.compare import compare

    difference = compare(a, b, limit=limit)
    if as_json and not quiet:
        click.echo(json.dumps(difference.as_json()))
    elif not quiet:
        click.echo("\n".join(report_lines(difference)))
    context.exit(0 if difference.equal else 1)


def report_lines(difference: Difference) -> list[str]:
    """Return a difference as text, a line an entry."""
    if difference.equal:
        return ["the memories hold the same"]
    lines = []
    for kind in ("settings", "payloads", "corpora"):
        for name, (a, b) in getattr(difference, kind).items():
            lines += [f"{kind} {one_line(name)}", f"  a: {_plain(a)}", f"  b: {_plain(b)}"]
    lines += [f"file {name}: {what}" for name, what in difference.files.items()]
    if difference.phrases is None:
        lines.append("phrases: not compared, since token ids mean different things")
    else:
        lines += _phrase_lines(difference.phrases)
    lines += [
        f"vectors {name}: {number:,} phrases differ" for name, number in difference.vectors.items()
    ]
    return lines


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return one_line(", ".join(f"{name} {part}" for name, part in value.items()))
    return "none" if value is None else one_line(str(value))


def _phrase_lines(phrases: Phrases) -> list[str]:
    return [
        f"phrases: {phrases.common:,} in both; other counts {phrases.counts:,}, "
        f"other scores {phrases.scores:,}, other texts {phrases.texts:,}",
        *map(_line, phrases.best_changed),
        f"phrases only in a: {phrases.only_a:,}",
        *map(_line, phrases.best_only_a),
        f"phrases only in b: {phrases.only_b:,}",
        *map(_line, phrases.best_only_b),
    ]


def _line(phrase: Phrase) -> str:
    return f"  {' -> '.join(map(_described, phrase.records))}"


def _described(record: Record) -> str:
    text = one_line(record.text)
    count = sum(record.counts.values())
    return f"{text} (score {record.score:.2f}, {count:,} in {record.documents:,} documents)"
