"""A memory that corpora are added to equals a build of all corpora, where counts were kept."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard

from phrasemem.memfmt.errors import FormatError
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.verify import verify
from phrasemem.pipeline.catalogue_table import ENTROPIES
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.count_store import CountStoreError, store_path
from phrasemem.pipeline.extend import ExtendError, extend
from phrasemem.pipeline.plan import PlanError
from phrasemem.pipeline.progress import Reporter
from phrasemem.pipeline.report import BuildReport
from phrasemem.pipeline.run import build

from .conftest import same_files

MINING = {"min_count": 4, "max_phrases": 400}


def quiet() -> Reporter:
    return Reporter(io.StringIO())


def corpus(path: Path, name: str, **changes: Any) -> dict[str, Any]:
    fixed = {"kind": "encyclopedia", "title_field": "title", "id_field": "id", "licence": "CC0-1.0"}
    return {"name": name, "source": str(path), **fixed, **changes}


def write(path: Path, documents: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


@pytest.fixture(scope="module")
def corpora(world: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Two corpora and a third with copies of their texts and shorter texts of their titles."""
    folder = tmp_path_factory.mktemp("corpora")
    wiki = [json.loads(line) for line in (world.folder / "wiki.jsonl").read_text().splitlines()]
    papers = json.loads((world.folder / "papers-1.json").read_text())
    more = list(json.loads((world.folder / "papers-2.json").read_text()).values())
    shorter = [
        {**document, "text": document["text"][:130], "id": f"s{number}"}
        for number, document in enumerate(wiki[10:16])
    ]
    copies = [{**document, "id": f"c{number}"} for number, document in enumerate(wiki[:10])]
    return [
        corpus(write(folder / "wiki.jsonl", wiki), "wiki", redistributable=True),
        corpus(write(folder / "papers.jsonl", papers), "papers", kind="science", licence="-"),
        corpus(write(folder / "more.jsonl", [*copies, *more, *shorter]), "more"),
    ]


def config(world: Any, corpora: list[dict[str, Any]], **mining: Any) -> BuildConfig:
    return BuildConfig.model_validate(world.config(corpora=corpora, mining={**MINING, **mining}))


def built(world: Any, corpora: list[dict[str, Any]], out: Path, **mining: Any) -> BuildReport:
    return build(config(world, corpora, **mining), out, workers=0, reporter=quiet())


def extended(
    world: Any, memory: Path, corpora: list[dict[str, Any]], out: Path, **mining: Any
) -> BuildReport:
    given = config(world, corpora, **mining)
    return extend(memory, given, out, workers=0, reporter=quiet())


