"""Publishing to and fetching from two S3 servers on loopback (moto, rclone), through s3fs."""

from __future__ import annotations

from pathlib import Path

import pytest
import s3fs

from phrasemem.memfmt.remote.errors import RegistryError, TransferError
from phrasemem.memfmt.remote.opening import open_store
from phrasemem.memfmt.remote.pull import pull
from phrasemem.memfmt.remote.push import push
from phrasemem.memfmt.remote.retry import Patience
from phrasemem.memfmt.remote.version import blob_name, version_name

from .conftest import Proxy, build_memory, bytes_of


def files(bucket: str) -> dict[str, bytes]:
    """All objects of a registry, by name."""
    client = s3fs.S3FileSystem(skip_instance_cache=True)
    root = bucket.removeprefix("s3://") + "/registry/"
    return {name.removeprefix(root): client.cat_file(name) for name in client.find(root)}


def put(bucket: str, name: str, data: bytes) -> None:
    s3fs.S3FileSystem(skip_instance_cache=True).pipe_file(f"{bucket}/registry/{name}", data)


def test_a_registry_is_the_same_on_s3_and_in_a_folder(memory, bucket, tmp_path, hasty):
    push(memory, f"{bucket}/registry", patience=hasty)
    push(memory, str(tmp_path / "registry"))
    assert files(bucket) == bytes_of(tmp_path / "registry")
    pull(f"{bucket}/registry@v1", tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)


def test_a_bucket_itself_is_a_registry(changed_memory, bucket, tmp_path, hasty):
    assert push(changed_memory, bucket, patience=hasty).version.version == "v1"
    assert push(changed_memory, bucket, patience=hasty).already
    pull(f"{bucket}@v1", tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(changed_memory)


def test_only_what_changed_travels(memory, changed_memory, bucket, tmp_path, hasty):
    push(memory, f"{bucket}/registry", patience=hasty)
    second = push(changed_memory, f"{bucket}/registry", patience=hasty)
    assert (second.version.version, second.sent) == ("v2", 3)
    pull(f"{bucket}/registry@v1", tmp_path / "copy", patience=hasty)
    done = pull(f"{bucket}/registry", tmp_path / "copy", replace=True, patience=hasty)
    rows = sum(e.bytes for n, e in done.version.files.items() if "rows-" in n)
    assert done.fetched == rows
    assert bytes_of(tmp_path / "copy") == bytes_of(changed_memory)


def test_a_version_is_created_once(memory, bucket, hasty):
    push(memory, f"{bucket}/registry", patience=hasty)
    before = files(bucket)
    with open_store(f"{bucket}/registry") as store, pytest.raises(FileExistsError):
        store.create(version_name("v1"), b"{}")
    assert files(bucket) == before


# rclone's server knows no conditions on writes (If-None-Match).
@pytest.mark.parametrize("s3", ["moto"], indirect=True)
def test_the_server_itself_refuses_to_create_a_version_twice(memory, bucket, hasty):
    push(memory, f"{bucket}/registry", patience=hasty)
    before = files(bucket)
    with open_store(f"{bucket}/registry") as store:
        # As if another writer came between the look and the write.
        store.size = lambda name: None  # type: ignore[method-assign]
        with pytest.raises(FileExistsError):
            store.create(version_name("v1"), b"{}")
    assert files(bucket) == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:1_500_000], "wrong length.*expected 3145728, found 1500000"),
        (lambda data: data[:9] + b"\0\1" + data[11:], "block 0 arrived altered"),
        (lambda data: b"", "wrong length.*expected 3145728, found 0"),
    ],
)
def test_a_damaged_object_is_found_and_mended(memory, bucket, tmp_path, hasty, damage, message):
    done = push(memory, f"{bucket}/registry", patience=hasty)
    name = blob_name(done.version.files["heldout.jsonl.zst"].sha256)
    put(bucket, name, damage(files(bucket)[name]))
    with pytest.raises(TransferError, match=message):
        pull(f"{bucket}/registry", tmp_path / "copy", patience=hasty)
    assert not (tmp_path / "copy").exists()
    mended = push(memory, f"{bucket}/registry", check_blobs=True, patience=hasty)
    assert mended.sent == 1
    pull(f"{bucket}/registry", tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)


def test_a_bucket_that_is_not_there(memory, bucket, tmp_path, hasty):
    with pytest.raises(TransferError, match="no such place to write to in s3://none/registry"):
        push(memory, "s3://none/registry", patience=hasty)
    with pytest.raises(RegistryError, match="no version or alias is named 'latest'"):
        pull("s3://none/registry", tmp_path / "copy", patience=hasty)


def test_without_credentials(memory, bucket, tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(TransferError, match="Unable to locate credentials"):
        push(memory, f"{bucket}/registry", patience=Patience(first_wait=100))


def test_a_push_that_fails_is_never_seen(memory, bucket, tmp_path, hasty, monkeypatch):
    sent = iter(range(100))

    def full(self: s3fs.S3FileSystem, source: str, target: str, **options: object) -> None:
        if next(sent) >= 4:
            raise PermissionError("quota")
        put_file(self, source, target, **options)

    put_file = s3fs.S3FileSystem.put_file
    monkeypatch.setattr(s3fs.S3FileSystem, "put_file", full)
    with pytest.raises(TransferError, match="PermissionError: quota"):
        push(memory, f"{bucket}/registry", patience=hasty)
    assert not [name for name in files(bucket) if not name.startswith("blobs/")]
    with pytest.raises(RegistryError, match="no version or alias is named"):
        pull(f"{bucket}/registry", tmp_path / "copy", patience=hasty)
    monkeypatch.undo()


def test_a_failed_push_goes_on(memory, bucket, tmp_path, hasty):
    done = push(memory, str(tmp_path / "folder"))
    kept = [done.version.files[n] for n in ("heldout.jsonl.zst", "build.json")]
    for entry in kept:
        put(
            bucket,
            blob_name(entry.sha256),
            Path(tmp_path / "folder" / blob_name(entry.sha256)).read_bytes(),
        )
    again = push(memory, f"{bucket}/registry", patience=hasty)
    assert again.kept == 2
    assert again.sent == done.sent - 2


def test_transfers_that_are_cut_are_tried_again(memory, bucket, proxy: Proxy, tmp_path, hasty):
    proxy.cut_after(700_000, times=3)
    push(memory, f"{bucket}/registry", patience=hasty)
    assert proxy.cuts == 3
    proxy.cut_after(700_000, times=3)
    pull(f"{bucket}/registry", tmp_path / "copy", patience=hasty)
    assert proxy.cuts == 6
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)


def test_long_files_travel_in_parts(bucket, proxy: Proxy, tmp_path, hasty, monkeypatch):
    monkeypatch.setattr("phrasemem.memfmt.remote.s3_store._PART_BYTES", 5 << 20)
    path = build_memory(tmp_path / "memory", heldout=11 << 20)
    proxy.cut_after(2_000_000, times=2)
    push(path, f"{bucket}/registry", patience=hasty)
    assert proxy.cuts == 2
    pull(f"{bucket}/registry", tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(path)
