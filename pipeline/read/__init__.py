"""Readers: one module a format, one record type, one verb. Large inputs are streamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from phrasemem.pipeline.config import Corpus, Format
from phrasemem.pipeline.read.document import Document, LeftOut, ReadError

__all__ = ["Document", "LeftOut", "ReadError", "format_of", "read_file"]

_SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".zip": "csv-zip",
    ".txt": "text",
    ".md": "text",
}
_COMPRESSED = (".gz", ".bz2")


def format_of(path: Path, given: Format) -> Format:
    """Return the format of a file: the given one, or what its name says.

    Raises
    ------
    ReadError
        If the format is ``auto`` and the name tells nothing.
    """
    if given != "auto":
        return given
    name = path.name.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    if "pages-articles" in name or "mediawiki" in name:
        return "mediawiki-xml"
    if name.startswith("pubmed") and name.endswith(".xml"):
        return "pubmed-xml"
    for suffix, format in _SUFFIXES.items():
        if name.endswith(suffix):
            return format
    raise ReadError(
        "the name does not tell the format", where=path, hint="set `format:` for this corpus"
    )


def read_file(
    path: Path, name: str, format: Format, corpus: Corpus
) -> Iterator[Document | LeftOut]:
    """Read one local file.

    Parameters
    ----------
    path : Path
        Where the file is.
    name : str
        What document ids are made of: it must not depend on the machine.
    format : Format
        Anything but ``auto`` and ``hf-dataset``.
    corpus : Corpus
        Gives the field names.
    """
    # The parsers are imported here: a corpus of JSON lines must not wait for lxml or mwxml.
    if format == "mediawiki-xml":
        from phrasemem.pipeline.read.mediawiki import read_mediawiki

        return read_mediawiki(path, name, corpus)
    if format == "pubmed-xml":
        from phrasemem.pipeline.read.pubmed import read_pubmed

        return read_pubmed(path, name, corpus)
    if format == "text":
        from phrasemem.pipeline.read.plain import read_text

        return read_text(path, name, corpus)
    from phrasemem.pipeline.read import structured

    readers = {
        "json": structured.read_json,
        "jsonl": structured.read_jsonl,
        "csv-zip": structured.read_csv_zip,
    }
    return readers[format](path, name, corpus)
