"""``phrasemem lookup``: the phrases of a memory that occur in a text."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phrasemem.cli.memory_path import MEMORY
from phrasemem.cli.plain_text import one_line
from phrasemem.memfmt.errors import PhraseMemError

if TYPE_CHECKING:
    from phrasemem.memfmt.occurrences import Occurrence
    from phrasemem.memfmt.reader import MemoryReader


@dataclass(frozen=True)
class _Hit:
    """A phrase at a character of the text."""

    position: int
    occurrence: Occurrence


@click.command("lookup")
@click.argument("path", type=MEMORY, metavar="MEMORY")
@click.argument("text")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--single", is_flag=True, help="Show single tokens that have rows too.")
@click.option(
    "--tokenizer", metavar="REF", help="Load the tokenizer from here, not from where it came."
)
def command(path: Path, text: str, as_json: bool, single: bool, tokenizer: str | None) -> None:
    """Find the phrases of the MEMORY that occur in TEXT, nested ones too.

    TEXT is read both as given and as if a space stood before it, since most phrases begin
    with the space of their first word.
    """
    from phrasemem.memfmt.keys import SHORTEST_PHRASE
    from phrasemem.memfmt.reader import MemoryReader

    with MemoryReader.open(path) as reader:
        hits = _find(
            reader, _load_tokenizer(reader, tokenizer), text, 1 if single else SHORTEST_PHRASE
        )
        corpora = [corpus.name for corpus in reader.manifest.corpora]
    if as_json:
        click.echo(json.dumps({"text": text, "phrases": [_as_json(hit) for hit in hits]}))
    elif not hits:
        click.echo("no phrase of the memory occurs in this text")
    elif sys.stdout.isatty():
        _print_table(hits, corpora)
    else:
        _print_plain(hits, corpora)


def _load_tokenizer(reader: MemoryReader, reference: str | None) -> Any:
    from phrasemem.backbone import load_tokenizer, tokenizer_fingerprint

    wanted = reader.manifest.tokenizer
    tokenizer = load_tokenizer(reference or wanted.name)
    found = tokenizer_fingerprint(tokenizer)
    if found != wanted.fingerprint:
        raise PhraseMemError(
            "this is not the tokenizer of the memory",
            expected=wanted.fingerprint,
            found=found,
            where=reference or wanted.name,
        )
    return tokenizer


def _find(reader: MemoryReader, tokenizer: Any, text: str, shortest: int) -> list[_Hit]:
    from phrasemem.memfmt.occurrences import find_occurrences

    hits: dict[tuple[int, int], _Hit] = {}
    for added in ("", " "):
        encoded = tokenizer(added + text, add_special_tokens=False, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"]
        for occurrence in find_occurrences(reader, encoded["input_ids"], shortest=shortest):
            position = max(offsets[occurrence.start][0] - len(added), 0)
            hits.setdefault((position, occurrence.row), _Hit(position, occurrence))
    return sorted(hits.values(), key=_reading_order)


def _reading_order(hit: _Hit) -> tuple[int, int, tuple[int, ...]]:
    return hit.position, len(hit.occurrence.tokens), hit.occurrence.tokens


def _as_json(hit: _Hit) -> dict[str, Any]:
    record = hit.occurrence.record
    return {
        "position": hit.position,
        "text": record.text,
        "tokens": list(hit.occurrence.tokens),
        "row": hit.occurrence.row,
        "score": record.score,
        "documents": record.documents,
        "counts": dict(record.counts),
    }


def _cells(hit: _Hit, corpora: list[str]) -> list[str]:
    record = hit.occurrence.record
    counts = [str(record.counts.get(name, 0)) for name in corpora]
    return [str(hit.position), one_line(record.text), f"{record.score:.2f}", *counts]


def _print_table(hits: list[_Hit], corpora: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("at", "phrase", "score")
    for name in corpora:
        table.add_column(Text(one_line(name)))
    for hit in hits:
        # Text, not markup: a phrase may hold square brackets, as may the name of a corpus.
        table.add_row(*(Text(cell) for cell in _cells(hit, corpora)))
    Console().print(table)


def _print_plain(hits: list[_Hit], corpora: list[str]) -> None:
    click.echo("\t".join(["at", "phrase", "score", *map(one_line, corpora)]))
    for hit in hits:
        click.echo("\t".join(_cells(hit, corpora)))
