"""Readers: every good record comes out, every bad one is named with its reason."""

from __future__ import annotations

import bz2
import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.documents import read_part
from phrasemem.pipeline.read import Document, LeftOut, ReadError, format_of, read_file
from phrasemem.pipeline.read.hub import read_hub, shard_count
from phrasemem.pipeline.read.mediawiki import wikitext_to_text
from phrasemem.pipeline.sources import find_pieces

ODD_FILES = Path(__file__).parents[2].parent / "shared" / "odd-files"


def corpus(**changes: Any) -> Corpus:
    fields = {"name": "c", "kind": "web", "source": "x", "licence": "unknown"}
    return Corpus.model_validate({**fields, **changes})


def read(
    path: Path, format: str = "auto", **changes: Any
) -> tuple[list[Document], list[tuple[str, str]]]:
    settings = corpus(**changes)
    records = list(read_file(path, path.name, format_of(path, format), settings))  # type: ignore[arg-type]
    documents = [record for record in records if isinstance(record, Document)]
    left_out = [(r.reason, r.where) for r in records if isinstance(r, LeftOut)]
    assert len(documents) + len(left_out) == len(records)
    return documents, left_out


def odd_file(name: str) -> Path:
    path = ODD_FILES / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


def test_json_of_a_mapping_and_of_a_list(tmp_path: Path) -> None:
    mapping = tmp_path / "a.json"
    mapping.write_text(json.dumps({"k": {"t": "T", "x": "words"}, "l": {"t": "U"}, "m": 7}))
    documents, left_out = read(mapping, text_field="x", title_field="t")
    assert documents == [Document("k", "c", "web", "T", "words")]
    assert left_out == [("no-text-field", "record 1"), ("not-an-object", "record 2")]
    several = tmp_path / "b.json"
    several.write_text(json.dumps([{"text": "one"}, {"text": 2}, {"text": "three"}]))
    documents, left_out = read(several)
    assert [(d.id, d.text) for d in documents] == [("b.json#0", "one"), ("b.json#2", "three")]
    assert left_out == [("text-not-a-string", "record 1")]


@pytest.mark.parametrize("content", ["{", "", "3"])
def test_json_that_is_none_names_the_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(ReadError, match=r"a\.json"):
        read(path)


def test_jsonl_keeps_the_good_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = [b'{"text": "one", "id": 5}', b"{oops", b"", b'{"text": "\xff"}', b'{"text": "two"}']
    path.write_bytes(gzip.compress(b"\n".join(lines)))
    documents, left_out = read(path, id_field="id")
    assert [(d.id, d.text) for d in documents] == [("5", "one"), ("a.jsonl.gz#4", "two")]
    assert left_out == [("not-json", "line 2"), ("not-utf-8", "line 4")]


def test_csv_in_zip_keeps_the_good_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    rows = b'id,body,title\r\n1,"two\nlines",T\r\n2,short\r\n3,bad \xff byte,T\r\n4,last,\r\n'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.csv", rows)
    documents, left_out = read(path, text_field="body", title_field="title", id_field="id")
    assert [(d.id, d.title, d.text) for d in documents] == [
        ("1", "T", "two\nlines"),
        ("4", "", "last"),
    ]
    assert left_out == [("wrong-field-count", "record 1"), ("not-utf-8", "record 2")]