@pytest.fixture(scope="module")
def two(
    world: Any, corpora: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A memory of the first two corpora, with its count store."""
    out = tmp_path_factory.mktemp("two") / "memory"
    built(world, corpora[:2], out, keep_counts=True, shortest=0)
    return out


@pytest.fixture(scope="module")
def three(
    world: Any, corpora: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A memory of all corpora, built at once, with its count store."""
    out = tmp_path_factory.mktemp("three") / "memory"
    built(world, corpora, out, keep_counts=True, shortest=0)
    return out


def test_an_extended_memory_equals_a_build_of_all_corpora(
    world: Any, corpora: list[dict[str, Any]], two: Path, three: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in two.rglob("*") if path.is_file()}
    report = extended(world, two, corpora, tmp_path / "memory", shortest=0)
    assert report.notes == []
    assert report.corpora[2].decisions["duplicate-text"] == 10
    assert report.corpora[2].decisions["duplicate-title"] == 6
    assert same_files(tmp_path / "memory", three) == []
    verify(tmp_path / "memory")
    with (
        MemoryReader.open(two) as old,
        MemoryReader.open(three) as fresh,
        MemoryReader.open(tmp_path / "memory") as new,
    ):
        assert new.manifest.corpora == fresh.manifest.corpora
        rows = np.arange(len(new))
        lengths, tokens = new.row_tokens(rows)
        vectors = [reader.payload("semantic").gather(rows) for reader in (new, fresh)]
        known = old.look_up(tokens, lengths)
        kept = known >= 0
        assert 0 < kept.sum() < len(rows)
        np.testing.assert_array_equal(vectors[0][kept], old.payload("semantic").gather(known[kept]))
        np.testing.assert_allclose(vectors[0], vectors[1], atol=2e-2)
    assert before == {path: path.read_bytes() for path in two.rglob("*") if path.is_file()}


def test_the_store_is_extended_too(
    world: Any, corpora: list[dict[str, Any]], two: Path, three: Path, tmp_path: Path
) -> None:
    """Adding one after the other gives the same, so what was kept is all that is needed."""
    one = tmp_path / "one"
    built(world, corpora[:1], one, keep_counts=True)
    extended(world, one, corpora[:2], tmp_path / "two")
    extended(world, tmp_path / "two", corpora, tmp_path / "three", shortest=0)
    assert same_files(tmp_path / "three", three) == []
    assert counts_in(store_path(tmp_path / "three")) == counts_in(store_path(three))
    documents = [store_path(path) / "documents.parquet" for path in (tmp_path / "three", three)]
    known = [set(pq.read_table(path)["text_hash"].to_pylist()) for path in documents]
    assert known[0] == known[1]


def counts_in(store: Path) -> list[tuple[Any, ...]]:
    query = "SELECT * FROM read_parquet(?) ORDER BY ALL"
    rows = duckdb.sql(query, params=[str(store / "bucket-*.parquet")]).fetchall()
    assert min(row[-2] for row in rows) == 1
    return rows


def test_keeping_counts_leaves_out_entropies_and_changes_nothing_else(
    world: Any, corpora: list[dict[str, Any]], tmp_path: Path
) -> None:
    kept, plain = tmp_path / "kept", tmp_path / "plain"
    how = {"shortest": 0, "score": "collocation"}
    built(world, corpora[:2], kept, keep_counts=True, **how)
    built(world, corpora[:2], plain, **how)
    assert same_files(plain, kept) == ["catalogue.parquet"]
    tables = [pq.read_table(memory / "catalogue.parquet") for memory in (plain, kept)]
    assert tables[0].drop_columns(list(ENTROPIES)).equals(tables[1].drop_columns(list(ENTROPIES)))
    assert tables[1][ENTROPIES[0]].null_count == len(tables[1])
    assert tables[0][ENTROPIES[0]].null_count < len(tables[0])
    assert not store_path(plain).exists()


def test_a_lost_store_is_made_again(
    world: Any, corpora: list[dict[str, Any]], tmp_path: Path, contents: Any
) -> None:
    out = tmp_path / "memory"
    built(world, corpora[:1], out, keep_counts=True)
    first = contents(tmp_path / "memory.counts")
    shutil.rmtree(store_path(out))
    assert not built(world, corpora[:1], out, keep_counts=True).did_nothing
    assert contents(tmp_path / "memory.counts") == first
    assert built(world, corpora[:1], out, keep_counts=True).did_nothing


def test_the_command_gives_the_same_bytes_with_workers(
    world: Any, corpora: list[dict[str, Any]], two: Path, tmp_path: Path, cli: Any, contents: Any
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    extended(world, two, corpora, here)
    path = world.write("extend", corpora=corpora, mining=MINING)
    options = ("--config", path, "--out", there, "--workers", 1)
    done = cli("extend", two, *options)
    assert done.returncode == 0, done.stderr
    assert "files are right" in done.stdout
    assert "not exact" not in done.stdout
    assert contents(there) == contents(here)
    assert contents(store_path(there)) == contents(store_path(here))
    again = cli("extend", two, *options)
    assert "nothing to do" in again.stderr


def test_without_a_store_it_says_what_is_not_exact(
    world: Any, corpora: list[dict[str, Any]], two: Path, three: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "two"
    shutil.copytree(two, alone)
    report = extended(world, alone, corpora, tmp_path / "memory")
    assert not store_path(tmp_path / "memory").exists()
    columns = ["tokens", "n", "count_wiki", "count_papers"]
    tables = [
        {
            tuple(row["tokens"]): row
            for row in pq.read_table(path / "catalogue.parquet", columns=columns).to_pylist()
            if row["n"] >= 2
        }
        for path in (two, tmp_path / "memory", three)
    ]
    old, new, fresh = tables
    lacking = [key for key in new if key not in old]
    record = json.loads((tmp_path / "memory/build.json").read_text())["extended"]
    assert record["uncounted"] == len(lacking) > 0
    assert record["counts"] is False
    assert any(f"{len(lacking):,} phrases were not in the memory" in n for n in report.notes)
    for key, row in new.items():
        if key in old:
            assert row["count_wiki"] == old[key]["count_wiki"]
            assert row["count_papers"] == old[key]["count_papers"]
        elif key in fresh:
            assert row["count_wiki"] == 0 <= fresh[key]["count_wiki"]
    # The ten copies are mined twice for want of the documents' hashes, but for those held out.
    held_out = held_out_texts(two)
    assert not any(text in held_out_texts(tmp_path / "memory", "more") for text in held_out)
    assert report.corpora[2].decisions["duplicate-text"] > 0


def held_out_texts(memory: Path, name: str | None = None) -> list[str]:
    packed = (memory / "heldout.jsonl.zst").read_bytes()
    lines = zstandard.ZstdDecompressor().stream_reader(packed).read().decode().splitlines()
    found = [json.loads(line) for line in lines]
    return [document["text"] for document in found if name in (None, document["corpus"])]


def test_a_longer_text_of_a_known_title_is_left_out_and_counted(
    world: Any, corpora: list[dict[str, Any]], two: Path, tmp_path: Path
) -> None:
    source = Path(corpora[0]["source"])
    wiki = [json.loads(line) for line in source.read_text().splitlines()]
    longer = [{**d, "text": d["text"] + " And then some more."} for d in wiki[:3]]
    others = [{**d, "title": "", "text": d["text"][::-1]} for d in wiki[3:6]]
    added = corpus(write(tmp_path / "more.jsonl", [*longer, *others]), "more", language=None)
    report = extended(world, two, [added], tmp_path / "memory")
    assert report.corpora[2].decisions["duplicate-title"] == 3
    assert report.notes == [
        "3 documents are left out although they are longer than the one of their title that was "
        "there first"
    ]


def test_what_does_not_fit_is_refused(
    world: Any, corpora: list[dict[str, Any]], two: Path, tmp_path: Path, other_encoder: Path
) -> None:
    out = tmp_path / "memory"
    with pytest.raises(ExtendError, match=r"adds no corpus.*besides wiki, papers"):
        extended(world, two, corpora[:2], out)
    with pytest.raises(ExtendError, match=r"another n_max than the memory.*expected 6.*found 5"):
        extended(world, two, corpora, out, n_max=5)
    encoder = {**world.config()["encoder"], "id": str(other_encoder)}
    given = BuildConfig.model_validate(
        world.config(corpora=corpora, mining=MINING, encoder=encoder)
    )
    with pytest.raises(ExtendError, match="another encoder than the memory"):
        extend(two, given, out, workers=0, reporter=quiet())
    folded = config(world, corpora).model_copy(update={"key_normalisation": "engram-1"})
    with pytest.raises(PlanError, match=r"folded keys cannot.*expected exact.*found engram-1"):
        extend(two, folded, out, workers=0, reporter=quiet())
    with pytest.raises(ExtendError, match="a memory is never changed"):
        extended(world, two, corpora, two)
    greedy = [{**corpora[2], "budget": {"phrase_share": 0.9}}]
    old = [{**corpora[0], "budget": {"phrase_share": 0.9}}]
    given = config(world, greedy).model_copy(
        update={"corpora": [*config(world, old).corpora, *config(world, greedy).corpora]}
    )
    with pytest.raises(ExtendError, match="sum to more than 1"):
        extend(two, given, out, workers=0, reporter=quiet())
    assert not out.exists()


def test_a_damaged_or_strange_store_is_refused(
    world: Any, corpora: list[dict[str, Any]], two: Path, three: Path, tmp_path: Path
) -> None:
    memory, store = tmp_path / "m", tmp_path / "m.counts"
    shutil.copytree(two, memory)
    shutil.copytree(store_path(three), store)
    with pytest.raises(CountStoreError, match=r"belong to another memory.*--keep-counts"):
        extended(world, memory, corpora, tmp_path / "out")
    for name in ("bucket-00001.parquet", "documents.parquet", "counts.json"):
        shutil.rmtree(store)
        shutil.copytree(store_path(two), store)
        data = bytearray((store / name).read_bytes())
        data[len(data) // 2] ^= 1
        (store / name).write_bytes(data)
        with pytest.raises((CountStoreError, FormatError), match=r"altered|not valid JSON"):
            extended(world, memory, corpora, tmp_path / "out")
        (store / name).write_bytes(data[:-1])
        with pytest.raises((CountStoreError, FormatError), match=r"length|altered|not valid"):
            extended(world, memory, corpora, tmp_path / "out")
    (memory / "build.json").write_text("{}")
    shutil.rmtree(store)
    with pytest.raises(FormatError, match=r"build.json.*file-length"):
        extended(world, memory, corpora, tmp_path / "out")
