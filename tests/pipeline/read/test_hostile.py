"""Input made to harm: bounded memory, a reason each, the good records kept."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from phrasemem.pipeline.documents import read_part
from phrasemem.pipeline.read import opening

GOOD = b'{"text": "good"}\n'


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_line_too_long_is_passed_over(tmp_path: Path, read, compress) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(compress(GOOD + b"x" * 3_000_000 + b"\n" + GOOD + b"y" * 5000))
    found = read(path, limit=1024)
    assert found.texts == ["good"] * 2
    assert found.left_out == [("line-too-long", "byte 17"), ("line-too-long", "byte 3000035")]
    path.write_bytes(compress(b"sound\n" + b"x" * 3_000_000 + b"\nsound\n"))
    found = read(path, "text", limit=1024)
    assert "".join(found.texts) == "sound\nsound\n"
    assert found.bad == ["line-too-long"]


MEASURE = """
import resource, sys
from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read import Source, read_file
corpus = Corpus(name="c", kind="web", source="x", licence="unknown")
list(read_file(Source(sys.argv[1], "warm"), sys.argv[3], corpus))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
records = list(read_file(Source(sys.argv[2], "big", None, 1 << 22), sys.argv[3], corpus))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print(*(getattr(record, "reason", "document") for record in records))
"""


def kilobytes(small: Path, big: Path, format: str) -> tuple[int, list[str]]:
    """Return by how much a file raises the peak memory of a process, and what it gives."""
    command = [sys.executable, "-c", MEASURE, str(small), str(big), format]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, given = done.stdout.splitlines()
    return int(grown), given.split()


@pytest.mark.parametrize("megabytes", [64, pytest.param(1024, marks=pytest.mark.slow)])
def test_a_long_line_takes_little_memory(tmp_path: Path, megabytes) -> None:
    small, big = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    small.write_bytes(GOOD)
    block = gzip.compress(b"x" * (1 << 20))
    big.write_bytes(gzip.compress(GOOD) + block * megabytes + gzip.compress(b"\n" + GOOD))
    grown, given = kilobytes(small, big, "jsonl")
    assert given == ["document", "line-too-long", "document"]
    assert grown < 40_000


def test_an_archive_that_expands_too_far_is_stopped(tmp_path: Path, read, monkeypatch) -> None:
    monkeypatch.setattr(opening, "_ANY_EXPANSION_UP_TO", 1 << 22)
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.compress(GOOD + b"x" * (1 << 26)))
    found = read(path)
    assert (found.texts, found.bad) == (["good"], ["expands-too-far"])
    path = tmp_path / "a.jsonl.bz2"
    path.write_bytes(bz2.compress(GOOD + b"x" * (1 << 25)))
    found = read(path)
    assert (found.texts, found.bad) == (["good"], ["expands-too-far"])


def test_a_zip_archive_writes_nowhere(tmp_path: Path, read) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = inner / "a.zip"
    before = set(tmp_path.rglob("*"))
    for name in ("../../evil.csv", "/etc/evil.csv", "C:\\evil.csv", "a\0b.csv"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, "text\ngood\n")
        assert read(path).texts == ["good"] or read(path).bad == ["wrong-members"]
    assert set(tmp_path.rglob("*")) == before | {path}


def test_a_zip_member_of_one_line_takes_no_memory(tmp_path: Path, read) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", "text\ngood\n" + "x" * (40 << 20) + "\nalso good\n")
    found = read(path)
    assert found.texts == ["good", "also good"]
    assert found.left_out == [("line-too-long", "record 1")]


LAUGHS = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
BOMB = f'<!DOCTYPE d [<!ENTITY l0 "ha">{LAUGHS}<!ENTITY f SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("format", ["pubmed-xml", "jats-xml", "mediawiki-xml"])
def test_entities_are_never_expanded(tmp_path: Path, read, format) -> None:
    content = {
        "pubmed-xml": "<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>1</PMID><Article>"
        "<ArticleTitle>A</ArticleTitle><Abstract><AbstractText>x&l9;&f;y</AbstractText></Abstract>"
        "</Article></MedlineCitation></PubmedArticle></PubmedArticleSet>",
        "jats-xml": "<article><body><p>x&l9;&f;y</p></body></article>",
        "mediawiki-xml": "<mediawiki><siteinfo><namespaces></namespaces></siteinfo>"
        "<page><title>T</title><ns>0</ns><id>1</id><revision><id>1</id>"
        "<text>x&l9;&f;y</text></revision></page></mediawiki>",
    }[format]
    path = tmp_path / "a.xml"
    path.write_text(f'<?xml version="1.0"?>{BOMB}{content}')
    found = read(path, format)
    assert all(len(text) < 10 and "root" not in text for text in found.texts)
    assert len(found.texts) + len(found.bad) == 1
    path.write_text(f'<?xml version="1.0"?>{BOMB}{content}'.replace("&l9;&f;", "&l0;"))
    found = read(path, format)
    assert "ha" not in "".join(found.texts)
    assert len(found.texts) + len(found.bad) == 1


@pytest.mark.parametrize("format", ["pubmed-xml", "jats-xml"])
def test_xml_without_an_end_or_too_deep(tmp_path: Path, read, format) -> None:
    path = tmp_path / "a.xml.gz"
    path.write_bytes(gzip.compress(b"<article>" + b"<p>word</p>" * 1_000_000))
    assert read(path, format, limit=100_000).bad == ["record-too-long"]
    path.write_bytes(gzip.compress(b"<article>" * 100_000))
    assert read(path, format).bad == ["bad-xml"]


def test_deep_json_and_odd_values(tmp_path: Path, read) -> None:
    path = tmp_path / "a.jsonl"
    deep = b'{"text": ' + b"[" * 500_000 + b"\n"
    odd = [b'{"text": "a\\u0000b"}\n', b'{"text": "\0"}\n', b"null\n", b'{"text": NaN}\n']
    huge = b'{"text": ' + b"9" * 10_000 + b"}\n"
    path.write_bytes(GOOD + deep + b"".join(odd) + huge + GOOD)
    found = read(path)
    assert found.texts == ["good", "a\0b", "good"]
    assert found.bad == [
        "nested-too-deep",
        "not-json",
        "not-an-object",
        "text-not-a-string",
        "not-json",
    ]


def test_a_parquet_file_that_lies(tmp_path: Path, read) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"{'words ' * 50}{number}" for number in range(900)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=300, compression="none")
    content = bytearray(path.read_bytes())
    first = content.index(texts[350].encode())
    content[first - 4 : first] = b"\xff\xff\xff\x7f"  # the length of a string
    path.write_bytes(bytes(content))
    found = read(path)
    assert found.texts[:300] == texts[:300]
    assert found.texts[-300:] == texts[600:]
    assert found.bad == ["row-group-damaged"]
    path.write_bytes(bytes(content[:-100]))
    assert read(path).bad == ["not-parquet"]
    path.write_bytes(b"PAR1")
    assert read(path).bad == ["not-parquet"]


def test_an_arrow_file_that_is_cut(tmp_path: Path, read) -> None:
    table = pa.table({"text": [f"text {number}" for number in range(900)]})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table, max_chunksize=300)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 4 // 5])
    found = read(path)
    assert len(found.texts) == 600
    assert found.bad == ["arrow-damaged"]
    path.write_bytes(b"ARROW1")
    assert read(path).bad == ["arrow-damaged"]


def test_an_archive_cut_short_leaves_its_documents_and_a_line(tmp_path: Path, corpus) -> None:
    source = tmp_path / "a.jsonl.gz"
    lines = [json.dumps({"text": str(number * 7919) * 9}) + "\n" for number in range(9000)]
    source.write_bytes(gzip.compress("".join(lines).encode())[:-2000])
    report = read_part(
        tmp_path,
        "000",
        corpus=corpus().model_dump(),
        name="a.jsonl.gz",
        location=str(source),
        shard=0,
        shards=1,
        pieces_of_corpus=1,
        chunk_chars=100_000,
    )
    assert report["left_out"] == {"archive-cut-short": 1}
    assert 1000 < report["documents"] < 9000
    table = pa.concat_tables(pq.read_table(tmp_path / f"{c}.parquet") for c in report["chunks"])
    assert table["text"].to_pylist() == [json.loads(x)["text"] for x in lines[: len(table)]]
    assert len(table) == report["documents"]
    (line,) = (tmp_path / "000.quarantine.jsonl").read_text().splitlines()
    where = f"byte {source.stat().st_size}"
    assert json.loads(line)["where"] == where


def test_bad_records_are_quarantined_as_they_come(tmp_path: Path, corpus) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(GOOD + b"{oops\n" * 20_000 + b"z" * 9000 + b"\n" + GOOD)
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
        max_record_bytes=4096,
    )
    assert report["left_out"] == {"line-too-long": 1, "not-json": 20_000}
    assert report["documents"] == 2
    lines = (tmp_path / "000.quarantine.jsonl").read_text().splitlines()
    assert len(lines) == 20_001
    last = json.loads(lines[-1])
    assert (last["reason"], last["where"]) == ("line-too-long", f"byte {17 + 6 * 20_000}")
