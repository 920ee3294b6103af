"""Builds with folded keys: spellings share a row, and its text is one that was really written."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from phrasemem import backbone
from phrasemem.cli import cli
from phrasemem.folding import engram_key_map
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.verify import verify
from phrasemem.pipeline.boundaries import CUT_AFTER, MAY_END, MAY_START
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.existing import OutputError
from phrasemem.pipeline.progress import Reporter
from phrasemem.pipeline.report import BuildReport
from phrasemem.pipeline.run import build
from phrasemem.pipeline.tokens import read_run

PLACES = ("New York", "San Jose", "Café Noir", "Red Panda", "Old Bridge", "Blue Lake")
FRAMES = (
    "we went to {} in {} and saw it",
    "{} is a place that {} people like",
    "what about {} and not {} again",
)
SPELLINGS = (str, str.lower, str.upper, lambda text: text.replace("é", "e"))
Changes = dict[str, Any]


def spelled_documents() -> list[dict[str, str]]:
    dice = random.Random(3)
    lines = [
        dice.choice(FRAMES).format(*(dice.choice(SPELLINGS)(dice.choice(PLACES)) for _ in range(2)))
        for _ in range(480)
    ]
    return [
        {"id": str(number), "text": ". ".join(lines[8 * number : 8 * number + 8]) + "."}
        for number in range(60)
    ]


@pytest.fixture(scope="module")
def changes(world: Any, make_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Changes:
    """What a profile needs so that every spelling of a word is a token of its own."""
    folder = tmp_path_factory.mktemp("spelled")
    documents = spelled_documents()
    (folder / "texts.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    make_tokenizer(folder / "model", [document["text"] for document in documents], 700)
    corpus = {**world.config()["corpora"][0], "source": str(folder / "texts.jsonl")}
    del corpus["title_field"]
    return {
        "model": str(folder / "model"),
        "corpora": [corpus],
        "cleaning": {"min_chars": 10},
        "key_normalisation": "engram-1",
        "partition_chars": 4000,
    }


class Lines(Reporter):
    """Collects what a build says."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def run(world: Any, out: Path, changes: Changes, reporter: Reporter, **options: Any) -> BuildReport:
    return build(
        BuildConfig.model_validate(world.config(**changes)),
        out,
        work=out.with_name(f"{out.name}-work"),
        base=world.folder,
        workers=0,
        reporter=reporter,
        **options,
    )


