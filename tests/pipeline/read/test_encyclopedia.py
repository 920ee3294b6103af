"""MediaWiki dumps: articles as text, whole, damaged or cut."""

from __future__ import annotations

import bz2
import itertools
from pathlib import Path

import pytest

from phrasemem.pipeline.read import Document
from phrasemem.pipeline.read.wikitext import wikitext_to_text

WIKITEXT = """{{Infobox person|name={{nowrap|A B}}}}
'''Ada''' ({{IPA|x}}, {{b}}) was an [[England|English]] [[poet]]<ref>{{c}}</ref><ref name="a" />.
<!-- no -->[[File:Ada.jpg|thumb|A [[portrait]]]]
== Life ==
She worked with [https://example.org Babbage]&nbsp;on <math>x^2</math> ''engines''.
{| class="wikitable"
| cell
|}
* one
[[Category:Women]] [[de:Ada]]
== External links ==
* [http://example.org A site]
"""


def test_wikitext_becomes_running_text() -> None:
    lines = [line.strip() for line in wikitext_to_text(WIKITEXT).splitlines() if line.strip()]
    assert lines == [
        "Ada was an English poet.",
        "Life",
        "She worked with Babbage\N{NO-BREAK SPACE}on  engines.",
        "one",
    ]


def test_mediawiki_leaves_out_redirects_and_other_namespaces(tmp_path: Path, read) -> None:
    pages = "".join(
        f"<page><title>{title}</title><ns>{ns}</ns><id>{number}</id>{extra}"
        f"<revision><id>{number}</id><text>{text}</text></revision></page>"
        for number, (title, ns, extra, text) in enumerate(
            [
                ("A", 0, "", "'''A''' is here."),
                ("B", 0, '<redirect title="A" />', "#REDIRECT [[A]]"),
                ("Talk:A", 1, "", "chat"),
                ("C", 0, "", ""),
                ("D", 0, "", "#redirect [[A]]"),
            ],
            start=1,
        )
    )
    path = tmp_path / "tiny-pages-articles.xml.bz2"
    head = "<siteinfo><sitename>W</sitename><namespaces></namespaces></siteinfo>"
    path.write_bytes(bz2.compress(f"<mediawiki>{head}{pages}</mediawiki>".encode()))
    documents, left_out, _ = read(path)
    assert documents == [Document("1", "c", "web", "A", "A is here.")]
    assert left_out == [
        ("redirect", "page 2 'B'"),
        ("not-an-article", "page 3 'Talk:A'"),
        ("no-text", "page 4 'C'"),
        ("redirect", "page 5 'D'"),
    ]


@pytest.mark.parametrize(
    ("name", "articles", "left"),
    [
        ("tinywiki-latest-pages-articles.xml", 7, ["redirect"]),
        ("enwiki-pages-articles-sample.xml.bz2", 2, ["redirect"]),
        ("mwxml-dump.xml", 1, ["not-an-article"]),
    ],
)
def test_real_mediawiki_dumps(read, odd_file, name, articles, left) -> None:
    documents, left_out, _ = read(odd_file(name), "mediawiki-xml")
    assert len(documents) == articles
    assert [reason for reason, _ in left_out] == left
    for document in documents:
        assert not any(mark in document.text for mark in ("{{", "[[", "<ref", "'''", "(, )"))


def dump(pages: list[str]) -> str:
    head = "<siteinfo><sitename>W</sitename><namespaces></namespaces></siteinfo>"
    return f"<mediawiki>\n{head}\n" + "\n".join(pages) + "\n</mediawiki>\n"


def page(number: int, text: str = "words") -> str:
    return (
        f"<page><title>T{number}</title><ns>0</ns><id>{number}</id>"
        f"<revision><id>1</id><text>{text} {number}</text></revision></page>"
    )


def test_a_damaged_page_costs_itself(tmp_path: Path, read) -> None:
    pages = [page(number) for number in range(100)]
    pages[40] = pages[40].replace("</text>", "</txet>")
    pages[50] = pages[50].replace("words", "&bomb;")
    pages[60] = pages[60][:-20]
    pages[70] = page(70, "long " * 3000)
    path = tmp_path / "a.xml"
    path.write_text(dump(pages) + pages[0][:30])
    found = read(path, "mediawiki-xml", limit=10_000)
    assert found.ids == [str(n) for n in range(100) if n not in (40, 50, 60, 70)]
    # One that is cut short is seen before those of its batch are parsed.
    assert sorted(found.left_out) == [
        ("bad-xml", "page 'T40'"),
        ("bad-xml", "page 'T50'"),
        ("page-cut-short", "page 'T0'"),
        ("page-cut-short", "page 'T60'"),
        ("record-too-long", "page 'T70'"),
    ]


def test_xml_that_is_no_dump_is_left_out(tmp_path: Path, read) -> None:
    path = tmp_path / "a.xml"
    path.write_text("<page><title>A</ti")
    assert read(path, "mediawiki-xml").left_out == [("not-a-mediawiki-dump", "byte 0")]


def test_a_stream_that_is_damaged_costs_itself(tmp_path: Path, read) -> None:
    """A dump of many bzip2 streams goes on with the next that begins with a page."""
    text = dump([page(number) for number in range(90)])
    marks = [0, *(text.index(f"<page><title>T{n}<") for n in (0, 30, 60)), len(text)]
    cuts = itertools.pairwise(marks)
    streams = [bytearray(bz2.compress(text[a:b].encode())) for a, b in cuts]
    streams[2][len(streams[2]) // 2] ^= 0xFF
    path = tmp_path / "a.xml.bz2"
    path.write_bytes(b"".join(streams))
    found = read(path, "mediawiki-xml")
    assert found.ids == [str(n) for n in range(90) if not 30 <= n < 60]
    assert found.left_out == [("archive-damaged", f"byte {len(streams[0]) + len(streams[1])}")]
