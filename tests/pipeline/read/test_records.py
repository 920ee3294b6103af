"""Records with fields and plain text: good ones come out, bad ones are named."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from phrasemem.pipeline.read import Document


def test_json_of_a_mapping_and_of_a_list(tmp_path: Path, read) -> None:
    mapping = tmp_path / "a.json"
    mapping.write_text(json.dumps({"k": {"t": "T", "x": "words"}, "l": {"t": "U"}, "m": 7}))
    documents, left_out, _ = read(mapping, text_field="x", title_field="t")
    assert documents == [Document("k", "c", "web", "T", "words")]
    assert left_out == [("no-text-field", "record 1"), ("not-an-object", "record 2")]
    several = tmp_path / "b.json"
    several.write_text(json.dumps([{"text": "one"}, {"text": 2}, {"text": "three"}]))
    documents, left_out, _ = read(several)
    assert [(d.id, d.text) for d in documents] == [("b.json#0", "one"), ("b.json#2", "three")]
    assert left_out == [("text-not-a-string", "record 1")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "not-json"), ("", "not-json"), ("3", "not-records"), ("[" * 200_000, "nested-too-deep")],
)
def test_json_that_is_none_is_left_out(tmp_path: Path, read, content, reason) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    assert read(path) == ([], [(reason, "byte 0")], [reason])


def test_jsonl_keeps_the_good_lines(tmp_path: Path, read) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = [b'{"text": "one", "id": 5}', b"{oops", b"", b'{"text": "\xff"}', b'{"text": "two"}']
    path.write_bytes(gzip.compress(b"\n".join(lines)))
    documents, left_out, _ = read(path, id_field="id")
    assert [(d.id, d.text) for d in documents] == [("5", "one"), ("a.jsonl.gz@46", "two")]
    assert left_out == [("not-json", "byte 25"), ("not-utf-8", "byte 32")]


def test_csv_in_zip_keeps_the_good_rows(tmp_path: Path, read) -> None:
    path = tmp_path / "a.zip"
    rows = b'id,body,title\r\n1,"two\nlines",T\r\n2,short\r\n3,bad \xff byte,T\r\n4,last,\r\n'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.csv", rows)
    documents, left_out, _ = read(path, text_field="body", title_field="title", id_field="id")
    assert [(d.id, d.title, d.text) for d in documents] == [
        ("1", "T", "two\nlines"),
        ("4", "", "last"),
    ]
    assert left_out == [("wrong-field-count", "record 1"), ("not-utf-8", "record 2")]


@pytest.mark.parametrize(
    ("member", "reason"), [("inner.csv", "no-text-column"), ("inner.txt", "wrong-members")]
)
def test_csv_without_the_column_or_the_member(tmp_path: Path, read, member, reason) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, "a,b\n1,2\n")
    assert read(path).bad == [reason]


def test_text_is_cut_at_line_ends(tmp_path: Path, read) -> None:
    path = tmp_path / "a.txt"
    line = "word " * 100 + "\n"
    path.write_text(line * 5000)
    documents, left_out, _ = read(path)
    assert left_out == []
    assert len(documents) == 3
    assert [d.id for d in documents] == ["a.txt", "a.txt@1048593", "a.txt@2097186"]
    assert "".join(d.text for d in documents) == line * 5000
    assert all(d.text.endswith("\n") for d in documents)


def test_text_in_other_encodings(tmp_path: Path, read) -> None:
    path = tmp_path / "a.txt"
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        path.write_bytes("Größe — ok".encode(encoding))
        assert read(path).texts == ["Größe — ok"]
    path.write_bytes(b"sound\nbroken \xff byte\n")
    assert read(path).left_out == [("not-utf-8", "byte 13")]
    path.write_bytes(b"sound\nwith \0 byte\n")
    assert read(path).left_out == [("nul-bytes", "byte 11")]


def test_parquet_and_arrow_as_data_sets_have_them(tmp_path: Path, read) -> None:
    texts = [f"text {number}" for number in range(1000)]
    texts[3] = None
    table = pa.table({"id": [f"<{number}>" for number in range(1000)], "text": texts, "x": texts})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=300)
    with pa.ipc.new_stream(tmp_path / "b.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=300)
    for name, place, last in (
        ("a.parquet", "row 3", "a.parquet#999"),
        ("a.arrow", "row 0.3", "a.arrow#3.99"),
        ("b.arrow", "row 0.3", "b.arrow#3.99"),
    ):
        found = read(tmp_path / name)
        assert found.texts == [text for text in texts if text]
        assert found.ids[-1] == last
        assert found.left_out == [("no-text-field", place)]
        assert read(tmp_path / name, id_field="id").ids[-1] == "<999>"


def test_json_lines_by_another_name(tmp_path: Path, read) -> None:
    """C4 calls its files ``.json.gz``."""
    lines = b'{"text": "one", "url": "u"}\n{"text": "two", "url": "v"}\n'
    path = tmp_path / "c4-train.00000-of-01024.json.gz"
    path.write_bytes(gzip.compress(lines))
    assert read(path, id_field="url").ids == ["u", "v"]


COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
    "lz4": lambda data: pa.compress(data, "lz4", asbytes=True),
}


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_damaged_archive_gives_what_stands_before(tmp_path: Path, read, kind) -> None:
    lines = [f'{{"text": "{number * 7919}"}}\n'.encode() for number in range(20_000)]
    # Several members: bzip2 gives out nothing of a block that is not whole.
    halves = [b"".join(lines[start : start + 5000]) for start in range(0, 20_000, 5000)]
    path = tmp_path / f"a.jsonl.{kind}"
    whole = b"".join(COMPRESS[kind](half) for half in halves)
    path.write_bytes(whole)
    texts = read(path).texts
    assert len(texts) == 20_000
    path.write_bytes(whole[: len(whole) * 3 // 4 - 100])
    found = read(path)
    assert found.bad == ["archive-cut-short"]
    assert 9_000 < len(found.texts) < 15_000
    assert found.texts == texts[: len(found.texts)]
    if kind != "lz4":  # Arrow writes no checksums there
        damaged = bytearray(whole)
        damaged[len(whole) * 5 // 8] ^= 0xFF
        path.write_bytes(bytes(damaged))
        assert read(path).bad[-1] == "archive-damaged"


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_zip_archive_is_left_out(tmp_path: Path, read, damage) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", "text\n" + "".join(f"{n * 7919}\n" for n in range(5000)))
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    assert read(path).bad[-1] == "archive-damaged"
