"""Which reader reads a format, and which format a file has."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module

from phrasemem.pipeline.config import Corpus, Format
from phrasemem.pipeline.read.document import DamageError, ReadError, Records
from phrasemem.pipeline.read.opening import opened
from phrasemem.pipeline.read.source import Source

Reader = Callable[[Source, Corpus], Records]

# Module and function; a corpus of JSON lines must not wait for the parsers of the others.
_READERS: dict[Format, tuple[str, str]] = {
    "arc": ("arc", "read_arc"),
    "arrow": ("columnar", "read_arrow"),
    "arxiv-jsonl": ("json_lines", "read_arxiv"),
    "csv-zip": ("csv_zip", "read_csv_zip"),
    "html": ("html", "read_html"),
    "jats-xml": ("jats", "read_jats"),
    "json": ("json_file", "read_json"),
    "jsonl": ("json_lines", "read_json_lines"),
    "mediawiki-xml": ("mediawiki", "read_mediawiki"),
    "parquet": ("columnar", "read_parquet"),
    "pubmed-xml": ("pubmed", "read_pubmed"),
    "s2orc-jsonl": ("json_lines", "read_s2orc"),
    "text": ("plain", "read_text"),
    "warc": ("warc", "read_warc"),
}
_SUFFIXES: dict[str, Format] = {
    ".arc": "arc",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".htm": "html",
    ".html": "html",
    ".json": "json",
    ".jsonl": "jsonl",
    ".md": "text",
    ".ndjson": "jsonl",
    ".nxml": "jats-xml",
    ".parquet": "parquet",
    ".txt": "text",
    ".warc": "warc",
    ".wet": "warc",
    ".xhtml": "html",
    ".zip": "csv-zip",
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
_MOST_FIRST_LINE = 1 << 20


def reader_of(format: Format) -> Reader:
    """Return the function that reads a format."""
    module, function = _READERS[format]
    reader: Reader = getattr(import_module(f"{__package__}.{module}"), function)
    return reader


def format_of(source: Source, given: Format) -> Format:
    """Return the format of a file: the given one, or what its name says.

    Raises
    ------
    ReadError
        If the format is ``auto`` and the name tells nothing.
    """
    if given != "auto":
        return given
    name = source.name.rpartition("/")[2].lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    if "pages-articles" in name or "mediawiki" in name:
        return "mediawiki-xml"
    if name.startswith("pubmed") and name.endswith(".xml"):
        return "pubmed-xml"
    for suffix, format in _SUFFIXES.items():
        if name.endswith(suffix):
            return "jsonl" if format == "json" and _has_lines(source) else format
    raise ReadError(
        "the name does not tell the format",
        where=source.location,
        hint="set `format:` for this corpus",
    )


def _has_lines(source: Source) -> bool:
    """Whether a file is JSON lines, whatever its suffix: C4 calls them ``.json.gz``."""
    try:
        with opened(source) as file:
            first, second = file.readline(_MOST_FIRST_LINE), file.read(1)
        return second == b"{" and isinstance(json.loads(first), dict)
    except (DamageError, ValueError, RecursionError):
        return False