@pytest.fixture(scope="module")
def folded(world: Any, changes: Changes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("folded") / "memory"
    run(world, out, changes, Lines())
    return out


def plain_phrases(out: Path, ids: np.ndarray) -> dict[tuple[int, ...], tuple[int, list[int]]]:
    """{folded key: (count, the ids of its first occurrence)}, window by window."""
    found: dict[tuple[int, ...], tuple[int, list[int]]] = {}
    for path in sorted((out.with_name(f"{out.name}-work") / "tokenize").glob("*.arrow")):
        tokens, flags, _ = read_run(path)
        for length in range(2, 7):
            for start in range(len(tokens) - length + 1):
                window, marks = tokens[start : start + length], flags[start : start + length]
                cut = (marks[:-1] & CUT_AFTER).any()
                if marks[0] & MAY_START and marks[-1] & MAY_END and not cut:
                    key = tuple(ids[window].tolist())
                    count, surface = found.get(key, (0, window.tolist()))
                    found[key] = (count + 1, surface)
    return found


def test_counts_are_those_of_all_spellings_and_text_that_of_the_first(
    folded: Path, changes: Changes
) -> None:
    tokenizer = backbone.load_tokenizer(changes["model"])
    key_map = engram_key_map(tokenizer)
    expected = plain_phrases(folded, key_map.ids)
    catalogue = pq.read_table(folded / "catalogue.parquet").to_pylist()
    assert len(catalogue) > 50
    for entry in catalogue:
        count, surface = expected[tuple(entry["tokens"])]
        assert entry["count"] == count
        assert entry["text"] == tokenizer.decode(surface).strip()
    assert len({tuple(entry["tokens"]) for entry in catalogue}) == len(catalogue)
    # The text is not what the keys would decode to, and differs in case as its source does.
    decoded = [tokenizer.decode(entry["tokens"]).strip() for entry in catalogue]
    assert decoded != [entry["text"] for entry in catalogue]
    assert {entry["text"] == entry["text"].lower() for entry in catalogue} == {True, False}


@pytest.mark.parametrize("place", PLACES)
def test_every_spelling_finds_the_one_row(folded: Path, changes: Changes, place: str) -> None:
    tokenizer = backbone.load_tokenizer(changes["model"])
    spellings = {f" {spell(place)}" for spell in SPELLINGS}
    keys = [tokenizer(spelling, add_special_tokens=False)["input_ids"] for spelling in spellings]
    assert len(keys) >= 3
    with MemoryReader.open(folded) as reader:
        rows = reader.get_many(keys).tolist()
        records = [reader.record(key) for key in keys]
    assert len(set(rows)) == 1
    assert rows[0] >= 0
    assert records[0] is not None
    assert f" {records[0].text}" in spellings
    text = "\n".join(document["text"] for document in spelled_documents())
    # Held-out documents and duplicates are not counted.
    assert 4 < sum(records[0].counts.values()) <= sum(text.count(s) for s in spellings)
    assert sum(records[0].counts.values()) > max(text.count(s) for s in spellings)


def test_the_memory_is_sound_and_says_how_its_keys_were_folded(
    folded: Path, changes: Changes
) -> None:
    manifest = verify(folded).manifest
    assert manifest.key_normalisation == "engram-1"
    assert manifest.reader_features == ["folded-keys"]
    with MemoryReader.open(folded) as reader:
        expected = engram_key_map(backbone.load_tokenizer(changes["model"])).ids
        assert reader.key_map is not None
        np.testing.assert_array_equal(reader.key_map.ids, expected)


def test_workers_do_not_change_a_folded_memory(
    world: Any, folded: Path, changes: Changes, tmp_path: Path, contents: Any
) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address=None,
        local_directory=str(tmp_path / "dask"),
    ) as cluster:
        scheduler = cluster.scheduler_address
        run(world, tmp_path / "memory", changes, Lines(), scheduler=scheduler)
    assert contents(tmp_path / "memory") == contents(folded)


def test_another_normalisation_is_refused_and_reruns_from_the_counts(
    world: Any, changes: Changes, tmp_path: Path, folded: Path, contents: Any
) -> None:
    out, lines = tmp_path / "memory", Lines()
    run(world, out, {**changes, "key_normalisation": "exact"}, lines)
    with MemoryReader.open(out) as reader:
        assert reader.key_map is None
    with pytest.raises(OutputError, match=r"another normalisation.*engram-1, found exact.*--repl"):
        run(world, out, changes, lines)
    report = run(world, out, changes, lines, replace=True)
    skipped = [stage.name for stage in report.stages if stage.skipped]
    assert skipped == ["read", "lines", "repeated", "clean", "select", "tokenize"]
    assert any("key_normalisation" in line and "hashes" in line for line in lines.lines)
    assert contents(out) == contents(folded)


def test_lookup_finds_a_spelling_that_was_never_written(folded: Path) -> None:
    text = "they like nEW yORK, and also new york"
    done = CliRunner().invoke(cli, ["lookup", str(folded), text, "--json"])
    assert done.exit_code == 0, done.output
    texts = [phrase["text"] for phrase in json.loads(done.stdout)["phrases"]]
    assert any(text.lower() == "new york" for text in texts)


def test_rows_of_single_tokens_count_all_spellings(
    world: Any, changes: Changes, tmp_path: Path
) -> None:
    out, mining = tmp_path / "memory", {**world.config()["mining"], "shortest": 0}
    run(world, out, {**changes, "mining": mining}, Lines())
    verify(out)
    ids = engram_key_map(backbone.load_tokenizer(changes["model"])).ids
    runs = [read_run(path) for path in (tmp_path / "memory-work" / "tokenize").glob("*.arrow")]
    counts = np.bincount(ids[np.concatenate([part.tokens for part in runs])])
    single = [e for e in pq.read_table(out / "catalogue.parquet").to_pylist() if e["n"] == 1]
    assert len(single) > 20
    assert all(entry["count"] == counts[entry["tokens"][0]] for entry in single)
