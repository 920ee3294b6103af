"""Memories that lie about themselves, with right checksums: refused in one line, never believed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from phrasemem.held_out import LONGEST_LINE, HeldOutError, held_out_documents, held_out_lines
from phrasemem.memfmt.canonical import sealed
from phrasemem.memfmt.checksums import file_info
from phrasemem.memfmt.errors import FormatError
from phrasemem.memfmt.manifest import BLOCK_BYTES, Manifest, parse_manifest, serialise
from phrasemem.pipeline.catalogue_counts import CatalogueError
from phrasemem.pipeline.catalogue_table import ENTROPIES
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.count_store import CountStoreError, stands_beside
from phrasemem.pipeline.drop_corpus import drop_corpus
from phrasemem.pipeline.earlier import open_earlier
from phrasemem.pipeline.explain_memory import explain_in_memory
from phrasemem.pipeline.remake import open_origin
from phrasemem.pipeline.retokenize import retokenize
from phrasemem.pipeline.run import build
from phrasemem.pipeline.scoring import ScoringError, recorded_scoring
from phrasemem.pipeline.unigrams import UNIGRAMS_FILE, UnigramsError, read_unigrams

CATALOGUE, RECORD, HELD_OUT = "catalogue.parquet", "build.json", "heldout.jsonl.zst"


@pytest.fixture(scope="module")
def sound(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with a count store. Tests must not change it."""
    folder = tmp_path_factory.mktemp("sound")
    changes = {"mining": {"min_count": 4, "max_phrases": 400, "keep_counts": True}}
    config = BuildConfig.model_validate(world.config(**changes))
    build(config, folder / "memory", work=folder / "work", base=world.folder, workers=0)
    return folder / "memory"


@pytest.fixture
def memory(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound.with_name("memory.counts"), tmp_path / "memory.counts")
    return Path(shutil.copytree(sound, tmp_path / "memory"))


def resign(memory: Path, name: str) -> None:
    path = memory / "manifest.json"
    manifest = parse_manifest(path.read_bytes(), path)
    files = manifest.files | {name: file_info(memory / name, BLOCK_BYTES)}
    path.write_bytes(serialise(Manifest.model_validate(dict(manifest) | {"files": files})))


def write(memory: Path, name: str, data: bytes) -> None:
    (memory / name).write_bytes(data)
    resign(memory, name)


def change_table(memory: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(memory / name)), memory / name)
    resign(memory, name)


def with_column(name: str, values: Callable[[pa.Table], pa.Array]) -> Callable[..., pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.schema.get_field_index(name), name, values(table))

    return change


def moved(table: pa.Table) -> pa.Array:
    tokens = table["tokens"].to_pylist()
    return pa.array(tokens[1:] + tokens[:1], pa.list_(pa.uint32()))


def reversed_tokens(table: pa.Table) -> pa.Array:
    return pa.array([key[::-1] for key in table["tokens"].to_pylist()], pa.list_(pa.uint32()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table[:-1], "other rows"),
        (lambda table: table[:0], "other rows"),
        (lambda table: pa.concat_tables([table, table]), "other rows"),
        (lambda table: table.take(np.arange(len(table))[::-1]), "other row numbers"),
        (lambda table: table.drop_columns(["documents"]), "lacks columns"),
        (with_column("tokens", moved), "other tokens"),
        (with_column("tokens", reversed_tokens), "other tokens"),
        (with_column("n", lambda t: pa.array(np.full(len(t), 9, np.uint8))), "other tokens"),
        (with_column("tokens", lambda t: pa.nulls(len(t), pa.list_(pa.uint32()))), "other values"),
        (with_column("text", lambda t: pa.nulls(len(t), pa.string())), "other values"),
        (with_column("count", lambda t: pa.nulls(len(t), pa.uint64())), "other values"),
        (with_column("count", lambda t: pa.array(["1"] * len(t))), "other values in count"),
        (with_column("score", lambda t: pa.array([True] * len(t))), "other values in score"),
    ],
)
def test_a_catalogue_that_is_not_of_its_memory_is_refused(memory, change, message):
    change_table(memory, CATALOGUE, change)
    for call in (open_origin, lambda path: open_earlier(path, {})):
        with pytest.raises(CatalogueError, match=message):
            call(memory)


@pytest.mark.parametrize("data", [b"", b"junk", b"PAR1" + b"x" * 300 + b"PAR1"])
def test_tables_that_are_no_parquet_are_refused(memory, data):
    write(memory, CATALOGUE, data)
    with pytest.raises(CatalogueError, match="cannot be read"):
        open_origin(memory)
    write(memory, UNIGRAMS_FILE, data)
    with pytest.raises(UnigramsError, match="cannot be read"):
        read_unigrams(memory / UNIGRAMS_FILE, ["wiki"])


@pytest.mark.parametrize("name", [CATALOGUE, HELD_OUT, "shard-00000/keys.mdb"])
def test_damage_is_found_before_a_memory_is_extended(memory, name):
    data = bytearray((memory / name).read_bytes())
    data[len(data) // 2] ^= 1
    (memory / name).write_bytes(data)
    with pytest.raises(FormatError, match="block-checksum"):
        open_earlier(memory, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_column("count_wiki", lambda t: pa.nulls(len(t), pa.uint64())), "not a number"),
        (with_column("count_wiki", lambda t: pa.array(["1"] * len(t))), "not a number"),
        (with_column("token", lambda t: pa.array([-1] * len(t))), "not a number"),
        (lambda table: table.drop_columns(["token"]), "columns are missing"),
        (lambda table: table.drop_columns(["documents_wiki"]), "columns are missing"),
        (lambda table: pa.concat_tables([table, table]), "do not rise"),
    ],
)
def test_counts_of_single_tokens_that_cannot_be_are_refused(memory, change, message):
    change_table(memory, UNIGRAMS_FILE, change)
    with pytest.raises(UnigramsError, match=message):
        read_unigrams(memory / UNIGRAMS_FILE, ["wiki"])


