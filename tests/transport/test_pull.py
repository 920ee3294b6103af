"""Fetching into a folder: what appears, what stays, what is refused."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from phrasemem.memfmt.errors import FormatError, PhraseMemError
from phrasemem.memfmt.payloads import add_payload
from phrasemem.memfmt.remote.errors import RegistryError, TransferError
from phrasemem.memfmt.remote.pull import pull
from phrasemem.memfmt.remote.push import push
from phrasemem.memfmt.remote.version import Version, blob_name, parse_version, serialise
from phrasemem.memfmt.writer import PayloadSpec

from .conftest import bytes_of


@pytest.fixture
def registry(memory: Path, tmp_path: Path) -> Path:
    """A folder with the memory as v1."""
    push(memory, str(tmp_path / "registry"))
    return tmp_path / "registry"


def rewrite(registry: Path, change: dict[str, object]) -> None:
    """Write another version file in place of v1."""
    path = registry / "versions" / "v1.json"
    version = parse_version(path.read_bytes(), "", "v1")
    path.write_bytes(serialise(Version.model_validate(version.model_dump() | change)))


def files_of(registry: Path) -> dict[str, dict[str, object]]:
    data = (registry / "versions" / "v1.json").read_bytes()
    files: dict[str, dict[str, object]] = parse_version(data, "", "v1").model_dump()["files"]
    return files


def others(tmp_path: Path) -> set[str]:
    return {path.name for path in tmp_path.iterdir()} - {"registry"}


def test_what_stands_there_is_kept_unless_told_otherwise(memory, registry, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "precious").write_text("")
    with pytest.raises(PhraseMemError, match=r"stands there already in .*copy \(use --replace\)"):
        pull(str(registry), tmp_path / "copy")
    with pytest.raises(PhraseMemError, match="what stands there is no memory"):
        pull(str(registry), tmp_path / "copy", replace=True)
    assert others(tmp_path) == {"copy"}
    (tmp_path / "copy" / "precious").unlink()
    pull(str(registry), tmp_path / "copy")
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    with pytest.raises(PhraseMemError, match="a memory is a folder"):
        pull(str(registry), registry / "README.md", replace=True)


def test_a_memory_that_is_replaced_gives_what_it_has(memory, changed_memory, registry, tmp_path):
    push(changed_memory, str(registry))
    pull(f"{registry}@v1", tmp_path / "copy")
    done = pull(f"{registry}@v2", tmp_path / "copy", replace=True)
    assert done.reused > 3 << 20
    assert bytes_of(tmp_path / "copy") == bytes_of(changed_memory)
    assert others(tmp_path) == {"copy"}


@pytest.fixture
def enriched(memory: Path, tmp_path: Path) -> Path:
    """The memory with an added payload."""
    path = Path(shutil.copytree(memory, tmp_path / "enriched"))
    add_payload(path, PayloadSpec("more", 300), lambda _, n, tokens: noise(len(n), 300))
    return path


def noise(count: int, dim: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, dim)).astype(np.float16)


def test_an_added_payload_travels_alone_and_is_not_fetched_again(
    memory, enriched, registry, tmp_path
):
    pull(str(registry), tmp_path / "copy")
    pushed = push(enriched, str(registry))
    own = [path.stat().st_size for path in enriched.glob("payloads/[!.]*/**/*.*")]
    assert (pushed.version.version, pushed.sent, pushed.sent_bytes) == ("v2", len(own), sum(own))
    done = pull(str(registry), tmp_path / "copy", replace=True)
    assert done.fetched == sum(own)
    assert bytes_of(tmp_path / "copy") == bytes_of(enriched)
    assert [one.name for one in done.report.added] == ["more"]
    again = pull(str(registry), tmp_path / "again", reuse=[tmp_path / "copy"])
    assert again.fetched == 0
    assert bytes_of(tmp_path / "again") == bytes_of(enriched)
    card = (registry / "README.md").read_text()
    assert "| added payloads | more (dense, 300 x float16) |" in card
    assert f"| payloads | {len(own)} | {sum(own):,} |" in card


def test_altered_rows_of_an_added_payload_are_told_by_their_block(enriched, tmp_path):
    registry = tmp_path / "registry"
    done = push(enriched, str(registry))
    entry = done.version.files["payloads/more/shard-00001/rows.arrow"]
    (registry / blob_name(entry.sha256)).write_bytes(bytes(entry.bytes))
    with pytest.raises(TransferError, match="block 0 arrived altered"):
        pull(str(registry), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_damaged_payload_is_not_published(enriched, tmp_path):
    path = enriched / "payloads" / "more" / "shard-00000" / "rows.arrow"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(FormatError, match="block-checksum"):
        push(enriched, str(tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["payloads/.x/payload.json", "payloads/x", "payloads/a/b/c/d"])
def test_a_version_cannot_name_what_is_no_payload(registry, tmp_path, name):
    files = files_of(registry)
    rewrite(registry, {"files": files | {name: files["records.zdict"]}})
    with pytest.raises(RegistryError, match="unsafe path"):
        pull(str(registry), tmp_path / "copy")


def test_a_payload_of_another_memory_is_refused_on_arrival(enriched, changed_memory, tmp_path):
    mixed = Path(shutil.copytree(changed_memory, tmp_path / "mixed"))
    push(mixed, str(tmp_path / "registry"))
    push(enriched, str(tmp_path / "registry"))
    path = tmp_path / "registry" / "versions" / "v2.json"
    added = parse_version(path.read_bytes(), "", "v2").model_dump()["files"]
    added = {name: entry for name, entry in added.items() if name.startswith("payloads/")}
    rewrite(tmp_path / "registry", {"files": files_of(tmp_path / "registry") | added})
    with pytest.raises(FormatError, match="payload-base"):
        pull(f"{tmp_path / 'registry'}@v1", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_what_is_damaged_here_is_not_reused(memory, registry, tmp_path):
    damaged = Path(shutil.copytree(memory, tmp_path / "damaged"))
    (damaged / "heldout.jsonl.zst").write_bytes(bytes(3 << 20))
    (damaged / "records.zdict").unlink()
    pull(str(registry), tmp_path / "copy", reuse=[damaged, tmp_path / "none", tmp_path])
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)


def test_leftovers_of_a_killed_pull_are_used_or_removed(memory, registry, tmp_path):
    left = tmp_path / ".copy.writing"
    (left / "shard-00000").mkdir(parents=True)
    (left / "stray").mkdir()
    (left / "stray" / "file").write_text("stray")
    (left / "manifest.json").write_text("of another version, and longer " * 200)
    data = (memory / "heldout.jsonl.zst").read_bytes()
    (left / "heldout.jsonl.zst").write_bytes(data[: (2 << 20) + 5])
    (left / "shard-00000" / "keys.mdb").write_bytes(b"longer" * 100_000)
    (left / "shard-00000" / "index.arrow").write_bytes(b"wrong")
    (left / "build.json").symlink_to("/etc/passwd")
    done = pull(str(registry), tmp_path / "copy")
    assert done.reused == 2 << 20
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    assert others(tmp_path) == {"copy"}


def test_a_version_must_name_what_the_manifest_names(registry, tmp_path):
    files = files_of(registry)
    missing = {name: entry for name, entry in files.items() if name != "build.json"}
    rewrite(registry, {"files": missing})
    with pytest.raises(RegistryError, match=r"name different files in .*, build.json: expected"):
        pull(str(registry), tmp_path / "copy")
    rewrite(registry, {"files": files | {"extra": files["build.json"]}})
    with pytest.raises(RegistryError, match=r"name different files in .*, extra: found"):
        pull(str(registry), tmp_path / "copy")
    rewrite(registry, {"files": files | {"build.json": files["records.zdict"]}})
    with pytest.raises(RegistryError, match=r"name different files in .*, build.json: expected"):
        pull(str(registry), tmp_path / "copy")
    assert "copy" not in others(tmp_path)


def test_an_adapter_must_hold_what_its_description_names(registry, tmp_path):
    files = files_of(registry)
    (tensors,) = (name for name in files if name.endswith(".safetensors"))
    rewrite(registry, {"files": {n: e for n, e in files.items() if n != tensors}})
    with pytest.raises(PhraseMemError, match="a file of the adapter is missing"):
        pull(str(registry), tmp_path / "copy")
    rewrite(registry, {"files": files | {tensors.replace("adapter.s", "x.s"): files[tensors]}})
    with pytest.raises(RegistryError, match=r"different files in adapters/.*/x.safetensors"):
        pull(str(registry), tmp_path / "copy")
    assert "copy" not in others(tmp_path)


def test_absurd_lengths_are_refused_before_a_byte_travels(registry, tmp_path):
    files = files_of(registry)
    shutil.rmtree(registry / "blobs")
    rewrite(registry, {"files": files | {"build.json": files["build.json"] | {"bytes": 1 << 60}}})
    with pytest.raises(TransferError, match=r"not enough space .*expected 11529215046"):
        pull(str(registry), tmp_path / "copy")
    manifest = files["manifest.json"] | {"bytes": (1 << 28) + 1}
    rewrite(registry, {"files": files | {"manifest.json": manifest}})
    with pytest.raises(RegistryError, match="the manifest is too long"):
        pull(str(registry), tmp_path / "copy")
    assert others(tmp_path) == set()


def test_a_manifest_from_the_future_is_refused_before_the_rest_travels(registry, tmp_path):
    import hashlib
    import json

    files = files_of(registry)
    blob = registry / blob_name(str(files["manifest.json"]["sha256"]))
    value = json.loads(blob.read_bytes()) | {"format_version": "2.0"}
    data = json.dumps(value).encode()
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    shutil.rmtree(registry / "blobs")
    new = registry / blob_name(entry["sha256"])
    new.parent.mkdir(parents=True)
    new.write_bytes(data)
    rewrite(registry, {"files": files | {"manifest.json": entry}, "manifest": entry["sha256"]})
    with pytest.raises(FormatError, match=r"upgrade phrasemem.*unknown-major"):
        pull(str(registry), tmp_path / "copy")


def test_pulls_of_one_folder_wait_for_each_other(memory, registry, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        pulls = [pool.submit(pull, str(registry), tmp_path / "copy") for _ in range(4)]
    errors = [str(error) for done in pulls if (error := done.exception())]
    assert len(errors) == 3
    assert all("something stands there already" in error for error in errors)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    assert others(tmp_path) == {"copy"}
