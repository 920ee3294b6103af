"""Markers and files: what is complete, what goes on, what is removed, and what is said."""

from __future__ import annotations

import dataclasses
import json
from contextvars import Context
from pathlib import Path

import pytest

from phrasemem.pipeline.stage import (
    Stage,
    StaleError,
    appears,
    finish,
    part_report,
    prepare,
    run_part,
    stamp_of,
    write_json,
)

STAGE = Stage("count", 1, {"n_max": 6, "corpora": [{"name": "a"}]}, {"read": "aa", "clean": "bb"})


def part(folder: Path, key: str, *, text: str) -> dict[str, int]:
    with appears(folder / f"{key}.txt") as temporary:
        temporary.write_text(text)
    return {"length": len(text)}


def test_a_stage_is_fresh_then_resumed_then_complete(tmp_path: Path) -> None:
    folder = tmp_path / "count"
    assert prepare(folder, STAGE) == prepare(folder, STAGE)
    assert run_part(part, folder, "one", {"text": "abc"}) == {"length": 3}
    assert part_report(folder, "one") == {"length": 3}
    assert part_report(folder, "two") is None
    (folder / ".tmp-17-two.txt").write_text("half")
    resumed = prepare(folder, STAGE)
    assert (resumed.report, resumed.note) == (None, "resumed, 1 parts were done")
    assert not (folder / ".tmp-17-two.txt").exists()
    finish(folder, {"parts": {"one": {"length": 3}}})
    complete = prepare(folder, STAGE)
    assert complete.report == {"parts": {"one": {"length": 3}}}
    assert complete.note == "unchanged, skipped"


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"settings": {"n_max": 4, "corpora": [{"name": "a"}]}}, "n_max 6 -> 4"),
        ({"settings": {"n_max": 6, "corpora": [{"name": "b"}]}}, 'corpora[0].name "a" -> "b"'),
        ({"settings": {"corpora": [{"name": "a"}]}}, "n_max 6 -> null"),
        ({"inputs": {"read": "aa", "clean": "cc"}}, "clean changed"),
        ({"inputs": {"clean": "bb"}}, "read changed"),
        ({"version": 2}, "version 1 -> 2"),
    ],
)
def test_a_change_empties_the_folder_and_is_named(
    tmp_path: Path, changes: dict[str, object], note: str
) -> None:
    folder = tmp_path / "count"
    prepare(folder, STAGE)
    run_part(part, folder, "one", {"text": "abc"})
    finish(folder, {"parts": {}})
    changed = dataclasses.replace(STAGE, **changes)  # type: ignore[arg-type]
    assert changed.fingerprint != STAGE.fingerprint
    prepared = prepare(folder, changed)
    assert (prepared.report, prepared.note) == (None, f"runs again: {note}")
    assert [path.name for path in folder.iterdir()] == ["begun.json"]


def test_the_order_of_settings_does_not_matter() -> None:
    one = Stage("s", 1, {"a": 1, "b": 2}, {"x": "1", "y": "2"})
    two = Stage("s", 1, {"b": 2, "a": 1}, {"y": "2", "x": "1"})
    assert one.fingerprint == two.fingerprint


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "file"
    with pytest.raises(ZeroDivisionError), appears(final) as temporary:
        temporary.write_text(f"half {final.exists() / 0}")
    assert list(tmp_path.iterdir()) == []
    write_json(final, {"b": 1, "a": "ü"})
    assert final.read_text(encoding="utf-8") == '{"a":"ü","b":1}\n'
    assert json.loads(final.read_text(encoding="utf-8")) == {"a": "ü", "b": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_part_that_fails_is_not_done(tmp_path: Path) -> None:
    folder = tmp_path / "count"
    prepare(folder, STAGE)
    with pytest.raises(TypeError):
        run_part(part, folder, "one", {"wrong": 1})
    assert part_report(folder, "one") is None


@pytest.mark.parametrize("begun_anew", ["before the part", "inside the part"])
def test_a_worker_that_outlives_its_build_writes_nothing(tmp_path: Path, begun_anew: str) -> None:
    folder = tmp_path / "count"
    changed = dataclasses.replace(STAGE, settings={"n_max": 4})
    prepare(folder, STAGE)
    stamp = stamp_of(folder)

    def late(folder: Path, key: str) -> dict[str, int]:
        Context().run(prepare, folder, changed)  # as another process does
        return part(folder, key, text="of the old settings")

    assert run_part(part, folder, "one", {"text": "abc"}, stamp) == {"length": 3}
    if begun_anew == "before the part":
        prepare(folder, changed)
    with pytest.raises(StaleError):
        run_part(late, folder, "two", {}, stamp)
    if begun_anew == "inside the part":
        assert [path.name for path in folder.iterdir()] == ["begun.json"]
    assert part_report(folder, "two") is None
    assert run_part(part, folder, "two", {"text": "ab"}, stamp_of(folder)) == {"length": 2}
