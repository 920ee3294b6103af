"""Wikitext as plain text, without markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import mwparserfromhell
from mwparserfromhell.nodes import (
    ExternalLink,
    Heading,
    HTMLEntity,
    Node,
    Tag,
    Text,
    Wikilink,
)
from mwparserfromhell.wikicode import Wikicode

_NOT_TEXT_TAGS = frozenset(
    (
        "ref",
        "references",
        "table",
        "gallery",
        "math",
        "chem",
        "code",
        "syntaxhighlight",
        "source",
        "pre",
        "timeline",
        "score",
        "imagemap",
        "hiero",
        "graph",
        "mapframe",
        "templatestyles",
    )
)
# Links into these namespaces are pictures or bookkeeping, not words of the sentence.
_NOT_TEXT_LINK = re.compile(r"\s*(?:file|image|category|media)\s*:", re.IGNORECASE)
_LANGUAGE_LINK = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*:\S")
_LAST_SECTIONS = frozenset(
    (
        "references",
        "external links",
        "see also",
        "further reading",
        "notes",
        "bibliography",
        "sources",
        "footnotes",
        "citations",
        "works cited",
        "notes and references",
        "references and notes",
    )
)
_STYLE = re.compile(r"'{2,5}")
_MAGIC_WORD = re.compile(r"__[A-Z]+__")
# What a removed template leaves: "Toronto (, ) is".
_EMPTY_BRACKETS = re.compile(r" ?\([\s,;:]*\)")


def wikitext_to_text(source: str) -> str:
    """Return the running text of wikitext.

    Templates, tables, references, pictures, formulas and the closing sections (references,
    external links, ...) are removed; links and headings keep their words.
    """
    code = mwparserfromhell.parse(source, skip_style_tags=True)
    parts: list[str] = []
    for node in code.nodes:
        if isinstance(node, Heading):
            title = _text(node.title).strip()
            if title.lower() in _LAST_SECTIONS:
                break
            parts.append(f"\n{title}\n")
        else:
            parts.append(_node_text(node))
    text = _STYLE.sub("", "".join(parts))
    return _EMPTY_BRACKETS.sub("", _MAGIC_WORD.sub("", text)).strip()


def _text(code: Wikicode | None) -> str:
    return "" if code is None else "".join(_node_text(node) for node in code.nodes)


def _node_text(node: Node) -> str:
    for kind, text_of in _TEXT_OF.items():
        if isinstance(node, kind):
            return text_of(node)
    return ""  # templates, their arguments and comments


def _link_text(link: Wikilink) -> str:
    target = str(link.title)
    if _NOT_TEXT_LINK.match(target) or (link.text is None and _LANGUAGE_LINK.match(target)):
        return ""
    return _text(link.text) if link.text is not None else target.lstrip(":")


def _tag_text(tag: Tag) -> str:
    name = str(tag.tag).strip().lower()
    if name in _NOT_TEXT_TAGS:
        return ""
    if name in ("br", "hr", "li", "dt", "dd"):
        return f"\n{_text(tag.contents)}"
    return _text(tag.contents)


def _heading_text(heading: Heading) -> str:
    return f"\n{_text(heading.title).strip()}\n"


_TEXT_OF: dict[type[Node], Callable[[Any], str]] = {
    Text: lambda node: str(node.value),
    Wikilink: _link_text,
    ExternalLink: lambda node: _text(node.title),
    HTMLEntity: lambda node: str(node.normalize()),
    Tag: _tag_text,
    Heading: _heading_text,
}
