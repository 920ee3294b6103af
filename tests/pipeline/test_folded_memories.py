"""Memories from memories whose keys are folded: the keys stay folded, and the texts real ones."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from phrasemem import backbone
from phrasemem.cli import main
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.verify import verify
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.drop_corpus import drop_corpus
from phrasemem.pipeline.embed import kept_vectors
from phrasemem.pipeline.extend import ExtendError, extend
from phrasemem.pipeline.merge_memories import MergeError, merge
from phrasemem.pipeline.plan import PlanError
from phrasemem.pipeline.progress import Reporter
from phrasemem.pipeline.rekey import running_keys
from phrasemem.pipeline.retokenize import retokenize
from phrasemem.pipeline.run import build

from .test_folding import spelled_documents

Key = tuple[int, ...]
# They depend on which other n-grams are candidates, or stand for the place in the memory.
RELATIVE = {"row", "llr", "cvalue", "left_entropy", "right_entropy", "score"}


@pytest.fixture(scope="module")
def profile(
    world: Any, make_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, Any]]:
    """Return a profile of some of the corpora ``first`` and ``second``, with folded keys."""
    folder = tmp_path_factory.mktemp("spelled")
    documents = spelled_documents()
    make_tokenizer(folder / "model", [document["text"] for document in documents], 700)
    for name, part in (("first", documents[:30]), ("second", documents[30:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in part))

    def make(*names: str, **changes: Any) -> dict[str, Any]:
        fixed = {"kind": "web", "id_field": "id", "licence": "CC0-1.0"}
        return world.config(
            model=str(folder / "model"),
            corpora=[{"name": n, "source": str(folder / f"{n}.jsonl"), **fixed} for n in names],
            cleaning={"min_chars": 10},
            mining={"min_count": 4, "max_phrases": 5000, "shortest": 0},
            **{"key_normalisation": "engram-1", **changes},
        )

    return make


@pytest.fixture(scope="module")
def build_of(
    profile: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    def make(*names: str, **changes: Any) -> Path:
        out = tmp_path_factory.mktemp("-".join(names)) / "memory"
        config = BuildConfig.model_validate(profile(*names, **changes))
        build(config, out, workers=0, reporter=Reporter(io.StringIO()))
        return out

    return make


@pytest.fixture(scope="module")
def both(build_of: Callable[..., Path]) -> Path:
    return build_of("first", "second")


@pytest.fixture(scope="module")
def first(build_of: Callable[..., Path]) -> Path:
    return build_of("first")


@pytest.fixture(scope="module")
def second(build_of: Callable[..., Path]) -> Path:
    return build_of("second")


def table_of(memory: Path) -> dict[Key, dict[str, Any]]:
    rows = pq.read_table(memory / "catalogue.parquet").to_pylist()
    return {
        tuple(row["tokens"]): {k: v for k, v in row.items() if k not in RELATIVE} for row in rows
    }


def assert_folded(memory: Path, like: Path) -> None:
    assert verify(memory).manifest.key_normalisation == "engram-1"
    assert (memory / "key_map.arrow").read_bytes() == (like / "key_map.arrow").read_bytes()
    with MemoryReader.open(memory) as reader:
        upper = [reader.get_many([key]) for key in spellings(memory)]
        assert len({int(rows[0]) for rows in upper}) == 1
        assert upper[0][0] >= 0


def spellings(memory: Path) -> list[list[int]]:
    tokenizer = backbone.load_tokenizer(verify(memory).manifest.tokenizer.name)
    texts = [" New York", " new york", " NEW YORK"]
    keys = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert len({tuple(key) for key in keys}) == 3
    return keys


def test_a_corpus_of_a_folded_memory_can_go(both: Path, first: Path, tmp_path: Path) -> None:
    out = tmp_path / "memory"
    report = drop_corpus(both, "second", out)
    assert "the spelling of a phrase may still be the one in second" in report.notes
    assert_folded(out, both)
    before, wanted, found = table_of(both), table_of(first), table_of(out)
    common = found.keys() & wanted.keys()
    assert len(common) > 50
    for key in common:
        # What was in the first corpus occurred there first, so the text is that of a fresh build.
        assert found[key] == wanted[key]
    assert all(row["text"] == before[key]["text"] for key, row in found.items() if len(key) > 1)
    decode = backbone.load_tokenizer(verify(out).manifest.tokenizer.name).decode
    assert any(decode(key).strip() != row["text"] for key, row in found.items())
    keys = [key for key in found if len(key) > 1]
    vectors = [kept_vectors(keys, [str(path)])[0] for path in (both, out)]
    assert (vectors[0] == vectors[1]).all()


def test_folded_memories_are_merged(
    both: Path, first: Path, second: Path, tmp_path: Path, build_of: Callable[..., Path]
) -> None:
    out = tmp_path / "memory"
    merge([first, second], out)
    assert_folded(out, both)
    parts, wanted, found = [table_of(first), table_of(second)], table_of(both), table_of(out)
    phrases = [key for key in found if len(key) > 1]
    for key in phrases:
        assert found[key]["text"] == next(t[key]["text"] for t in parts if key in t)
    held = [key for key in phrases if all(key in table for table in (*parts, wanted))]
    assert len(held) > 50
    for key in held:
        assert found[key] == wanted[key]
    assert any(parts[0][key]["text"] != parts[1][key]["text"] for key in held)
    single = {key for key in found if len(key) < 2}
    assert {key: found[key] for key in single} == {k: v for k, v in wanted.items() if len(k) < 2}
    with pytest.raises(MergeError, match=r"differ in key normalisation.*engram-1.*exact"):
        merge([first, build_of("second", key_normalisation="exact")], tmp_path / "out")


def test_retokenizing_gives_exact_keys(both: Path, tmp_path: Path) -> None:
    model = verify(both).manifest.tokenizer.name
    report = retokenize(both, model, tmp_path / "memory")
    assert "counts of a phrase are those of all spellings that it had in keys" in report.notes
    manifest = verify(tmp_path / "memory").manifest
    assert manifest.key_normalisation == "exact"
    assert "key_map.arrow" not in manifest.files
    table = pq.read_table(tmp_path / "memory" / "catalogue.parquet")
    assert len(table) > 50
    keys = running_keys(table["text"].to_pylist(), backbone.load_tokenizer(model))
    assert table["tokens"].to_pylist() == keys
    with MemoryReader.open(tmp_path / "memory") as reader:
        assert reader.key_map is None
        rows = reader.get_many(spellings(both)).tolist()
    assert sorted(row >= 0 for row in rows) == [False, False, True]


def test_counts_of_folded_keys_are_neither_kept_nor_extended(
    world: Any,
    profile: Callable[..., dict[str, Any]],
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "memory"
    for given, error, message in (
        (profile("first", "second"), PlanError, "counts of folded keys cannot be kept or extended"),
        (
            profile("first", "second", key_normalisation="exact"),
            ExtendError,
            r"another key_normalisation than the memory.*expected engram-1.*found exact",
        ),
    ):
        config = BuildConfig.model_validate(given)
        with pytest.raises(error, match=message):
            extend(first, config, out, workers=0, reporter=Reporter(io.StringIO()))
    path = world.write("folded", **profile("first"))
    with pytest.raises(SystemExit) as stopped:
        main(["build", "--config", str(path), "--out", str(out), "--keep-counts"])
    assert stopped.value.code != 0
    [line] = capsys.readouterr().err.strip().splitlines()
    assert "counts of folded keys cannot be kept or extended" in line
    assert "found engram-1" in line
    assert list(tmp_path.iterdir()) == []