def test_csv_without_the_column_or_the_member(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.csv", "a,b\n1,2\n")
    with pytest.raises(ReadError, match="no such column"):
        read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.txt", "a,b\n1,2\n")
    with pytest.raises(ReadError, match=r"expected one \*\.csv"):
        read(path)


def test_text_is_cut_at_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    line = "word " * 100 + "\n"
    path.write_text(line * 5000)
    documents, left_out = read(path)
    assert left_out == []
    assert len(documents) == 3
    assert [d.id for d in documents] == ["a.txt", "a.txt#1", "a.txt#2"]
    assert "".join(d.text for d in documents) == line * 5000
    assert all(d.text.endswith("\n") for d in documents)


@pytest.mark.parametrize("damage", ["cut", "flip"])
@pytest.mark.parametrize("kind", ["gz", "bz2", "zip"])
def test_a_damaged_archive_is_one_error_that_names_it(
    tmp_path: Path, kind: str, damage: str
) -> None:
    text = "".join(f'{{"text": "{number * 7919}"}}\n' for number in range(5000)).encode()
    path = tmp_path / f"a.jsonl.{kind}"
    if kind == "zip":
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.csv", b"text\n" + text)
    else:
        path.write_bytes(gzip.compress(text) if kind == "gz" else bz2.compress(text))
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(ReadError, match="damaged") as caught:
        read(path)
    assert str(path) in str(caught.value)


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


def test_mediawiki_leaves_out_redirects_and_other_namespaces(tmp_path: Path) -> None:
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
    documents, left_out = read(path)
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
def test_real_mediawiki_dumps(name: str, articles: int, left: list[str]) -> None:
    documents, left_out = read(odd_file(name), "mediawiki-xml")
    assert len(documents) == articles
    assert [reason for reason, _ in left_out] == left
    for document in documents:
        assert not any(mark in document.text for mark in ("{{", "[[", "<ref", "'''", "(, )"))


def test_xml_that_is_no_dump_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text("<mediawiki><page><title>A</ti")
    with pytest.raises(ReadError, match=r"not a MediaWiki dump.*a\.xml"):
        read(path, "mediawiki-xml")
    with pytest.raises(ReadError, match=r"not PubMed XML.*a\.xml"):
        read(path, "pubmed-xml")


PUBMED = """<?xml version="1.0"?>
<!DOCTYPE PubmedArticleSet [<!ENTITY bomb "boom"><!ENTITY file SYSTEM "file:///etc/hostname">]>
<PubmedArticleSet>
<PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="1">1</PMID><Article>
<ArticleTitle>Effects of H<sub>2</sub>O.</ArticleTitle><Abstract>
<AbstractText Label="AIM">First <i>part</i>&bomb;&file;.</AbstractText>
<AbstractText Label="END">Second.</AbstractText></Abstract></Article>
</MedlineCitation></PubmedArticle>
<PubmedArticle><MedlineCitation><PMID Version="2">2</PMID><Article>
<ArticleTitle>[A translated title].</ArticleTitle><Abstract>
<AbstractText>Text.</AbstractText></Abstract>
<Language>fre</Language></Article></MedlineCitation></PubmedArticle>
<PubmedArticle><MedlineCitation><PMID Version="1">3</PMID><Article>
<ArticleTitle>No abstract.</ArticleTitle></Article></MedlineCitation></PubmedArticle>
<PubmedArticle><MedlineCitation><PMID Version="1">4</PMID></MedlineCitation></PubmedArticle>
<DeleteCitation><PMID Version="1">9</PMID></DeleteCitation>
</PubmedArticleSet>
"""


def test_pubmed_titles_and_abstracts_without_entities(tmp_path: Path) -> None:
    path = tmp_path / "pubmed1.xml.gz"
    path.write_bytes(gzip.compress(PUBMED.encode()))
    documents, left_out = read(path)
    assert [(d.id, d.title, d.text) for d in documents] == [
        ("1", "Effects of H2O.", "Effects of H2O.\nFirst part.\nSecond."),
        ("2.2", "A translated title.", "A translated title.\nText."),
    ]
    assert left_out == [
        ("no-abstract", "PMID 3"),
        ("no-citation", "PMID 4"),
        ("deleted-citation", "PMID 9"),
    ]


def test_a_dataset_is_streamed_in_shards(tmp_path: Path) -> None:
    for part in range(4):
        lines = [json.dumps({"text": f"text {part} {row}"}) + "\n" for row in range(3)]
        (tmp_path / f"part-{part}.jsonl").write_text("".join(lines))
    source = f"hf:{tmp_path}"
    settings = corpus(source=source, format="hf-dataset", partitions=2)
    assert shard_count(settings, source) == 2
    shards = [list(read_hub(source, shard, 2, settings)) for shard in range(2)]
    texts = [r.text for records in shards for r in records if isinstance(r, Document)]
    assert sorted(texts) == sorted(f"text {part} {row}" for part in range(4) for row in range(3))
    ids = [r.id for records in shards for r in records if isinstance(r, Document)]
    assert len(set(ids)) == 12
    with pytest.raises(ReadError, match="cannot open the dataset"):
        shard_count(settings, f"hf:{tmp_path / 'none'}")


def test_a_part_is_cut_into_chunks_and_bad_records_are_quarantined(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    good = [json.dumps({"text": f"{number:04d} " * 10}) for number in range(10)]
    source.write_text("\n".join([*good[:3], "{oops", *good[3:]]))
    report = read_part(
        tmp_path,
        "000",
        corpus=corpus().model_dump(),
        name="a.jsonl",
        location=str(source),
        shard=0,
        shards=1,
        pieces_of_corpus=1,
        chunk_chars=120,
    )
    assert report == {
        "chunks": ["000-00000", "000-00001", "000-00002", "000-00003"],
        "documents": 10,
        "chars": 500,
        "left_out": {"not-json": 1},
    }
    sizes = [pq.read_metadata(tmp_path / f"{c}.parquet").num_rows for c in report["chunks"]]
    assert sizes == [3, 3, 3, 1]
    quarantine = json.loads((tmp_path / "000.quarantine.jsonl").read_text())
    assert quarantine["file"] == "a.jsonl"
    assert (quarantine["reason"], quarantine["where"]) == ("not-json", "line 4")


def test_sources_are_found_in_order_and_checked(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text(name)
    pieces = find_pieces([corpus(source="*.txt")], tmp_path)
    assert [piece.name for piece in pieces] == ["a.txt", "b.txt"]
    assert len({piece.identity for piece in pieces}) == 2
    with pytest.raises(ReadError, match="no such file"):
        find_pieces([corpus(source="*.csv")], tmp_path)
    with pytest.raises(ReadError, match="one sha256 for 2 files"):
        find_pieces([corpus(source="*.txt", sha256="0" * 64)], tmp_path)
    (tmp_path / "c.odd").write_text("")
    with pytest.raises(ReadError, match="does not tell the format"):
        find_pieces([corpus(source="c.odd")], tmp_path)
