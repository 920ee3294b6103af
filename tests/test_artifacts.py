"""Package references: parsing, extraction, checksums. A wheel made here stands in the cache."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrasemem import artifacts
from phrasemem.artifacts import ArtifactError, WheelMember

TEXT = b"a member\n"
SHA = hashlib.sha256(TEXT).hexdigest()


@pytest.fixture
def cached_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a real wheel file where a download would have put it."""
    monkeypatch.setenv("PHRASEMEM_CACHE", str(tmp_path))
    wheel = tmp_path / "wheels" / "toy-1.0" / "toy-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy/data/a.txt", TEXT)
        archive.writestr("toy/data/sub/b.txt", b"b")
        archive.writestr("toy/data/../../../escaped.txt", b"no")
    return wheel


@pytest.mark.usefixtures("cached_wheel")
def test_file_member_is_extracted_and_checked() -> None:
    path = artifacts.fetch(f"pypi:toy==1.0/toy/data/a.txt#sha256={SHA}")
    assert path.read_bytes() == TEXT
    assert artifacts.fetch(f"pypi:toy==1.0/toy/data/a.txt#sha256={SHA}") == path


def test_folder_member_stays_inside_the_cache(cached_wheel: Path) -> None:
    folder = artifacts.fetch("pypi:toy==1.0/toy/data/")
    found = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    assert found == ["a.txt", "sub/b.txt"]
    assert not list(cached_wheel.parents[2].rglob("escaped.txt"))
    digest = artifacts.folder_sha256(folder)
    assert artifacts.fetch(f"pypi:toy==1.0/toy/data/#sha256={digest}") == folder


@pytest.mark.usefixtures("cached_wheel")
def test_wrong_checksum_names_both_sides() -> None:
    with pytest.raises(ArtifactError, match=f"expected {'0' * 64}, found {SHA}"):
        artifacts.fetch(f"pypi:toy==1.0/toy/data/a.txt#sha256={'0' * 64}")


@pytest.mark.usefixtures("cached_wheel")
def test_missing_member_is_named() -> None:
    with pytest.raises(ArtifactError, match=r"toy==1\.0 has no member toy/none"):
        artifacts.fetch("pypi:toy==1.0/toy/none")


def test_damaged_wheel_is_named(cached_wheel: Path) -> None:
    cached_wheel.write_bytes(cached_wheel.read_bytes()[:40])
    with pytest.raises(ArtifactError, match="the wheel is damaged"):
        artifacts.fetch("pypi:toy==1.0/toy/data/a.txt")
    assert not (cached_wheel.parent / "members" / "toy" / "data" / "a.txt").exists()


@pytest.mark.parametrize(
    "reference",
    ["pypi:toy/x", "pypi:toy==1.0", "toy==1.0/x", "pypi:toy==1.0/a/../../x", "pypi:toy==1.0//etc"],
)
def test_bad_reference_is_refused(reference: str) -> None:
    with pytest.raises(ArtifactError):
        WheelMember.parse(reference)


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        member = WheelMember.parse(text)
    except ArtifactError:
        return
    assert text.startswith(f"pypi:{member.name}=={member.version}/{member.member}")
