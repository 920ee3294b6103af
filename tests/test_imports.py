"""The parts keep their distance: who may import whom, read from the source of every module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "memfmt": {"torch", "dask", "distributed", "transformers", "duckdb"}
    | {"phrasemem.pipeline", "phrasemem.runtime", "phrasemem.backbone", "phrasemem.cli"},
    "pipeline": {"phrasemem.runtime", "phrasemem.cli"},
    "runtime": {"phrasemem.pipeline", "phrasemem.cli", "dask", "distributed", "duckdb"},
}


def imported_modules(source: str) -> set[str]:
    """All modules that a source file names in an import, at any depth of nesting."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level)
    return names


def breaches(imported: set[str], forbidden: set[str]) -> set[str]:
    return {n for n in imported if any(n == f or n.startswith(f + ".") for f in forbidden)}


@pytest.mark.parametrize("part", sorted(FORBIDDEN))
def test_part_imports_nothing_forbidden(part: str) -> None:
    files = sorted((ROOT / part).rglob("*.py"))
    assert len(files) > 3
    found = {
        str(file.relative_to(ROOT)): bad
        for file in files
        if (bad := breaches(imported_modules(file.read_text()), FORBIDDEN[part]))
    }
    assert found == {}


@pytest.mark.parametrize("part", [*sorted(FORBIDDEN), "phrasemem"])
def test_imports_are_absolute_and_safe(part: str) -> None:
    for file in sorted((ROOT / part).rglob("*.py")):
        names = imported_modules(file.read_text())
        assert not breaches(names, {"pickle", "cloudpickle", "dill", "joblib", "marshal"}), file
        assert not any(name.startswith(".") for name in names), file


def test_the_walk_sees_a_breach() -> None:
    source = "def f():\n    from phrasemem import runtime\n    import torch.nn as nn"
    assert breaches(imported_modules(source), FORBIDDEN["memfmt"]) == {
        "torch.nn",
        "phrasemem.runtime",
    }
