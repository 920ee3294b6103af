"""PubMed, JATS, S2ORC and arXiv."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

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


def test_pubmed_titles_and_abstracts_without_entities(tmp_path: Path, read) -> None:
    path = tmp_path / "pubmed1.xml.gz"
    path.write_bytes(gzip.compress(PUBMED.encode()))
    documents, left_out, _ = read(path)
    assert [(d.id, d.title, d.text) for d in documents] == [
        ("1", "Effects of H2O.", "Effects of H2O.\nFirst part.\nSecond."),
        ("2.2", "A translated title.", "A translated title.\nText."),
    ]
    assert left_out == [
        ("no-abstract", "PMID 3"),
        ("no-citation", "PMID 4"),
        ("deleted-citation", "PMID 9"),
    ]


def test_xml_that_is_cut_short_keeps_what_stands_before(tmp_path: Path, read) -> None:
    path = tmp_path / "pubmed1.xml"
    path.write_text(
        PUBMED[: PUBMED.index('<PubmedArticle><MedlineCitation><PMID Version="2"') + 90]
    )
    found = read(path)
    assert found.ids == ["1"]
    assert found.left_out == [("bad-xml", "after record 1")]


JATS = """<?xml version="1.0"?>
<!DOCTYPE article [<!ENTITY b "boom"><!ENTITY f SYSTEM "file:///etc/hostname">]>
<article xmlns:mml="http://www.w3.org/1998/Math/MathML"><front><article-meta>
<article-id pub-id-type="pmid">7</article-id><article-id pub-id-type="pmc">55</article-id>
<title-group><article-title>On <italic>things</italic></article-title></title-group>
<abstract><p>Short &b;&f;
text.</p></abstract></article-meta></front>
<body><sec><title>Start</title><p>As shown [<xref ref-type="bibr">1</xref>,
<xref ref-type="bibr">2</xref>] in <xref ref-type="fig">Figure 1</xref>, <inline-formula>
<mml:math><mml:mi>x</mml:mi></mml:math> no <italic>formula</italic></inline-formula> holds.<fig>
<caption><p>No caption</p>
</caption></fig></p><table-wrap><table><tr><td>No cell</td></tr></table></table-wrap>
<list><list-item><p>One point.</p></list-item></list></sec></body>
<back><ref-list><ref><mixed-citation>No reference</mixed-citation></ref></ref-list></back>
</article>
"""


def test_jats_title_abstract_and_paragraphs(tmp_path: Path, read) -> None:
    path = tmp_path / "a.nxml"
    path.write_text(JATS)
    (document,) = read(path).documents
    assert (document.id, document.title) == ("PMC55", "On things")
    assert document.text.split("\n") == [
        "On things",
        "Short text.",
        "Start",
        "As shown in Figure 1, holds.",
        "One point.",
    ]
    path.write_text(JATS[:-20])
    assert read(path).bad == ["bad-xml"]
    path.write_text("<html/>")
    assert read(path).bad == ["no-article"]


def test_a_real_article(read, odd_file) -> None:
    (document,) = read(odd_file("PMC5828200.nxml")).documents
    assert document.id == "PMC5828200"
    assert document.title.startswith("Curcuminoid submicron")
    assert len(document.text) > 20_000
    for mark in ("[]", "[,", "mml:", "Table 1\n", "10.1016/"):
        assert mark not in document.text


def test_s2orc_in_its_layouts(tmp_path: Path, read) -> None:
    parts = {
        "abstract": [{"text": "An  abstract."}],
        "body_text": [{"text": "Body.", "section": "I"}],
    }
    text = "My title\nAn abstract.\nBody.\nReferences: none"
    places = {
        "title": json.dumps([{"start": 0, "end": 8}]),
        "abstract": json.dumps([{"start": "9", "end": "21"}]),
        "paragraph": json.dumps([{"start": 22, "end": 27}]),
    }
    records = [
        {"paper_id": "p1", "metadata": {"title": "My title"}, **parts},
        {"paper_id": "p2", "title": "My title", "pdf_parse": parts},
        {"corpusid": 3, "content": {"text": text, "annotations": places}},
        {
            "corpusid": 4,
            "title": "My title",
            "body": {"text": text, "annotations": {**places, "title": None}},
        },
        {"corpusid": 5, "content": {"text": text, "annotations": {"paragraph": "[{]"}}},
        {"paper_id": "p6", "body_text": [{"section": "I"}]},
        {"paper_id": "p7"},
        [],
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = read(path, "s2orc-jsonl")
    assert found.ids == ["p1", "p2", "3", "4"]
    assert set(found.texts) == {"My title\nAn abstract.\nBody."}
    assert {document.title for document in found.documents} == {"My title"}
    assert [reason for reason, _ in found.left_out] == [
        "bad-annotations",
        "bad-annotations",
        "no-text",
        "not-an-object",
    ]


def test_arxiv_joins_lines_and_leaves_formulas(tmp_path: Path, read) -> None:
    path = tmp_path / "arxiv-metadata.json"
    record = {"id": "0704.0001", "title": "A\n  title", "abstract": "  We show $x^2$\nholds.\n"}
    path.write_text(json.dumps(record) + "\n" + json.dumps({"id": "2", "title": "B"}) + "\n")
    found = read(path, "arxiv-jsonl")
    assert [(d.id, d.title, d.text) for d in found.documents] == [
        ("0704.0001", "A title", "A title\nWe show $x^2$ holds.")
    ]
    assert [reason for reason, _ in found.left_out] == ["no-abstract"]
