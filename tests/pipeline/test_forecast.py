"""What a build would do and cost, told before it begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from phrasemem.cli import cli as phrasemem
from phrasemem.pipeline import estimates
from phrasemem.pipeline.config import load_config
from phrasemem.pipeline.forecast import Forecast, forecast_lines, plan_build
from phrasemem.pipeline.plan import make_plan
from phrasemem.pipeline.sources import find_pieces
from phrasemem.pipeline.stage import finish, prepare, write_json

ROOT = Path(__file__).parents[2]


def full(tmp_path: Path, **options: Any) -> Forecast:
    config = load_config(ROOT / "corpora.yaml", "full")
    return plan_build(config, tmp_path / "memory", tmp_path / "work", base=ROOT, **options)


def test_the_full_profile_is_planned_without_a_network(tmp_path: Path) -> None:
    plan = full(tmp_path, workers=16)
    texts = {corpus["name"]: (corpus["text"], corpus["from"]) for corpus in plan.corpora}
    assert texts["c4-en"] == (40e9, "max_bytes")
    assert texts["wikipedia"] == (20.2e9, "size on its page")
    assert plan.sizes["phrases"] == 100_000_000
    assert list(tmp_path.iterdir()) == []
    stages = {stage.name: stage for stage in plan.stages}
    assert "store" not in stages
    assert {stage.state for stage in plan.stages} == {"new"}
    read, embed = stages["read"], stages["embed"]
    assert read.seconds == pytest.approx((read.core_seconds or 0) / 16)
    assert (embed.seconds, embed.bytes) == (None, None)  # of its encoder nothing was measured
    assert stages["score"].seconds == stages["score"].core_seconds
    [unknown] = [line for line in forecast_lines(plan) if line.startswith("not counted")]
    assert {"embed", "pack"} <= set(unknown.rpartition(": ")[2].split(", "))


def test_a_gpu_is_what_the_user_says(tmp_path: Path) -> None:
    plan = full(tmp_path, workers=2, gpu_phrases_per_second=50_000.0)
    embed = next(stage for stage in plan.stages if stage.name == "embed")
    assert embed.seconds == 2_000.0
    assert any("50,000 phrases/s as given" in line for line in forecast_lines(plan))
    assert estimates.PROVENANCE in forecast_lines(plan)


def test_what_is_done_is_seen_and_what_changed_is_named(world: Any, tmp_path: Path) -> None:
    path = world.write("plan")
    config = load_config(path)
    plan = make_plan(config, find_pieces(config.corpora, world.folder))
    work = tmp_path / "work"
    prepare(work / "read", plan.read)
    finish(work / "read", {"parts": {"a": {"chars": 1000}, "b": {"chars": 234}}})
    prepare(work / "clean", plan.clean)
    write_json(work / "clean" / "a.done.json", {})
    found = plan_build(config, tmp_path / "memory", work, base=world.folder, workers=1)
    assert (found.sizes["text"], found.known) == (1234, ["text"])
    states = {stage.name: (stage.done, stage.state) for stage in found.stages}
    assert states["read"] == (True, "done")
    assert states["clean"] == (False, "goes on, 1 parts are done")
    assert states["select"] == (False, "new")
    changed = load_config(
        world.write("plan", cleaning={**world.config()["cleaning"], "min_chars": 7})
    )
    found = plan_build(changed, tmp_path / "memory", work, base=world.folder, workers=1)
    state = next(stage.state for stage in found.stages if stage.name == "clean")
    assert state == "runs again: cleaning.min_chars 100 -> 7"
    assert (work / "clean" / "a.done.json").exists()


def test_costs_grow_with_sizes_and_unknown_stays_unknown() -> None:
    sizes = estimates.sizes_of(1e9)
    one = estimates.cost_of("hashes", sizes, 4_000_000)
    two = estimates.cost_of("hashes", {**sizes, "tokens": 2 * (sizes["tokens"] or 0)}, 4_000_000)
    assert two.core_seconds == pytest.approx(2 * (one.core_seconds or 0))
    assert (one.memory or 0) < (estimates.cost_of("hashes", sizes, 8_000_000).memory or 0)
    assert estimates.cost_of("some-new-stage", sizes, 1).core_seconds is None
    unknown = estimates.sizes_of(None)
    assert estimates.cost_of("hashes", unknown, 1).seconds_with(4) is None


def test_disk_is_foretold_from_the_stage_before() -> None:
    assert estimates.bytes_beside("hashes", lambda _: 0) is None
    assert estimates.bytes_beside("pack", lambda _: 10) is None
    foretold = estimates.bytes_beside("hashes", lambda name: 51_230 * (name == "tokenize"))
    assert foretold == pytest.approx(51_230 * 15.6 / (1.09 * 4.70), rel=1e-3)


def test_the_command_prints_a_plan_and_builds_nothing(world: Any, tmp_path: Path) -> None:
    arguments = ["build", "--config", str(world.write("plan")), "--plan", "--workers", "0"]
    arguments += ["--out", str(tmp_path / "memory"), "--work", str(tmp_path / "work")]
    plain = CliRunner().invoke(phrasemem, arguments)
    assert plain.exit_code == 0, plain.output
    assert "with 1 workers" in plain.output
    data = json.loads(CliRunner().invoke(phrasemem, [*arguments, "--json"]).output)
    assert [stage["name"] for stage in data["stages"]][:3] == ["read", "lines", "repeated"]
    assert list(tmp_path.iterdir()) == []
