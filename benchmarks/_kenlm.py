"""KenLM's ``count_ngrams``, compiled from the source package and counted with."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks._harness import OUT

_FOLDER = OUT / "kenlm"
_SOURCE = Path(__file__).parent / "kenlm"
_KENLM, _BOOST = "kenlm==0.3.0", "boost-headers==1.85.0.post1"
_RAM = 2 << 30
# <unk>, <s> and </s>
_FIRST_WORD = 3


class NotBuiltError(Exception):
    """KenLM could not be fetched or compiled; says why."""


def build() -> Path:
    """Return the program, compiled if it is not there; raises `NotBuiltError`."""
    program = _FOLDER.absolute() / "count_ngrams"
    if program.exists():
        return program
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise NotBuiltError("no C++ compiler")
    _fetch(_KENLM, "--no-binary", "kenlm", "--no-build-isolation")
    _fetch(_BOOST)
    with tarfile.open(next(_FOLDER.glob("kenlm-*.tar.gz"))) as archive:
        archive.extractall(_FOLDER, filter="data")
    with zipfile.ZipFile(next(_FOLDER.glob("boost*.whl"))) as archive:
        archive.extractall(_FOLDER)
    source = next(path.parent.absolute() for path in _FOLDER.glob("kenlm-*/lm"))
    parts = [
        *source.glob("util/*.cc"), *source.glob("util/stream/*.cc"),
        *source.glob("util/double-conversion/*.cc"), source / "lm/builder/corpus_count.cc",
        *(source / f"lm/{name}.cc" for name in ("lm_exception", "vocab", "config")),
        source / "lm/virtual_interface.cc", _SOURCE / "count_ngrams.cc",
    ]  # fmt: skip
    wanted = [str(part) for part in sorted(parts) if not part.stem.endswith(("_test", "_main"))]
    headers = [_SOURCE, source, _FOLDER / "boost_headers/include"]
    command = [
        compiler, "-std=c++17", "-O3", "-DNDEBUG", "-DKENLM_MAX_ORDER=6", "-w",
        *(f"-I{folder}" for folder in headers), *wanted, "-lpthread", "-o", str(program),
    ]  # fmt: skip
    _run(command)
    return program


def _fetch(package: str, *options: str) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options]
    _run([*pip, "--dest", str(_FOLDER), package])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotBuiltError(f"{command[0]}: {done.stderr.strip().splitlines()[-1]}")


def count(program: Path, text: Path, order: int) -> tuple[Path, float]:
    """Count the n-grams of a text, a line a document; returns the file and the CPU seconds."""
    counted = _FOLDER / f"{order}.counts"
    before = _children_seconds()
    with text.open("rb") as source, counted.open("wb") as target:
        subprocess.run(
            [program, str(order), str(_RAM), f"{_FOLDER.absolute()}/", f"{_FOLDER}/words"],
            stdin=source, stdout=target, check=True,
        )  # fmt: skip
    return counted, _children_seconds() - before


def totals(counted: Path, order: int) -> tuple[int, int]:
    """Return the distinct n-grams within documents, and the sum of their counts."""
    record = np.dtype([("words", np.uint32, order), ("count", np.uint64)])
    rows = np.fromfile(counted, record)
    inside = (rows["words"] >= _FIRST_WORD).all(axis=1)
    return int(inside.sum()), int(rows["count"][inside].sum())


def write_text(path: Path, documents: Iterable[list[int]]) -> None:
    """Write token ids as words, a line a document."""
    with path.open("w") as file:
        for document in documents:
            file.write(" ".join(map(str, document)) + "\n")


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
