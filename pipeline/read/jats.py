"""JATS XML, as PubMed Central has it: title, abstract and the paragraphs of the body."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lxml import etree

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.bounded import Bounded
from phrasemem.pipeline.read.document import Document, LeftOut, Records
from phrasemem.pipeline.read.opening import opened
from phrasemem.pipeline.read.source import Source

_NOT_TEXT = frozenset(
    (
        "table-wrap",
        "table-wrap-group",
        "table",
        "fig",
        "fig-group",
        "disp-formula",
        "disp-formula-group",
        "inline-formula",
        "tex-math",
        "math",
        "inline-graphic",
        "graphic",
        "media",
        "supplementary-material",
        "ref-list",
        "fn",
        "fn-group",
        "code",
        "object-id",
    )
)
_REFERENCES = frozenset(("bibr", "table-fn", "fn"))
_BLOCKS = frozenset(("p", "title"))
# What references leave where they stood: "as shown [, ]." or "(, )".
_EMPTY_BRACKETS = re.compile(r"\s*[\[(][\s,;–-]*[\])]")  # noqa: RUF001 - ranges have an en dash
_IDS = ("pmc", "pmcid", "pmid", "doi")


def read_jats(source: Source, corpus: Corpus) -> Records:
    """Read the articles of a file; no entity is expanded, no DTD loaded.

    References, tables, figures, formulas and footnotes are left out, section titles kept.
    """
    with opened(source) as file:
        content = Bounded(file, source.max_record_bytes)
        events = etree.iterparse(
            content,
            events=("end",),
            tag="{*}article",
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
        )
        ordinal = -1
        try:
            for ordinal, (_, element) in enumerate(events):
                yield _article(element, ordinal, source.name, corpus)
                element.clear()
                content.record_ended()
        except etree.XMLSyntaxError as error:
            yield LeftOut("bad-xml", f"after article {ordinal}", detail=str(error))
            return
        if ordinal < 0:
            yield LeftOut("no-article", "the file", detail="no element <article>")


def _article(
    element: etree._Element, ordinal: int, name: str, corpus: Corpus
) -> Document | LeftOut:
    titles = _parts(element, "./{*}front//{*}title-group/{*}article-title")
    title = " ".join(titles[:1])
    abstract = _parts(element, "./{*}front//{*}abstract")
    body = _parts(element, "./{*}body")
    if not abstract and not body:
        return LeftOut("no-text", f"article {ordinal}", bad=False)
    return Document(
        id=_identity(element) or (f"{name}#{ordinal}" if ordinal else name),
        corpus=corpus.name,
        kind=corpus.kind,
        title=title,
        text="\n".join(part for part in (title, *abstract, *body) if part),
    )


def _identity(element: etree._Element) -> str | None:
    found = {
        one.get("pub-id-type"): (one.text or "").strip()
        for one in element.iterfind("./{*}front/{*}article-meta/{*}article-id")
    }
    key = next((name for name in _IDS if found.get(name)), None)
    if key is None:
        return None
    return found[key] if key != "pmc" or found[key].startswith("PMC") else f"PMC{found[key]}"


def _parts(element: etree._Element, path: str) -> list[str]:
    """Return the paragraphs and titles below the elements of a path, each on one line."""
    lines = "".join(piece for found in element.iterfind(path) for piece in _pieces(found)).split(
        "\n"
    )
    flat = (" ".join(_EMPTY_BRACKETS.sub("", line).split()) for line in lines)
    return [line for line in flat if line]


def _pieces(element: Any) -> Iterator[str]:
    """Yield the text below an element, line ends only where a paragraph or title ends."""
    if not isinstance(element.tag, str):  # a comment or an entity
        return
    name = etree.QName(element).localname
    if name in _NOT_TEXT or (name == "xref" and element.get("ref-type") in _REFERENCES):
        return
    block = name in _BLOCKS
    if block:
        yield "\n"
    yield _one_line(element.text)
    for child in element:
        yield from _pieces(child)
        yield _one_line(child.tail)
    if block:
        yield "\n"


def _one_line(text: str | None) -> str:
    return (text or "").replace("\n", " ")
