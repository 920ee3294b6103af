"""``phrasemem inspect``: what a memory says of itself, and where its bytes are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phrasemem.cli.memory_path import MEMORY
from phrasemem.cli.plain_text import one_line

if TYPE_CHECKING:
    from phrasemem.memfmt.added_payload import AddedPayload
    from phrasemem.memfmt.manifest import Manifest

_SHARD = re.compile(r"shard-[0-9]{5}(?=/)")


@click.command("inspect")
@click.argument("path", type=MEMORY, metavar="MEMORY")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--files", "all_files", is_flag=True, help="List every file by itself.")
def command(path: Path, as_json: bool, all_files: bool) -> None:
    """Show what a MEMORY holds: format, tokenizer, payloads, corpora, adapters, bytes.

    Only manifests are read and lengths compared; `phrasemem verify` reads all bytes.
    """
    from phrasemem.memfmt.added_payload import read_added
    from phrasemem.memfmt.files import check_lengths, read_manifest

    manifest = read_manifest(path)
    added = read_added(path, manifest)
    for listing in (manifest, *added):
        check_lengths(path, listing.paths)
    described = describe(path, manifest, added, all_files=all_files)
    if as_json:
        click.echo(json.dumps(described, ensure_ascii=False))
    else:
        _print(described)


def describe(
    path: Path, manifest: Manifest, added: Sequence[AddedPayload], *, all_files: bool = False
) -> dict[str, Any]:
    """Return all that the manifests of a memory say, as plain data.

    Parameters
    ----------
    path : Path
    manifest : Manifest
    added : sequence of AddedPayload
    all_files : bool
        Whether each file has a line, or all shards' files of one name have one together.
    """
    chosen = {"files", "shards", "payloads", "corpora", "tokenizer", "encoder", "magic"}
    plain = manifest.model_dump(mode="json")
    return {
        "memory": {name: value for name, value in plain.items() if name not in chosen}
        | {"shards": len(manifest.shards)},
        "tokenizer": plain["tokenizer"],
        "encoder": plain["encoder"],
        "payloads": plain["payloads"],
        "added": [one.payload.model_dump(mode="json") for one in added],
        "corpora": plain["corpora"],
        "adapters": list(_adapters(path)),
        "files": list(_files(manifest, added, all_files)),
    }


def _adapters(path: Path) -> Iterable[dict[str, Any]]:
    from phrasemem.memfmt.adapters import adapter_folders, read_description

    shown = ("payload", "point", "gate", "scale")
    for folder in adapter_folders(path):
        described = read_description(folder)
        yield {"backbone": folder.name} | {name: described.get(name) for name in shown}


def _files(
    manifest: Manifest, added: Sequence[AddedPayload], all_files: bool
) -> Iterable[dict[str, Any]]:
    """Lengths of files, those of shards summed by name unless all are wanted."""
    sizes: dict[str, list[int]] = {}
    for listing in (manifest, *added):
        for name, info in listing.paths.items():
            kind = name if all_files else _SHARD.sub("shard-*", name)
            sizes.setdefault(kind, []).append(info.bytes)
    for name, lengths in sorted(sizes.items()):
        a_key = sum(lengths) / manifest.entries if manifest.entries else None
        yield {"file": name, "files": len(lengths), "bytes": sum(lengths), "bytes_a_key": a_key}


def _print(described: dict[str, Any]) -> None:
    for part, value in described.items():
        if isinstance(value, dict):
            _print_fields(part, value)
        elif value:
            _print_rows(part, value)


def _print_fields(part: str, fields: dict[str, Any]) -> None:
    click.echo(part)
    for name, value in fields.items():
        click.echo(f"  {name:<18} {_cell(value)}")


def _print_rows(part: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as columns that are as wide as they need to be."""
    lines = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    click.echo(part)
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  " + "  ".join(cells).rstrip())


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "-" if value is None else str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list):
        return one_line(", ".join(map(str, value))) or "none"
    return one_line(str(value))
