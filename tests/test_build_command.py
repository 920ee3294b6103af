"""What ``phrasemem build`` does after the pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from phrasemem.cli import build_command


@pytest.mark.parametrize(("name", "finished"), [("ab12", True), (".ab12.writing", False)])
def test_an_unfinished_adapter_is_none(tmp_path: Path, name: str, finished: bool) -> None:
    folder = tmp_path / "adapters" / name
    folder.mkdir(parents=True)
    (folder / "adapter.json").write_text("{}")
    assert build_command._has_adapter(tmp_path) is finished
