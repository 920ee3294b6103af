"""Duplicates and hold-out: decided by the documents, never by how they are cut into chunks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phrasemem.pipeline.clean import CLEAN_SCHEMA, normal_form, text_hash
from phrasemem.pipeline.near_duplicates import as_binary, bands_of, signatures_of
from phrasemem.pipeline.select import DECISIONS, decisions_of, hold_out_limit, select_part
from phrasemem.pipeline.words import split_words

Row = tuple[int, str, str, str]  # corpus, id, title, text
KINDS = ("encyclopedia", "encyclopedia", "web")
NAMES = ("first", "second", "third")
THRESHOLD = 0.8


def signature_columns(texts: list[str]) -> list[pa.Array]:
    signatures = signatures_of(split_words(texts))
    bands = bands_of(signatures, THRESHOLD)
    return [as_binary(signatures), pa.array(list(bands), pa.list_(pa.uint64()))]


def select(
    folder: Path,
    chunks: list[list[Row]],
    held_out: tuple[float, ...] = (0.0, 0.0, 0.0),
    threshold: float | None = None,
) -> tuple[dict[tuple[int, str], str], list[dict[str, int]]]:
    """Return the decision about each (corpus, id), and the report."""
    folder.mkdir(exist_ok=True)
    listed: list[dict[str, Any]] = []
    for number, rows in enumerate(chunks):
        path = folder / f"{number}.parquet"
        columns = [
            [row[1] for row in rows],
            [row[2] for row in rows],
            [row[3] for row in rows],
            [text_hash(row[3]) for row in rows],
            [normal_form(row[2]) for row in rows],
        ]
        arrays = [pa.array(column, pa.string()) for column in columns]
        arrays += signature_columns([row[3] for row in rows])
        pq.write_table(pa.table(arrays, schema=CLEAN_SCHEMA), path)
        listed.append({"path": str(path), "corpus": rows[0][0]})
    report = select_part(
        folder,
        "all",
        chunks=listed,
        held_out=held_out,
        names=NAMES,
        kinds=KINDS,
        memory_limit="200MB",
        threshold=threshold,
    )
    found = {}
    for number, rows in enumerate(chunks):
        decisions = decisions_of(folder / "decisions.parquet", number)
        assert len(decisions) == len(rows)
        found.update(
            {(row[0], row[1]): DECISIONS[d] for row, d in zip(rows, decisions, strict=True)}
        )
    return found, report["decisions"]


ROWS: list[Row] = [
    (0, "a", "Ada", "Ada was a mathematician."),
    (0, "b", "Bee", "A bee is an insect."),
    (0, "c", "Bee again", "a  BEE is an Insect."),
    (0, "d", "Same", "Two texts of one title."),
    (0, "e", "Same", "Another text of that title, and longer."),
    (1, "f", "ADA", "Ada was a mathematician, and this is the whole article about her."),
    (1, "g", "Cat", "A bee is an insect."),
    (2, "h", "Ada", "A web page that happens to have the title Ada."),
    (2, "i", "", "No title here."),
    (2, "j", "", "None here either."),
]
EXPECTED = {
    (0, "a"): "duplicate-title",
    (0, "b"): "kept",
    (0, "c"): "duplicate-text",
    (0, "d"): "kept",
    (0, "e"): "kept",
    (1, "f"): "kept",
    (1, "g"): "duplicate-text",
    (2, "h"): "kept",
    (2, "i"): "kept",
    (2, "j"): "kept",
}


def test_duplicates_by_text_and_by_title_across_corpora_of_a_kind(tmp_path: Path) -> None:
    chunks = [[row for row in ROWS if row[0] == corpus] for corpus in range(3)]
    found, report = select(tmp_path, chunks)
    assert found == EXPECTED
    assert report == [
        {"duplicate-text": 1, "duplicate-title": 1, "kept": 3},
        {"duplicate-text": 1, "kept": 1},
        {"kept": 3},
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_survivors_do_not_depend_on_the_partitioning(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    rows = dice.sample(ROWS, len(ROWS))
    chunks = []
    for corpus in dice.sample(range(3), 3):
        own = [row for row in rows if row[0] == corpus]
        cut = dice.randrange(1, len(own))
        chunks += [own[:cut], own[cut:]]
    found, _ = select(tmp_path, chunks)
    assert found == EXPECTED


def test_the_hold_out_follows_the_content(tmp_path: Path) -> None:
    rows: list[Row] = [(0, str(n), "", f"Document number {n}.") for n in range(2000)]
    rows += [(2, f"w{n}", "", f"Page number {n}.") for n in range(500)]
    chunks = [rows[:700], rows[700:2000], rows[2000:]]
    found, report = select(tmp_path, chunks, (0.1, 0.0, 0.5))
    share = (report[0]["held-out-calibration"] + report[0]["held-out-test"]) / 2000
    assert 0.08 < share < 0.12
    half = report[0]["held-out-calibration"] / (share * 2000)
    assert 0.4 < half < 0.6
    assert 200 < report[2]["held-out-calibration"] + report[2]["held-out-test"] < 300
    more, _ = select(tmp_path / "more", chunks, (0.2, 0.0, 0.5))
    held = {key for key, decision in found.items() if decision != "kept"}
    assert all(more[key] == found[key] for key in held)


def test_all_and_nothing_can_be_held_out(tmp_path: Path) -> None:
    rows: list[Row] = [(0, str(n), "", f"Document number {n}.") for n in range(50)]
    assert set(select(tmp_path, [rows])[0].values()) == {"kept"}
    everything, _ = select(tmp_path, [rows], (1.0, 0.0, 0.0))
    assert set(everything.values()) == {"held-out-calibration", "held-out-test"}
    assert hold_out_limit(0.5) == "8" + "0" * 15


def essay(seed: int, words: int = 120) -> str:
    dice = random.Random(seed)
    return " ".join(f"word{dice.randrange(3000)}" for _ in range(words))


def near_rows() -> tuple[list[Row], dict[tuple[int, str], str]]:
    """Families of texts in which one word differs, over corpora, and texts of their own."""
    rows: list[Row] = []
    expected = {}
    for family in range(12):
        base = essay(family)
        for member in range(4):
            text = base.replace(base.split()[10 * member], f"other{member}", 1)
            row = (
                family % 2 if member else 2,
                f"{family}-{member}",
                "",
                text + " more" * (member == 1),
            )
            rows.append(row)
            expected[row[0], row[1]] = "kept" if member == 1 else "near-duplicate"
    for lone in range(40):
        rows.append((lone % 3, f"lone-{lone}", "", essay(1000 + lone)))
        expected[lone % 3, f"lone-{lone}"] = "kept"
    return rows, expected


@pytest.mark.parametrize("seed", range(3))
def test_of_near_duplicates_the_longest_stays_however_chunks_are_cut(
    tmp_path: Path, seed: int
) -> None:
    rows, expected = near_rows()
    dice = random.Random(seed)
    dice.shuffle(rows)
    chunks = []
    for corpus in dice.sample(range(3), 3):
        own = [row for row in rows if row[0] == corpus]
        cut = dice.randrange(1, len(own))
        chunks += [own[:cut], own[cut:]]
    assert select(tmp_path, chunks, threshold=THRESHOLD)[0] == expected
    kept, report = select(tmp_path / "all", chunks)
    assert set(kept.values()) == {"kept"}
    assert all("near-duplicate" not in counts for counts in report)


def test_a_near_duplicate_of_a_held_out_text_is_not_mined(tmp_path: Path) -> None:
    rows, _ = near_rows()
    chunks = [[row for row in rows if row[0] == corpus] for corpus in range(3)]
    found, _ = select(tmp_path, chunks, (0.5, 0.5, 0.5), threshold=THRESHOLD)
    families: dict[str, list[str]] = {}
    for (_, name), decision in found.items():
        if "lone" not in name and decision != "near-duplicate":
            families.setdefault(name.split("-")[0], []).append(decision)
    assert len(families) == 12
    assert all(len(stay) == 1 for stay in families.values())
    assert len({stay[0].split("-")[0] for stay in families.values()}) > 1
