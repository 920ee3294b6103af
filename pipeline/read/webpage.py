"""From the bytes of a web page to its main text."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import Document, LeftOut

# The extraction takes seconds at 10,000 levels and hours at a million; pages have some dozens.
_MOST_DEPTH = 1000
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_TAG = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
# Elements without content, and those whose end may be left out: neither nests by itself.
_NOT_NESTING = frozenset(
    b"area base br col embed hr img input link meta param source track wbr "
    b"p li dt dd tr td th thead tbody tfoot option optgroup colgroup".split()
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
HTTP_OK = 200
_HTML = frozenset(("text/html", "application/xhtml+xml"))
# More of U+FFFD than this share of the characters is no text in that encoding.
_MOST_UNDECODABLE = 0.01


class Page(NamedTuple):
    """Title and main text of a web page."""

    title: str
    text: str


def document_of_page(
    data: bytes, declared: str | None, identity: str, where: str, corpus: Corpus
) -> Document | LeftOut:
    """Make a document of an HTML page.

    Parameters
    ----------
    data : bytes
    declared : str or None
        The encoding that HTTP gave, if any.
    identity, where : str
        Id of the document, and its place for the quarantine.
    corpus : Corpus
    """
    if is_deeper_than(data, _MOST_DEPTH):
        return LeftOut("nested-too-deep", where)
    html = decode(data, declared, html=True)
    if html is None:
        return LeftOut("undecodable", where, detail=f"declared {declared}")
    page = main_text(html)
    if not page.text:
        return LeftOut("no-main-text", where, bad=False)
    return Document(identity, corpus.name, corpus.kind, page.title, page.text)


def document_of_payload(
    data: bytes,
    content_type: str,
    declared: str | None,
    identity: str,
    where: str,
    corpus: Corpus,
) -> Document | LeftOut:
    """Make a document of what a crawl has fetched: an HTML page or plain text."""
    kind, _, parameters = content_type.partition(";")
    if declared is None and (found := _CHARSET.search(parameters)):
        declared = found[1]
    if kind.strip().lower() in _HTML:
        return document_of_page(data, declared, identity, where, corpus)
    if kind.strip().lower() != "text/plain":
        return LeftOut("not-text", where, bad=False)
    text = decode(data, declared)
    if text is None:
        return LeftOut("undecodable", where, detail=f"declared {declared}")
    return Document(identity, corpus.name, corpus.kind, "", text)


def main_text(html: str) -> Page:
    """Return title and main text; menus, footers, scripts and comments are left out."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(html)
    title = " ".join((tree.title or "").split())
    text = extract_plain_text(tree, main_content=True, alt_texts=False)
    return Page(title, text.strip())


def decode(data: bytes, declared: str | None, html: bool = False) -> str | None:
    """Decode a page, whatever it says of itself; None if no encoding fits.

    In this order: a byte order mark; UTF-8 where the bytes are valid, for text in another encoding
    hardly ever is; the encoding declared by HTTP, then by the page; the detected one.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _sound(data[len(mark) :] if name == "utf-8" else data, name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

    names = [map_encoding_to_html5(declared, fallback_utf8=False) if declared else None]
    if html:
        names.append(detect_encoding(data, from_html_meta=True))
    names.append(detect_encoding(data))
    for candidate in names:
        # UTF-8 was tried: who declares it here is wrong, or the bytes are broken.
        if candidate and candidate.lower() not in ("utf-8", "utf8"):
            text = _strictly(data, candidate)
            if text is not None:
                return text
    return _sound(data, names[-1] or "utf-8")


def _strictly(data: bytes, name: str) -> str | None:
    try:
        return data.decode(name)
    except (UnicodeDecodeError, LookupError):
        return None


def _sound(data: bytes, name: str) -> str | None:
    text = data.decode(name, "replace")
    return text if text.count("\ufffd") <= _MOST_UNDECODABLE * len(text) else None


def is_deeper_than(data: bytes, limit: int) -> bool:
    """Whether the elements of a page nest deeper than a limit, by its tags alone."""
    if data.count(b"<") <= limit:
        return False
    depth = 0
    for closes, name in _TAG.findall(data):
        if name.lower() in _NOT_NESTING:
            continue
        depth = max(0, depth - 1) if closes else depth + 1
        if depth > limit:
            return True
    return False