DOCUMENT = b'{"corpus":"wiki","id":"1","kind":"web","split":"test","text":"x"}'


def test_the_last_line_of_held_out_documents_always_ends(memory):
    write(memory, HELD_OUT, zstandard.compress(DOCUMENT + b"\n\n" + DOCUMENT))
    assert list(held_out_lines(memory)) == [DOCUMENT + b"\n"] * 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"junk", "cannot be read"),
        (zstandard.compress(DOCUMENT)[:-4] + b"junk", "cannot be read"),
        (zstandard.compress(b"{x\n"), "line 1"),
        (zstandard.compress(DOCUMENT + b"\n\xff\n"), "line 2"),
        (zstandard.compress(b"[" * 100_000), "no JSON"),
        (zstandard.compress(b"[1]\n"), "lacks"),
        (zstandard.compress(b'{"text":"x"}\n'), "lacks"),
        (zstandard.compress(DOCUMENT.replace(b'"x"', b"1")), "lacks"),
        (zstandard.compress(b" " * (LONGEST_LINE + 1)), "bytes or more"),
    ],
)
def test_held_out_documents_in_another_form_are_refused(memory, data, message):
    write(memory, HELD_OUT, data)
    with pytest.raises(HeldOutError, match=message):
        list(held_out_documents(memory))


def change_record(memory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads((memory / RECORD).read_text())
    change(record)
    write(memory, RECORD, json.dumps(record).encode())


@pytest.mark.parametrize("data", [b"[]", b'"x"', b"{}", b"[" * 100_000, b"\xff", b"9" * 5000])
def test_a_record_of_the_build_that_is_none_is_refused(memory, data):
    write(memory, RECORD, data)
    with pytest.raises(ScoringError):
        recorded_scoring(memory)


@pytest.mark.parametrize(
    "change",
    [
        lambda scoring: scoring.update(candidates=float("inf")),
        lambda scoring: scoring.update(candidates=-1),
        lambda scoring: scoring.update(floor={"count": 0, "documents": 1}),
        lambda scoring: scoring.update(floor=[1, 2]),
        lambda scoring: scoring.update(phrase_shares={"wiki": "much"}),
        lambda scoring: scoring.update(phrase_shares={"wiki": float("nan")}),
        lambda scoring: scoring.update(phrase_shares={"wiki": 5}),
        lambda scoring: scoring["mining"].update(max_phrases=-1),
    ],
)
def test_settings_that_cannot_be_are_refused(memory, change):
    change_record(memory, lambda record: change(record["scoring"]))
    with pytest.raises(ScoringError):
        recorded_scoring(memory)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("corpora"),
        lambda record: record.update(corpora="x"),
        lambda record: record.update(corpora=[5]),
        lambda record: record["corpora"].pop(),
        lambda record: record["corpora"].reverse(),
        lambda record: record["corpora"][0].update(tokens="many"),
        lambda record: record["corpora"][0].update(dropped=["x"]),
        lambda record: record.update(phrases="many"),
        lambda record: record.update(extended={"uncounted": "x"}),
    ],
)
def test_a_record_that_does_not_say_what_became_of_the_corpora_is_refused(memory, change):
    change_record(memory, change)
    with pytest.raises(ScoringError, match="what became of its corpora"):
        open_earlier(memory, {})


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head.pop("memory"),
        lambda head: head.pop("files"),
        lambda head: head.update(buckets=3),
        lambda head: head.update(buckets=10**9),
        lambda head: head.update(buckets="16"),
        lambda head: head["files"].pop("bucket-00000.parquet"),
        lambda head: head["files"].update({"../memory/manifest.json": {"bytes": 1}}),
    ],
)
def test_a_count_store_that_lists_other_files_than_it_needs_is_refused(memory, change):
    path = memory.with_name("memory.counts") / "counts.json"
    assert stands_beside(memory)
    head = json.loads(path.read_bytes())
    del head["checksum"]
    change(head)
    path.write_bytes(sealed(head))
    with pytest.raises(CountStoreError):
        open_earlier(memory, {})
    # Where only a yes or no is wanted, it is no error.
    stands_beside(memory)


def test_a_sound_memory_is_opened(memory):
    assert open_earlier(memory, {}).store is not None
    assert open_origin(memory).corpora
    assert list(held_out_documents(memory))


def test_a_memory_of_an_earlier_version_has_no_entropies_and_is_of_use(
    memory: Path, world: Any, tmp_path: Path
) -> None:
    shutil.rmtree(memory.with_name("memory.counts"))
    older = Path(shutil.copytree(memory, tmp_path / "older"))
    change_table(older, CATALOGUE, lambda table: table.drop_columns(list(ENTROPIES)))
    assert open_earlier(older, {}).names == ["wiki", "papers", "pages"]
    row = pq.read_table(older / CATALOGUE).slice(3, 1).to_pylist()[0]
    told = {tuple(one.tokens): one for one in explain_in_memory(row["text"], older)}
    assert told[tuple(row["tokens"])].scores["left_entropy"] is None
    # The build of ``memory`` kept counts, so that its entropies are not known either.
    for name, make in (
        ("retokenized", lambda origin, out: retokenize(origin, str(world.model), out)),
        ("dropped", lambda origin, out: drop_corpus(origin, "pages", out)),
    ):
        made = []
        for origin in (older, memory):
            out = tmp_path / f"{name}-{origin.name}"
            make(origin, out)
            made.append((out / CATALOGUE).read_bytes())
        assert made[0] == made[1]
