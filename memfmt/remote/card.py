"""README.md of a published version, made from its manifest and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from phrasemem.memfmt.adapters import adapter_folders, read_description
from phrasemem.memfmt.additions import is_addition
from phrasemem.memfmt.manifest import Manifest, PayloadInfo
from phrasemem.memfmt.remote.licences import redistributable
from phrasemem.memfmt.remote.version import Version
from phrasemem.memfmt.verify import Report

_CONDITIONS = ("tokens", "frozen", "attached", "shuffled")


def card(folder: Path, report: Report, version: Version) -> str:
    """Describe a memory in Markdown: corpora with licences, model, encoder, sizes, quality.

    Equal memories give equal cards.
    """
    manifest = report.manifest
    parts = [
        f"# Phrase memory {version.version}",
        "A phrase memory for a frozen language model, made by phrasemem. Nothing in it is run.",
        f"Fetch it with `phrasemem pull REGISTRY@{version.version}`.",
        *_facts(report, version),
        "## Corpora",
        *_corpora(folder, manifest),
        "## Files",
        *_sizes(version),
        *_adapters(folder),
    ]
    return "\n".join(_spaced(parts)) + "\n"


def _spaced(lines: Iterable[str]) -> list[str]:
    """Put empty lines around all that is no row of a table."""
    spaced: list[str] = []
    for line in lines:
        if spaced and not (line.startswith("|") and spaced[-1].startswith("|")):
            spaced.append("")
        spaced.append(line)
    return spaced


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows)]


def _row(cells: Sequence[object]) -> str:
    # Names come from configuration files: none may end a cell or begin a tag.
    plain = (" ".join(str(cell).split()).replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(plain)} |"


def _facts(report: Report, version: Version) -> list[str]:
    manifest = report.manifest
    tokenizer, encoder = manifest.tokenizer, manifest.encoder
    added = [("added payloads", _payloads([one.payload for one in report.added]))]
    return _table(
        ("", ""),
        [
            ("entries", f"{manifest.entries:,} keys of up to {manifest.n_max} tokens"),
            ("tokenizer", f"{tokenizer.name} ({tokenizer.fingerprint[:12]})"),
            ("encoder", "none" if encoder is None else f"{encoder.id}, {encoder.dim} dimensions"),
            ("payloads", _payloads(manifest.payloads)),
            *(added if report.added else ()),
            ("format", f"{manifest.format_version}, written by {manifest.created_by}"),
            ("size", f"{len(version.files):,} files, {version.bytes:,} bytes"),
            ("manifest", version.manifest),
        ],
    )


def _payloads(payloads: Iterable[PayloadInfo]) -> str:
    return ", ".join(f"{p.name} ({p.kind}, {p.dim} x {p.dtype})" for p in payloads)


def _corpora(folder: Path, manifest: Manifest) -> list[str]:
    if not manifest.corpora:
        return ["None is named."]
    allowed = redistributable(folder, manifest)
    may = {True: "yes", False: "not stated"}
    return _table(
        ("corpus", "kind", "licence", "redistributable", "documents", "tokens", "source"),
        [
            (
                corpus.name,
                corpus.kind,
                corpus.licence,
                may[allowed.get(corpus.name, False)],
                f"{corpus.documents:,}",
                f"{corpus.tokens:,}",
                corpus.source,
            )
            for corpus in manifest.corpora
        ],
    )


def _sizes(version: Version) -> list[str]:
    """Sum the sizes over shards: files of one kind have one name."""
    sizes: dict[str, list[int]] = {}
    for path, entry in version.files.items():
        parts = path.split("/")
        kind = parts[0] if is_addition(path) else parts[-1]
        sizes.setdefault(kind, []).append(entry.bytes)
    rows = [(name, len(found), f"{sum(found):,}") for name, found in sorted(sizes.items())]
    return _table(("file", "number", "bytes"), rows)


def _adapters(folder: Path) -> list[str]:
    lines: list[str] = []
    for path in adapter_folders(folder):
        found = read_description(path)
        lines.append(f"## Adapter for backbone {path.name[:12]}")
        report = found.get("report")
        lines += _quality(report if isinstance(report, dict) else {})
        names = ("point", "gate", "scale", "payload")
        lines += ["Settings:"]
        lines += _table(("setting", "value"), [(n, found[n]) for n in names if n in found])
        lines += _measured(report if isinstance(report, dict) else {})
    return lines


def _quality(report: dict[str, Any]) -> list[str]:
    """Perplexity by kind of text, where the calibration or evaluation has written it down."""
    kinds = report.get("kinds")
    if not isinstance(kinds, dict) or not all(isinstance(row, dict) for row in kinds.values()):
        return []
    rows = [(kind, *(row.get(name, "") for name in _CONDITIONS)) for kind, row in kinds.items()]
    return ["Perplexity:", *_table(("kind", *_CONDITIONS), sorted(rows))]


def _measured(report: dict[str, Any]) -> list[str]:
    plain = [(n, v) for n, v in sorted(report.items()) if isinstance(v, str | int | float)]
    return ["Calibration:", *_table(("figure", "value"), plain)] if plain else []
