"""From sources to pieces and chunks: names, checksums, globs, URLs, data sets."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread

import pyarrow.parquet as pq
import pytest

from phrasemem.pipeline.documents import read_part
from phrasemem.pipeline.read import Document, ReadError, Source
from phrasemem.pipeline.read.hub import read_hub, shard_count
from phrasemem.pipeline.sources import find_pieces


def test_a_dataset_is_streamed_in_shards(tmp_path: Path, corpus) -> None:
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
    (tmp_path / "part-3.jsonl").write_text('{"text": "sound"}\n{oops\n')
    records = [r for shard in range(2) for r in read_hub(source, shard, 2, settings)]
    assert sum(isinstance(record, Document) for record in records) >= 9
    assert [r.reason for r in records if not isinstance(r, Document)] == ["dataset-damaged"]
    with pytest.raises(ReadError, match="cannot open the dataset"):
        shard_count(settings, f"hf:{tmp_path / 'none'}")


def test_a_part_is_cut_into_chunks_and_bad_records_are_quarantined(tmp_path: Path, corpus) -> None:
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
    assert (quarantine["reason"], quarantine["where"]) == ("not-json", "byte 189")


def test_half_a_surrogate_pair_stops_nothing(tmp_path: Path, corpus) -> None:
    half = json.dumps({"text": "a \ud83d b", "title": "\ud83d", "key": "\udfff"})
    (tmp_path / "a.jsonl").write_text(half)
    settings = corpus(title_field="title", id_field="key", budget={"max_bytes": 1000})
    report = read_part(
        tmp_path,
        "000",
        corpus=settings.model_dump(),
        name="a.jsonl",
        location=str(tmp_path / "a.jsonl"),
        shard=0,
        shards=1,
        pieces_of_corpus=1,
        chunk_chars=120,
    )
    assert report["documents"] == 1
    [row] = pq.read_table(tmp_path / "000-00000.parquet").to_pylist()
    assert row == {"id": "?", "title": "?", "text": "a ? b"}


def test_a_file_behind_a_url_is_a_source(tmp_path: Path, corpus, read) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/crawl/a/x.jsonl.gz", gzip.compress(b'{"text": "one"}\n'))
    memory.pipe("/crawl/b/x.jsonl", b'{"text": "two"}\n' * 100)
    pieces = find_pieces([corpus(source="memory://crawl/*/x.*")], tmp_path)
    assert [piece.name for piece in pieces] == ["a/x.jsonl.gz", "b/x.jsonl"]
    assert [len(read(piece.location).texts) for piece in pieces] == [1, 100]
    assert len(read(pieces[1].location, split=160).texts) == 100
    memory.pipe("/crawl/b/x.jsonl", b"other")
    again = find_pieces([corpus(source="memory://crawl/*/x.*")], tmp_path)
    assert pieces[0].identity == again[0].identity
    assert pieces[1].identity != again[1].identity
    digest = hashlib.sha256(b"other").hexdigest()
    one = "memory://crawl/b/x.jsonl"
    assert find_pieces([corpus(source=one, sha256=digest)], tmp_path)[0].identity[7:] == digest
    with pytest.raises(ReadError, match="checksum of a source"):
        find_pieces([corpus(source=one, sha256="0" * 64)], tmp_path)
    with pytest.raises(ReadError, match="no such file"):
        find_pieces([corpus(source="memory://crawl/none.jsonl")], tmp_path)
    with pytest.raises(ReadError, match="no file system for this URL"):
        find_pieces([corpus(source="nonesuch://crawl/none.jsonl")], tmp_path)


def test_a_file_behind_a_web_server(tmp_path: Path, corpus, read) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "one"}\n' * 1000))
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/a.jsonl.gz"
            (piece,) = find_pieces([corpus(source=url)], tmp_path)
            assert len(read(piece.location).texts) == 1000
        finally:
            server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_reader_that_goes_back_says_so_where_it_cannot(monkeypatch, tmp_path: Path) -> None:
    class Streaming(BytesIO):
        def seek(self, *_: object) -> int:
            raise ValueError("Cannot seek streaming HTTP file")

    monkeypatch.setattr(Source, "open", lambda self: Streaming(b"content"))
    with pytest.raises(ReadError, match="cannot be asked for a part"):
        Source("http://example.org/a.warc", "a").open_seekable()


def test_a_file_whose_name_is_no_text_is_named_all_the_same(tmp_path: Path, corpus) -> None:
    location = os.fsencode(tmp_path) + b"/caf\xe9.jsonl"
    try:
        Path(os.fsdecode(location)).write_text('{"text": "one"}')
    except OSError as error:
        pytest.skip(f"the file system refuses such names: {error}")
    [piece] = find_pieces([corpus(source="*.jsonl")], tmp_path)
    assert piece.name == "caf\\udce9.jsonl"
    assert os.fsencode(piece.location) == location


def test_files_of_one_name_stay_apart(tmp_path: Path, corpus) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text(folder)
    found = find_pieces([corpus(source="*/x.txt")], tmp_path)
    assert [piece.name for piece in found] == ["a/x.txt", "b/x.txt"]
    found = find_pieces([corpus(source=["a/x.txt", "b/x.txt"])], tmp_path)
    assert [piece.name for piece in found] == ["x.txt", "x.txt~2"]


def test_sources_are_found_in_order_and_checked(tmp_path: Path, corpus) -> None:
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
