"""``phrasemem mine``: what is mined is what a build finds, and every phrase's fate is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from phrasemem.cli.mine_command import command
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.explain_phrase import (
    ABSENT,
    ACROSS,
    INSIDE_A_WORD,
    SINGLE,
    TOO_FEW_DOCUMENTS,
    TOO_LONG,
    TOO_RARE,
    Explained,
    explain,
)
from phrasemem.pipeline.mine import Mined, mine, quiet

MINING = {"min_count": 4, "min_documents": 2, "max_phrases": 150, "nested_share": 0.9}
# A phrase of one document only, one that is rare, and a sentence end inside.
ODD = [
    "the panda team, the panda team, the panda team, the panda team.",
    "the red steam. Then red steam",
    "It is known for public health care. In recent years the panda may explain.",
]


@pytest.fixture(scope="module")
def mined(world: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[BuildConfig, Mined, Path]:
    folder = tmp_path_factory.mktemp("mined")
    lines = [json.dumps({"text": text}) for text in ODD]
    (folder / "odd.jsonl").write_text("\n".join(lines) + "\n")
    wiki, papers, _ = world.config()["corpora"]
    odd = {"name": "odd", "kind": "web", "source": "odd.jsonl", "licence": "CC0-1.0"}
    corpora = [
        {**wiki, "source": str(world.folder / "wiki.jsonl")},
        {**papers, "source": str(world.folder / "papers-*.json")},
        {**odd, "language": None},
    ]
    as_it_is = {
        "min_chars": 0,
        "boilerplate": None,
        "near_duplicates": {"threshold": None},
        "quality": {"kinds": []},
    }
    profile = world.config(corpora=corpora, mining=MINING, held_out=0.0, cleaning=as_it_is)
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"default_profile": "it", "profiles": {"it": profile}}))
    config = BuildConfig.model_validate(profile)
    return config, mine(config, quiet(folder / "work", 0), folder), path


def test_all_candidates_are_there_with_a_verdict(mined: tuple[BuildConfig, Mined, Path]) -> None:
    _, found, _ = mined
    rows = pq.read_table(found.scored).to_pylist()
    assert len(rows) == found.candidates
    chosen = {tuple(row["tokens"]): row for row in rows if row["verdict"] == "chosen"}
    catalogue = {tuple(row["tokens"]): row for row in pq.read_table(found.catalogue).to_pylist()}
    assert chosen.keys() == catalogue.keys()
    assert len(catalogue) == found.phrases == 150
    for key, row in catalogue.items():
        del row["row"]
        assert row == {name: chosen[key][name] for name in row}
        assert row["left_entropy"] is not None
    assert {"over budget", "nested", "chosen"} <= {row["verdict"] for row in rows}


@pytest.fixture(scope="module")
def fate(mined: tuple[BuildConfig, Mined, Path]) -> Callable[[str], dict[str, Explained]]:
    config, found, _ = mined

    def of(phrase: str) -> dict[str, Explained]:
        return {one.spelling: one for one in explain(phrase, config, found)}

    return of


def test_what_is_no_phrase_says_which_rule_it_breaks(
    fate: Callable[[str], dict[str, Explained]],
) -> None:
    assert fate("zq kx vw jj qq")[" zq kx vw jj qq"].verdict == TOO_LONG
    assert fate("the")[" the"].verdict == SINGLE
    assert fate("steam team")[" steam team"].verdict == ABSENT
    assert fate("care. In")[" care. In"].verdict == ACROSS
    assert fate("care,")[" care,"].verdict == INSIDE_A_WORD


def test_what_is_too_rare_says_how_often_it_occurs(
    fate: Callable[[str], dict[str, Explained]],
) -> None:
    found = fate("red steam")[" red steam"]
    assert (found.verdict, found.count) == (TOO_RARE, 2)
    found = fate("panda team")[" panda team"]
    assert (found.verdict, found.count, found.documents) == (TOO_FEW_DOCUMENTS, 4, 1)


def test_a_candidate_shows_its_scores_and_its_place(
    mined: tuple[BuildConfig, Mined, Path], fate: Callable[[str], dict[str, Explained]]
) -> None:
    _, found, _ = mined
    rows = pq.read_table(found.scored).to_pylist()
    for verdict, words in (
        ("chosen", "served first; the least score chosen there is"),
        ("over budget", "served first"),
        ("nested", "inside"),
    ):
        row = next(r for r in rows if r["verdict"] == verdict and r["text"].isascii())
        told = [one for one in fate(row["text"]).values() if one.tokens == row["tokens"]]
        assert [one.verdict for one in told] == [verdict]
        assert words in told[0].detail
        assert (told[0].count, told[0].scores["npmi"]) == (row["count"], row["npmi"])
        assert told[0].corpora["wiki"]["count"] == row["count_wiki"]


def test_the_command_shows_the_best_and_explains(
    mined: tuple[BuildConfig, Mined, Path],
) -> None:
    _, found, path = mined
    shared = ["--config", str(path), "--work", str(found.work), "--workers", "0"]

    def said(*more: str) -> str:
        result = CliRunner().invoke(command, [*shared, *more], catch_exceptions=False)
        assert result.exit_code == 0
        return result.output

    summary = json.loads(said("--json", "--top", "3"))
    assert (summary["phrases"], summary["candidates"]) == (found.phrases, found.candidates)
    best = summary["corpora"]["papers"]["best"]
    assert len(best) == 3
    assert [row["score"] for row in best] == sorted((r["score"] for r in best), reverse=True)
    assert best[0]["text"] in said("--top", "1")
    told = json.loads(said("--explain", "red steam", "--json"))
    assert told[0]["verdict"] == TOO_RARE
    assert "occurs 2 times, min_count is 4" in said("--explain", "red steam")
