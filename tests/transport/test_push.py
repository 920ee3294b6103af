"""Publishing to a folder and to fsspec's memory: what is written, in which order, and what not."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner

from phrasemem.cli import cli, main
from phrasemem.memfmt.adapters import AdapterFilesError
from phrasemem.memfmt.errors import FormatError
from phrasemem.memfmt.remote import push as push_module
from phrasemem.memfmt.remote.errors import LicenceError, RegistryError, TransferError
from phrasemem.memfmt.remote.pull import pull
from phrasemem.memfmt.remote.push import push
from phrasemem.memfmt.remote.version import blob_name, parse_version

from .conftest import BACKBONE, build_memory, bytes_of, write_adapter


def tree(folder: Path) -> dict[str, bytes]:
    return bytes_of(folder)


def test_a_registry_holds_blobs_a_version_a_card_and_an_alias(memory, tmp_path):
    done = push(memory, str(tmp_path / "registry"))
    files = tree(tmp_path / "registry")
    version = parse_version(files["versions/v1.json"], "here", "v1")
    assert version == done.version
    assert set(version.files) == set(bytes_of(memory))
    blobs = {blob_name(entry.sha256) for entry in version.files.values()}
    named = {"versions/v1.json", "versions/v1.md", "aliases/latest.json", "README.md"}
    assert set(files) == blobs | named
    for name, data in bytes_of(memory).items():
        assert files[blob_name(version.files[name].sha256)] == data
    assert (done.sent, done.kept, done.already) == (len(blobs), 0, False)


def test_equal_memories_give_equal_registries(memory, tmp_path):
    for name in ("one", "two"):
        push(memory, str(tmp_path / name))
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_the_same_push_again_changes_nothing(memory, tmp_path):
    registry = tmp_path / "registry"
    push(memory, str(registry))
    before = tree(registry)
    again = push(memory, str(registry))
    assert (again.version.version, again.already, again.sent) == ("v1", True, 0)
    assert tree(registry) == before


def test_only_what_changed_travels(memory, changed_memory, tmp_path):
    registry = str(tmp_path / "registry")
    first = push(memory, registry)
    second = push(changed_memory, registry)
    assert second.version.version == "v2"
    # Other vectors: the rows of two shards, and the manifest.
    assert second.sent == 3
    assert second.kept == len(changed_memory_files := second.version.files) - 3
    assert second.sent_bytes < first.sent_bytes / 20
    assert "heldout.jsonl.zst" in changed_memory_files
    assert push(memory, registry).version.version == "v3"  # not the last: a version of its own


def test_versions_never_change_and_aliases_move(memory, changed_memory, tmp_path):
    registry = str(tmp_path / "registry")
    push(memory, registry, version="2024-06", aliases=("latest", "stable"))
    with pytest.raises(RegistryError, match=r"versions never change .*2024-06.json"):
        push(changed_memory, registry, version="2024-06")
    assert push(memory, registry, version="2024-06").already
    push(changed_memory, registry, aliases=("latest",))
    for name, expected in (("stable", memory), ("latest", changed_memory), ("v1", changed_memory)):
        pull(f"{registry}@{name}", tmp_path / name)
        assert bytes_of(tmp_path / name) == bytes_of(expected)


def test_a_name_is_a_version_or_an_alias(memory, changed_memory, tmp_path):
    registry = str(tmp_path / "registry")
    push(memory, registry, aliases=("stable",))
    with pytest.raises(RegistryError, match="'stable' cannot be version and alias"):
        push(changed_memory, registry, version="stable", aliases=())
    with pytest.raises(RegistryError, match="'v1' cannot be version and alias"):
        push(changed_memory, registry, aliases=("v1",))
    with pytest.raises(RegistryError, match="version and alias at once: found new"):
        push(changed_memory, registry, version="new", aliases=("new",))
    assert {path.name for path in (tmp_path / "registry" / "versions").glob("*.json")} == {
        "v1.json"
    }


def test_pushes_at_the_same_time_get_versions_of_their_own(memory, changed_memory, tmp_path):
    registry = str(tmp_path / "registry")
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda path: push(path, registry), (memory, changed_memory)))
    assert {pushed.version.version for pushed in done} == {"v1", "v2"}
    for pushed, path in zip(done, (memory, changed_memory), strict=True):
        pull(f"{registry}@{pushed.version.version}", tmp_path / path.name)
        assert bytes_of(tmp_path / path.name) == bytes_of(path)


def test_a_version_that_was_taken_meanwhile_is_not_replaced(
    memory, changed_memory, tmp_path, monkeypatch
):
    fsspec.filesystem("memory").store.clear()
    send = push_module.send_blobs

    def overtaken(*arguments: object) -> list[int]:
        monkeypatch.setattr(push_module, "send_blobs", send)
        push(changed_memory, "memory://race")
        return send(*arguments)

    monkeypatch.setattr(push_module, "send_blobs", overtaken)
    assert push(memory, "memory://race").version.version == "v2"
    monkeypatch.setattr(push_module, "send_blobs", overtaken)
    with pytest.raises(RegistryError, match="another push has just taken this version"):
        push(memory, "memory://race", version="v3")
    for name, expected in (("v1", changed_memory), ("v2", memory), ("v3", changed_memory)):
        pull(f"memory://race@{name}", tmp_path / name)
        assert bytes_of(tmp_path / name) == bytes_of(expected)


def test_memory_of_fsspec_works_by_the_way(memory, tmp_path):
    fsspec.filesystem("memory").store.clear()
    assert push(memory, "memory://a/registry").version.version == "v1"
    assert push(memory, "memory://a/registry").already
    pull("memory://a/registry@v1", tmp_path / "copy")
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)


def test_unknown_licences_are_refused_by_name(tmp_path):
    path = build_memory(tmp_path / "memory", heldout=10, free=False)
    expected = (
        r"news \(licence unknown\); wiki \(CC-BY: not marked as redistributable\) "
        r"\(give --accept-licence"
    )
    with pytest.raises(LicenceError, match=expected):
        push(path, str(tmp_path / "registry"))
    assert not (tmp_path / "registry").exists()
    push(path, str(tmp_path / "registry"), accept_licence=True)
    text = (tmp_path / "registry" / "README.md").read_text()
    assert "| news | web | unknown | not stated |" in text


def test_a_damaged_memory_or_adapter_is_not_published(memory, tmp_path):
    path = Path(shutil.copytree(memory, tmp_path / "memory"))
    write_adapter(path)
    tensors = path / "adapters" / BACKBONE / "adapter.safetensors"
    tensors.write_bytes(b"x" + tensors.read_bytes()[1:])
    with pytest.raises(AdapterFilesError, match="a file of the adapter was altered"):
        push(path, str(tmp_path / "registry"))
    description = tensors.with_name("adapter.json")
    description.write_bytes(description.read_bytes().replace(b"head", b"HEAD"))
    with pytest.raises(AdapterFilesError, match="the adapter's description was altered"):
        push(path, str(tmp_path / "registry"))
    (path / "shard-00000" / "keys.mdb").write_bytes(b"")
    with pytest.raises(FormatError, match="file-length"):
        push(path, str(tmp_path / "registry"))
    assert not (tmp_path / "registry").exists()


def test_an_adapter_is_not_a_link(memory, tmp_path):
    path = Path(shutil.copytree(memory, tmp_path / "memory"))
    elsewhere = (path / "adapters" / BACKBONE).rename(tmp_path / "elsewhere")
    (path / "adapters" / BACKBONE).symlink_to(elsewhere)
    with pytest.raises(AdapterFilesError, match="an adapter is a link to elsewhere"):
        push(path, str(tmp_path / "registry"))
    (path / "adapters" / BACKBONE).unlink()
    (path / "adapters" / BACKBONE).mkdir()
    with pytest.raises(AdapterFilesError, match=r"adapter.json is missing"):
        push(path, str(tmp_path / "registry"))


@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", "sub/file", ".hidden", "a\\b"])
def test_an_adapter_cannot_name_a_file_elsewhere(memory, tmp_path, name):
    path = Path(shutil.copytree(memory, tmp_path / "memory"))
    description = path / "adapters" / BACKBONE / "adapter.json"
    value = json.loads(description.read_bytes())
    value["files"] = {name: value["files"]["adapter.safetensors"]}
    _rewrite(description, value)
    with pytest.raises(AdapterFilesError, match="should match pattern"):
        push(path, str(tmp_path / "registry"))


def _rewrite(path: Path, value: dict[str, object]) -> None:
    from .test_registry_files import altered

    path.write_bytes(altered(value))


def test_a_damaged_blob_is_replaced_on_request(memory, tmp_path):
    registry = tmp_path / "registry"
    done = push(memory, str(registry))
    entry = done.version.files["heldout.jsonl.zst"]
    blob = registry / blob_name(entry.sha256)
    blob.write_bytes(bytes(entry.bytes))
    assert push(memory, str(registry)).sent == 0
    with pytest.raises(TransferError, match=r"block 0 arrived altered.*push --check-blobs"):
        pull(str(registry), tmp_path / "copy")
    again = push(memory, str(registry), check_blobs=True)
    assert (again.sent, again.sent_bytes, again.already) == (1, entry.bytes, True)
    pull(str(registry), tmp_path / "copy")
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)


def test_what_a_killed_push_left_is_removed_and_half_a_blob_is_sent_again(memory, tmp_path):
    registry = tmp_path / "registry"
    entry = push(memory, str(tmp_path / "other")).version.files["heldout.jsonl.zst"]
    blob = registry / blob_name(entry.sha256)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"half")
    (registry / ".incoming" / "tmpleft").mkdir(parents=True)
    (registry / ".incoming" / "tmpleft" / "file").write_bytes(b"half")
    push(memory, str(registry))
    assert [path.name for path in (registry / ".incoming").iterdir()] == ["lock"]
    assert tree(registry) == tree(tmp_path / "other")


def test_the_card_tells_corpora_sizes_and_quality(memory, tmp_path):
    push(memory, str(tmp_path / "registry"))
    text = (tmp_path / "registry" / "versions" / "v1.md").read_text()
    for line in (
        "# Phrase memory v1",
        "| news | web | CC0-1.0 | yes | 3 | 1,000 | test |",
        "| tokenizer | a tokenizer (ffffffffffff) |",
        "| encoder | an encoder, 64 dimensions |",
        "| heldout.jsonl.zst | 1 | 3,145,728 |",
        "| kind | tokens | frozen | attached | shuffled |",
        "| web | 100 | 20.0 | 18.5 | 20.5 |",
    ):
        assert line in text.splitlines()


def test_the_commands_publish_and_fetch(memory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke
    pushed = run(cli, ["push", str(memory), "reg", "--alias", "stable"])
    assert pushed.exit_code == 0, pushed.output
    assert "version    v1\naliases    latest, stable\n" in pushed.output
    assert "fetch      phrasemem pull reg@v1" in pushed.output
    again = run(cli, ["push", str(memory), "reg", "--no-latest"])
    assert "v1 (it was there already)\naliases    none moved" in again.output
    pulled = run(cli, ["pull", "reg@stable", "copy"])
    assert pulled.exit_code == 0, pulled.output
    assert "version    v1\n" in pulled.output
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    cached = run(cli, ["pull", "reg"])
    folder = Path(cached.output.splitlines()[-1].split()[-1])
    assert folder.is_relative_to(tmp_path / "cache")
    assert bytes_of(folder) == bytes_of(memory)


def test_an_error_is_one_line(memory, tmp_path, capsys):
    path = build_memory(tmp_path / "memory", heldout=10, free=False)
    for arguments, words in (
        (["push", str(path), str(tmp_path / "r")], ["news (licence unknown)", "--accept-licence"]),
        (["push", str(memory), "http://127.0.0.1:9/x"], ["this registry can only be read"]),
        (["push", str(memory), "zzz://x"], ["cannot open this registry"]),
        (["push", str(memory), "simplecache::s3://x"], ["one place, not a chain"]),
        (["pull", str(tmp_path / "none"), str(tmp_path / "c")], ["no version or alias", "latest"]),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert all(word in error for word in words), error
    assert not [p for p in tmp_path.iterdir() if p.name.startswith((".c", "c.")) or p.name == "c"]
