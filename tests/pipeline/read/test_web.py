"""WARC, WET, ARC and HTML: main text of pages, what is no page counted, damage passed over."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.pipeline.read.webpage import decode, is_deeper_than, main_text

HTML = """<html><head><title>A  title {0}</title><style>p {{}}</style></head><body>
<nav><ul><li><a href="/">Home</a></li><li><a href="/b">Menu</a></li></ul></nav>
<main><h1>Page {0}</h1><p>The words of page {0} stand here, and they are enough to be text.</p>
<script>no()</script></main><footer>All rights reserved</footer></body></html>"""


def http(body: bytes, kind: str = "text/html", status: str = "200 OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def record(block: bytes, type: str = "response", length: int | str | None = None) -> bytes:
    kind = "application/http; msgtype=response" if type == "response" else "text/plain"
    head = (
        f"WARC/1.0\r\nWARC-Type: {type}\r\nWARC-Record-ID: <urn:uuid:1>\r\n"
        f"WARC-Target-URI: http://example.org/\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(block) if length is None else length}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def pages(count: int) -> list[bytes]:
    return [record(http(HTML.format(number).encode())) for number in range(count)]


def test_a_crawl_gives_main_texts(tmp_path: Path, read) -> None:
    records = [
        record(b"software: x\r\n", "warcinfo"),
        *pages(2),
        record(http(b"gone", status="404 Not Found")),
        record(http(b"\x89PNG", "image/png")),
        record(http(b"plain words", "text/plain; charset=utf-8")),
        record("what a crawl converted: café".encode(), "conversion"),
        record(http(gzip.compress(HTML.format(7).encode()), more="Content-Encoding: gzip\r\n")),
    ]
    path = tmp_path / "a.warc"
    path.write_bytes(b"".join(records))
    found = read(path)
    starts = [len(b"".join(records[:ordinal])) for ordinal in range(len(records))]
    assert found.ids == [f"a.warc@{starts[ordinal]}" for ordinal in (1, 2, 5, 6, 7)]
    assert [document.title for document in found.documents[:2]] == ["A title 0", "A title 1"]
    for text, number in zip((*found.texts[:2], found.texts[4]), (0, 1, 7), strict=True):
        assert f"The words of page {number} stand here" in text
        assert not any(word in text for word in ("Menu", "no()", "All rights"))
    assert found.texts[2:4] == ["plain words", "what a crawl converted: café"]
    reasons = [reason for reason, _ in found.left_out]
    assert (reasons, found.bad) == (["no-page", "http-status", "not-text"], [])


def lz4(data: bytes) -> bytes:
    return pa.compress(data, "lz4", asbytes=True)


@pytest.mark.parametrize("kind", ["gz", "zst", "lz4", "one gz"])
def test_a_compressed_crawl_is_the_same(tmp_path: Path, read, kind) -> None:
    compress = {"gz": gzip.compress, "zst": zstandard.compress, "lz4": lz4}
    path = tmp_path / f"a.warc.{kind.split()[-1]}"
    records = pages(5)
    if kind == "one gz":
        path.write_bytes(gzip.compress(b"".join(records)))
    else:
        path.write_bytes(b"".join(map(compress[kind], records)))
    plain = tmp_path / "b.warc"
    plain.write_bytes(b"".join(records))
    assert read(path).texts == read(plain).texts
    assert len(set(read(path).ids)) == 5


LIES = ["99999999999999", "abc", "-5", "9" * 30, "40", "0"]


@pytest.mark.parametrize("length", LIES)
def test_a_record_that_lies_about_its_length_costs_itself(tmp_path: Path, read, length) -> None:
    good = pages(4)
    lying = record(http(HTML.format("x").encode()), length=length)
    plain = tmp_path / "a.warc"
    plain.write_bytes(b"".join([*good[:2], lying, *good[2:]]))
    packed = tmp_path / "a.warc.gz"
    packed.write_bytes(b"".join(map(gzip.compress, [*good[:2], lying, *good[2:]])))
    for path in (plain, packed):
        found = read(path)
        assert [f"page {number} " in found.texts[number] for number in (0, 1)] == [True] * 2
        assert "The words of page 3" in found.texts[-1]
        assert "The words of page 2" in found.texts[-2]
        assert len(found.bad) >= 1


def test_a_member_that_is_damaged_or_cut_costs_itself(tmp_path: Path, read) -> None:
    members = [gzip.compress(page) for page in pages(5)]
    damaged = bytearray(members[2])
    damaged[len(damaged) // 2] ^= 0xFF
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join([*members[:2], damaged, *members[3:]])[:-9])
    found = read(path)
    assert [text[:6] for text in found.texts[:3]] == ["Page 0", "Page 1", "Page 3"]
    place = len(members[0]) + len(members[1])
    assert found.left_out[0] == ("archive-damaged", f"byte {place}")
    assert found.bad[-1] == "archive-cut-short"


def test_a_record_too_long_is_not_held(tmp_path: Path, read) -> None:
    bomb = http(gzip.compress(bytes(1 << 22)), more="Content-Encoding: gzip\r\n")
    records = [record(http(b"x" * 200_000)), record(bomb), *pages(1)]
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(map(gzip.compress, records)))
    found = read(path, limit=100_000)
    assert found.bad == ["record-too-long"] * 2
    assert len(found.texts) == 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_damage_stops_the_reader(tmp_path_factory, read, data) -> None:
    """Whatever bytes are changed or lost, what is yielded is documents and reasons."""
    packed = data.draw(st.booleans())
    parts = [gzip.compress(page, mtime=0) if packed else page for page in pages(4)]
    content = bytearray(b"".join(parts))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(1, 9))] = data.draw(st.binary(max_size=9))
    path = tmp_path_factory.mktemp("damage") / ("a.warc.gz" if packed else "a.warc")
    path.write_bytes(bytes(content))
    found = read(path, "warc")
    assert len(set(found.ids)) == len(found.ids)
    assert len(found.documents) >= 1 or found.bad


def test_arc(tmp_path: Path, read) -> None:
    body = http(HTML.format(1).encode())
    lines = b"1 0 X\nURL IP-address Archive-date Content-type Archive-length\n\n"
    head = b"filedesc://a.arc 0.0.0.0 20140216050221 text/plain %d\n%s" % (len(lines) - 1, lines)

    def entry(block: bytes, length: object = None) -> bytes:
        size = len(block) if length is None else length
        return (
            f"http://example.com/ 1.2.3.4 20140216050221 text/html {size}\n".encode()
            + block
            + b"\n"
        )

    path = tmp_path / "a.arc.gz"
    path.write_bytes(
        b"".join(map(gzip.compress, [head, entry(body), entry(b"", "abc"), entry(body)]))
    )
    found = read(path)
    assert found.ids == ["a.arc.gz#1", "a.arc.gz#3"]
    assert found.bad == ["bad-length"]
    path.write_bytes(gzip.compress(head + entry(body) + entry(body, 10**15)))
    assert read(path).bad == ["record-cut-short"]
    path.write_bytes(gzip.compress(head + entry(b"x" * 300_000) + entry(body)))
    assert read(path, limit=100_000).bad == ["record-too-long"]


@pytest.mark.parametrize(
    ("text", "encoding", "declared"),
    [
        ("naïve café", "utf-8", "iso-8859-1"),  # declared wrongly, as many servers do
        ("naïve café", "windows-1252", "utf-8"),
        ("naïve café", "windows-1252", "iso-8859-1"),
        ("naïve café", "windows-1252", "no-such-encoding"),
        ("Привет, мир! Как дела сегодня?", "koi8-r", "koi8-r"),
        ("Привет, мир! Как дела сегодня, друзья мои? Хорошо ли вам?", "windows-1251", None),
        ("naïve café", "utf-16", None),
        ("日本語のテキストです。これは長い文章です。", "shift_jis", "shift_jis"),
    ],
)
def test_encodings(text, encoding, declared) -> None:
    assert decode(text.encode(encoding), declared) == text


def test_what_no_encoding_fits_is_left_out(tmp_path: Path, read) -> None:
    assert decode("naïve".encode("utf-16") + b"\x00\xd8" * 9, None) is None
    page = "<meta charset=koi8-r><p>Привет, мир! Как дела сегодня?</p>".encode("koi8-r")
    (tmp_path / "a.html").write_bytes(page)
    assert read(tmp_path / "a.html").texts == ["Привет, мир! Как дела сегодня?"]
    (tmp_path / "a.html").write_bytes(b"\xff\xfe" + b"\x00\xd8" * 99)
    assert read(tmp_path / "a.html").bad == ["undecodable"]


def test_deep_pages_are_left_out(tmp_path: Path, read) -> None:
    """The extraction is quadratic in the depth: a megabyte of ``<div>`` would take hours."""
    (tmp_path / "a.html").write_bytes(b"<div>" * 200_000 + b"words")
    assert read(tmp_path / "a.html").bad == ["nested-too-deep"]
    assert not is_deeper_than(b"<p>one<li>two<br><div>x</div>" * 5000, 1000)
    assert not is_deeper_than(b"<div>" * 1000, 1000)
    assert is_deeper_than(b"<div>" * 1001, 1000)


@pytest.mark.parametrize(
    ("name", "documents", "bad"),
    [
        ("bad.arc", 0, {"bad-length": 2}),
        ("clipped.warc.gz", 0, {"archive-cut-short": 1}),
        ("example-bad.warc.gz.bad", 1, {}),
        ("example-digest.warc", 0, {}),
        ("example-iana.org-chunked.warc", 1, {}),
        ("example-trunc.warc", 1, {"bad-record": 1}),
        ("example-wrong-chunks.warc.gz", 1, {}),
        ("example.arc.gz", 1, {}),
        ("sample-0000.warc.gz", 24, {}),
    ],
)
def test_real_crawls(read, odd_file, name, documents, bad) -> None:
    found = read(odd_file(name), "auto" if not name.endswith(".bad") else "warc")
    assert len(found.documents) == documents
    assert Counter(found.bad) == bad
    assert all("<div" not in text and "function(" not in text for text in found.texts)


@pytest.mark.parametrize(
    ("name", "wanted", "unwanted"),
    [
        ("threatpost.com.android.html", "ransomware", "function("),
        ("creativecommons.org.html", "Creative Commons", "jQuery"),
        ("utf8.html", "∮ E⋅da = Q", "<pre"),
        ("exotic_tags.html", "My new car is silver.", "<fw"),
        ("psl.eu.luniversite.html", "PSL", "function("),
    ],
)
def test_real_pages(read, odd_file, name, wanted, unwanted) -> None:
    (document,) = read(odd_file(name)).documents
    assert wanted in document.text
    assert unwanted not in document.text


def test_main_text_of_nothing() -> None:
    assert main_text("") == ("", "")
