"""Measures what the stages of a build cost, and prints it as ``pipeline/estimates.py`` holds it.

There is no rival: these are this project's own figures, for ``phrasemem build --plan``. With
``--work FOLDER FOLDER`` the work folders of a ``tiny`` and a ``demo`` build are read instead of
building; seconds are those of the processor, so other programs do little harm.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks._harness import machine

ROOT = Path(__file__).parents[1]
GROWS_WITH = {
    **dict.fromkeys(("read", "clean", "select", "tokenize"), "text"),
    **dict.fromkeys(("hashes", "unigrams", "survivors", "counts"), "tokens"),
    **dict.fromkeys(("candidates", "score"), "candidates"),
    **dict.fromkeys(("embed", "layout", "pack"), "phrases"),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--work", type=Path, nargs=2, metavar="FOLDER")
    given = arguments.parse_args()
    folder = ROOT / "build" / "bench" / "stages"
    works = given.work or [build(profile, folder) for profile in ("tiny", "demo")]
    small, large = (measured(work) for work in works)
    print(f"# {machine()}")
    print_tables(small, large)


def build(profile: str, folder: Path) -> Path:
    """Build a profile without workers, with one thread in each library."""
    work = folder / f"{profile}-work"
    command = [sys.executable, "-c", "from phrasemem.cli import main; main()", "build"]
    command += ["--config", str(ROOT / "corpora.yaml"), "--profile", profile, "--workers", "0"]
    command += ["--no-calibrate", "--out", str(folder / profile), "--work", str(work)]
    alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    subprocess.run(command, check=True, env={**os.environ, **alone})
    return work


def measured(work: Path) -> dict[str, Any]:
    """Read sizes and costs of a finished build."""

    def total(stage: str, field: str) -> float:
        parts = json.loads((work / stage / "stage.json").read_text())["report"]["parts"]
        return float(sum(part[field] for part in parts.values()))

    status = json.loads((work / "status.json").read_text())
    return {
        "text": total("read", "chars"),
        "documents": total("read", "documents"),
        "tokens": total("tokenize", "tokens"),
        "candidates": total("score", "candidates"),
        "phrases": total("score", "phrases") + total("score", "single"),
        "stages": {stage["name"]: stage for stage in status["stages"] if stage["done"]},
    }


def print_tables(small: dict[str, Any], large: dict[str, Any]) -> None:
    print("COEFFICIENTS: Mapping[str, Coefficient] = {")
    for name, stage in large["stages"].items():
        if name in GROWS_WITH:
            size = large[GROWS_WITH[name]]
            figures = (
                f'"{GROWS_WITH[name]}", {stage["cpu_seconds"] / size:.2e}, '
                f"{stage['bytes'] / size:.3g}, {stage['peak_bytes']:_}, "
                f"{small['stages'][name]['peak_bytes']:_}"
            )
            alone = ", alone=True" if stage["parts"] == 1 and name != "read" else ""
            print(f'    "{name}": Coefficient({figures}{alone}),')
    print("}")
    embed = large["stages"]["embed"]
    print(f"PHRASES_PER_CORE_SECOND = {large['phrases'] / embed['cpu_seconds']:.0f}.0")
    print(f"CHARS_PER_TOKEN = {large['text'] / large['tokens']:.2f}")
    print(f"BYTES_A_DOCUMENT = {large['text'] / large['documents']:.0f}.0")
    growth = math.log(large["candidates"] / small["candidates"]) / math.log(
        large["tokens"] / small["tokens"]
    )
    first = large["candidates"] / large["tokens"] ** growth
    print(f"_CANDIDATES, _CANDIDATES_GROWTH = {first:.3g}, {growth:.3f}")
    for name, found in (("tiny", small), ("demo", large)):
        sizes = {key: found[key] for key in ("text", "tokens", "candidates", "phrases")}
        print(f"# {name}: {sizes}")


if __name__ == "__main__":
    main()
