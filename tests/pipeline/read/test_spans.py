"""However a file is split, the same documents come out in the same order."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.pipeline.config import BuildConfig, Encoder, Reading
from phrasemem.pipeline.corpus_stages import _read_jobs
from phrasemem.pipeline.read import Source
from phrasemem.pipeline.read.plain import DOCUMENT_BYTES
from phrasemem.pipeline.read.spans import spans_of
from phrasemem.pipeline.sources import find_pieces

WORDS = [f"text {number} " + "more words " * (number * 7 % 13) for number in range(120)]


def json_lines(path: Path) -> None:
    lines = [json.dumps({"text": text}) for text in WORDS]
    lines[5:5] = ["{oops", "", "x" * 3000]
    path.write_text("\n".join(lines))


def warc(path: Path) -> None:
    blocks = [f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{text}" for text in WORDS]
    records = [
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://x.org/\r\nContent-Type: "
        f"application/http; msgtype=response\r\nContent-Length: {len(b)}\r\n\r\n{b}\r\n\r\n"
        for b in blocks
    ]
    records[50] = records[50].replace("Content-Length: ", "Content-Length: 99")
    compress = gzip.compress if path.suffix == ".gz" else bytes
    members = [bytearray(compress(record.encode())) for record in records]
    if path.suffix == ".gz":
        members[70][30] ^= 0xFF
        # A record that goes on in the next member.
        cut = len(records[80]) // 2
        members[80] = gzip.compress(records[80][:cut].encode())
        members.insert(81, gzip.compress(records[80][cut:].encode()))
    path.write_bytes(b"".join(members))


def mediawiki(path: Path) -> None:
    pages = [
        f"<page><title>T{n}</title><ns>0</ns><id>{n}</id><revision><id>1</id>"
        f"<text>{text}</text></revision></page>\n"
        for n, text in enumerate(WORDS)
    ]
    pages[20] = pages[20].replace("</page>", "")
    pages[30] = pages[30].replace("</text>", "&bomb;</text>")
    head = "<mediawiki><siteinfo><namespaces></namespaces></siteinfo>\n"
    if path.suffix != ".bz2":
        path.write_text(head + "".join(pages) + "</mediawiki>\n")
        return
    parts = ["".join(pages[start : start + 10]) for start in range(0, 120, 10)]
    streams = [bytearray(bz2.compress(part.encode())) for part in (head, *parts, "</mediawiki>")]
    streams[6][len(streams[6]) // 2] ^= 0xFF
    path.write_bytes(b"".join(streams))


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": WORDS}), path, row_group_size=7)


def arrow(path: Path) -> None:
    table = pa.table({"text": WORDS})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=7)


MAKERS = {
    "a.jsonl": json_lines,
    "a.warc": warc,
    "a.warc.gz": warc,
    "a-pages-articles.xml": mediawiki,
    "a-pages-articles.xml.bz2": mediawiki,
    "a.parquet": parquet,
    "a.arrow": arrow,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("spans")
    for name, make in MAKERS.items():
        make(folder / name)
    return {name: folder / name for name in MAKERS}


@pytest.fixture(scope="module")
def whole(files, read):
    return {name: read(path, limit=2500) for name, path in files.items()}


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=8, deadline=None)
@given(share=st.floats(0.005, 0.9))
def test_any_split_gives_the_same_documents(files, whole, read, name, share) -> None:
    path = files[name]
    split = max(1, int(path.stat().st_size * share))
    found = read(path, split=split, limit=2500)
    assert found.documents == whole[name].documents
    assert found.left_out == whole[name].left_out


@pytest.mark.parametrize("name", MAKERS)
def test_every_format_is_split_and_holds_damage(files, whole, name) -> None:
    path = files[name]
    source = Source(str(path), name)
    format = {"jsonl": "jsonl", "parquet": "parquet", "arrow": "arrow"}.get(
        path.suffix[1:], "warc" if "warc" in name else "mediawiki-xml"
    )
    assert len(spans_of(source, format, path.stat().st_size // 5)) > 2
    damaged = {
        "a.jsonl": ["not-json", "line-too-long"],
        "a.warc": ["record-cut-short"],
        "a.warc.gz": ["record-too-long", "archive-damaged"],
        "a-pages-articles.xml": ["page-cut-short", "bad-xml"],
        "a-pages-articles.xml.bz2": ["page-cut-short", "bad-xml", "archive-damaged"],
    }
    assert sorted(whole[name].bad) == sorted(damaged.get(name, []))
    assert len(set(whole[name].ids)) == len(whole[name].ids) >= 100


def test_text_is_split_between_documents(tmp_path: Path, read) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{'word ' * (n * 31 % 900)}{n}\n" for n in range(1500)))
    whole = read(path)
    assert len(whole.documents) == 4
    for split in (1, DOCUMENT_BYTES, DOCUMENT_BYTES + 1, 3_000_000):
        assert read(path, split=split).documents == whole.documents


def test_compressed_lines_and_small_files_stay_whole(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "one"}\n' * 1000))
    (tmp_path / "a.txt").write_bytes("text ".encode("utf-16") * 1000)
    assert spans_of(Source(str(tmp_path / "a.jsonl.gz"), "a"), "jsonl", 10) == [None]
    assert spans_of(Source(str(tmp_path / "a.txt"), "a"), "text", 10) == [None]
    (tmp_path / "b.txt").write_bytes(b"text\n" * 1000)
    assert spans_of(Source(str(tmp_path / "b.txt"), "b"), "text", 5000) == [None]


def test_a_dump_cut_anywhere_by_another_packer_is_entered_at_pages_only(tmp_path: Path) -> None:
    """pbzip2 cuts where it likes: only a stream that begins with a page can be entered."""
    mediawiki(tmp_path / "a.xml")
    text = (tmp_path / "a.xml").read_bytes()
    path = tmp_path / "a.xml.bz2"
    path.write_bytes(
        b"".join(bz2.compress(text[at : at + 1000]) for at in range(0, len(text), 1000))
    )
    assert spans_of(Source(str(path), "a"), "mediawiki-xml", 100) == [None]


def test_only_corpora_without_a_budget_are_split(tmp_path: Path, corpus) -> None:
    json_lines(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n')
    names = {}
    for budget in ({}, {"max_documents": 10}, {"max_bytes": 1000}, {"phrase_share": 0.1}):
        for split in (1000, 2000, 1 << 26):
            config = BuildConfig(
                model="m",
                encoder=Encoder(id="e"),
                corpora=[corpus(source="*.jsonl", budget=budget)],
                reading=Reading(split_bytes=split),
            )
            jobs = _read_jobs(config, find_pieces(config.corpora, tmp_path))
            assert [job.key for job in jobs] == sorted({job.key for job in jobs})
            assert {job.arguments["pieces_of_corpus"] for job in jobs} == {2}
            names[*budget, split] = {job.key for job in jobs}
    whole = {"000-000000-000000", "000-000001-000000"}
    for budget in ("max_documents", "max_bytes"):
        assert all(names[budget, split] == whole for split in (1000, 2000, 1 << 26))
    assert names[1 << 26,] == names["phrase_share", 1 << 26] == whole
    assert len(names[1000,]) > len(names[2000,]) > 5
    # No part of one split is taken for a part of another.
    assert names[1000,] & names[2000,] == {"000-000001-000000"}
