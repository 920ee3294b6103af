"""``phrasemem verify``: check every byte of a memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from phrasemem.cli.memory_path import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from phrasemem.memfmt.manifest import PayloadInfo
    from phrasemem.memfmt.verify import Report


@click.command("verify")
@click.argument("path", type=MEMORY, metavar="MEMORY")
def command(path: Path) -> None:
    """Check every byte of the MEMORY, and all that its parts say of each other.

    The error names the file, what is wrong in square brackets, and what to fetch again.
    """
    from phrasemem.memfmt.verify import verify

    print_report(verify(path))


def print_report(report: Report) -> None:
    """Print what a memory holds and that all of it was found right."""
    manifest = report.manifest
    added = {"added": _payloads(one.payload for one in report.added)} if report.added else {}
    lines = {
        "format": manifest.format_version,
        "entries": f"{manifest.entries:,} keys of up to {manifest.n_max} tokens",
        "shards": len(manifest.shards),
        "payloads": _payloads(manifest.payloads),
        **added,
        "tokenizer": f"{manifest.tokenizer.name} ({manifest.tokenizer.fingerprint[:12]})",
        "corpora": ", ".join(corpus.name for corpus in manifest.corpora) or "none",
        "files": f"{report.files} files, {report.bytes:,} bytes",
        "result": "every checksum, key, index entry and row is right",
    }
    for name, value in lines.items():
        click.echo(f"{name:<10} {value}")


def _payloads(payloads: Iterable[PayloadInfo]) -> str:
    return ", ".join(f"{p.name} ({p.dim} x {p.dtype})" for p in payloads)
