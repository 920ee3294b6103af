"""MediaWiki XML dumps: the articles, as plain text."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import ParseError

import mwparserfromhell
import mwxml

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import DamageError, Document, LeftOut, Records
from phrasemem.pipeline.read.mediawiki_pages import OPEN, name_of, pages_of
from phrasemem.pipeline.read.opening import opened
from phrasemem.pipeline.read.source import Source
from phrasemem.pipeline.read.wikitext import wikitext_to_text

_BATCH = 32
_MOST_HEAD = 1 << 20
# What mwxml raises on a page that is no page.
_BAD_PAGE = (ParseError, mwxml.errors.MalformedXML, ValueError, KeyError, TypeError, AttributeError)


def read_mediawiki(source: Source, corpus: Corpus) -> Records:
    """Read the articles of a dump (plain or compressed); the latest revision of each.

    Pages are found by their tags and parsed a few at a time, so that a damaged one costs itself.
    """
    head = _head(source)
    if head is None:
        yield LeftOut("not-a-mediawiki-dump", "byte 0")
        return
    batch: list[bytes] = []
    try:
        for page in pages_of(source):
            if isinstance(page, bytes):
                batch.append(page)
            # What is left out comes in its place: the order must not depend on the batches.
            if isinstance(page, LeftOut) or len(batch) == _BATCH:
                yield from _articles(head, batch, corpus)
                batch = []
            if isinstance(page, LeftOut):
                yield page
    except DamageError as damage:
        yield from _articles(head, batch, corpus)
        raise damage
    yield from _articles(head, batch, corpus)


def _head(source: Source) -> bytes | None:
    """Return what stands before the first page: the names of the wiki and its namespaces.

    A document type, and so every entity that it defines, is not taken along.
    """
    head = b""
    try:
        with opened(source) as file:
            while OPEN not in head and len(head) < _MOST_HEAD and (block := file.read1(1 << 16)):
                head += block
    except DamageError:
        pass  # met again while the pages are read
    start = head.find(b"<mediawiki")
    return None if start < 0 else head[start:].partition(OPEN)[0]


def _articles(head: bytes, pages: Sequence[bytes], corpus: Corpus) -> Records:
    if not pages:
        return
    try:
        yield from list(_parsed(head, pages, corpus))
    except _BAD_PAGE as error:
        if len(pages) > 1:
            for page in pages:
                yield from _articles(head, [page], corpus)
            return
        yield LeftOut("bad-xml", name_of(pages[0]), detail=str(error))


def _parsed(head: bytes, pages: Sequence[bytes], corpus: Corpus) -> Iterator[Document | LeftOut]:
    document = b"".join((head, *pages, b"</mediawiki>"))
    for page in mwxml.Dump.from_file(io.BytesIO(document)).pages:
        yield _page(page, corpus)


def _page(page: mwxml.Page, corpus: Corpus) -> Document | LeftOut:
    where = f"page {page.id} {page.title!r}"
    source = None
    for revision in page:
        source = revision.text
    if page.redirect:
        return LeftOut("redirect", where, bad=False)
    if page.namespace != 0:
        return LeftOut("not-an-article", where, bad=False)
    if not source:
        return LeftOut("no-text", where, bad=False)
    if source.lstrip().lower().startswith("#redirect"):
        return LeftOut("redirect", where, bad=False)
    try:
        text = wikitext_to_text(source)
    except (mwparserfromhell.parser.ParserError, RecursionError) as error:
        return LeftOut("bad-wikitext", where, detail=str(error))
    return Document(str(page.id), corpus.name, corpus.kind, page.title, text)
