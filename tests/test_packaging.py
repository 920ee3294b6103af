"""The wheel: holds exactly the tree's modules, and works with the [runtime] extra alone."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = {"phrasemem": "phrasemem"} | {
    part: f"phrasemem/{part}" for part in ("memfmt", "pipeline", "runtime")
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    # Building leaves egg-info and build/ beside the sources, so build from a copy.
    source = out / "source"
    source.mkdir()
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file() and not name.startswith(("tests/", "notebooks/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


def test_wheel_holds_the_modules_of_the_tree(wheel: Path) -> None:
    expected = set()
    for folder, installed in PARTS.items():
        for file in (ROOT / folder).rglob("*.py"):
            expected.add(f"{installed}/{file.relative_to(ROOT / folder).as_posix()}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {n for n in names if n.endswith(".py")} == expected
    for installed in PARTS.values():
        assert f"{installed}/py.typed" in names
    assert "phrasemem/memfmt/SPEC.md" in names
    assert "phrasemem/pipeline/run_report.html" in names


@pytest.mark.slow
def test_runtime_extra_alone_imports_and_runs(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["-c", str(ROOT / "constraints.txt"), f"{wheel}[runtime]"]
    done = subprocess.run(install, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    program = (
        "import importlib.util as u, phrasemem, sys\n"
        "assert u.find_spec('dask') is None and u.find_spec('duckdb') is None\n"
        "assert 'torch' not in sys.modules\n"
        "from phrasemem import PhraseMemory, attach\n"
        "import phrasemem.runtime.calibrate, phrasemem.runtime.evaluate\n"
        "print(PhraseMemory.__module__, attach.__module__)\n"
    )
    # No PYTHONPATH and another folder: nothing of the checkout may be found.
    ran = subprocess.run(
        [str(python), "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["phrasemem.runtime.memory", "phrasemem.runtime.attach"]
    help_text = subprocess.run(
        [str(folder / "bin" / "phrasemem"), "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "lookup" in help_text
