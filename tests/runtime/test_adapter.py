from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from phrasemem.memfmt.canonical import sealed
from phrasemem.runtime.adapter import Adapter, AdapterError, load_adapter, save_adapter


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_what_is_saved_is_loaded_with_equal_bytes_each_time(tmp_path, make_adapter):
    adapter = replace(make_adapter("layer:7", "relu-cos"), report={"b": [1, 2.5], "a": "x"})
    folder = save_adapter(adapter, tmp_path, "f" * 64)
    first = content(folder)
    assert sorted(first) == ["adapter.json", "adapter.safetensors"]
    loaded = load_adapter(tmp_path, "f" * 64)
    np.testing.assert_array_equal(loaded.projection, adapter.projection)
    np.testing.assert_array_equal(loaded.bias, adapter.bias)
    # Arrays have no truth value, so the rest is compared by name.
    rest = {k: v for k, v in vars(adapter).items() if k not in ("projection", "bias")}
    assert {k: vars(loaded)[k] for k in rest} == rest
    assert loaded.layer == 7
    save_adapter(loaded, tmp_path, "f" * 64)
    assert content(folder) == first
    assert sorted(p.name for p in folder.parent.iterdir() if p.is_dir()) == ["f" * 64]


def test_a_missing_adapter_names_those_that_are_there(tmp_path, make_adapter):
    with pytest.raises(AdapterError, match=r"found no adapter.*phrasemem calibrate"):
        load_adapter(tmp_path, "b")
    save_adapter(make_adapter(), tmp_path, "a")
    with pytest.raises(AdapterError, match="expected b, found a"):
        load_adapter(tmp_path, "b")


@pytest.mark.parametrize("name", ["adapter.json", "adapter.safetensors"])
def test_any_flipped_byte_is_found(tmp_path, make_adapter, name):
    path = save_adapter(make_adapter(), tmp_path, "a") / name
    good = path.read_bytes()
    for position in range(0, len(good), 7):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(AdapterError):
            load_adapter(tmp_path, "a")
    path.write_bytes(good[:-1])
    with pytest.raises(AdapterError):
        load_adapter(tmp_path, "a")
    path.write_bytes(good)
    load_adapter(tmp_path, "a")


def test_a_missing_tensor_file_is_found(tmp_path, make_adapter):
    (save_adapter(make_adapter(), tmp_path, "a") / "adapter.safetensors").unlink()
    with pytest.raises(AdapterError, match="a file of the adapter is missing"):
        load_adapter(tmp_path, "a")


def test_a_folder_under_another_name_is_refused(tmp_path, make_adapter):
    save_adapter(make_adapter(), tmp_path, "a").rename(tmp_path / "adapters" / "b")
    with pytest.raises(AdapterError, match="wrong folder"):
        load_adapter(tmp_path, "b")


def test_an_adapter_of_a_later_format_is_refused(tmp_path, make_adapter):
    path = save_adapter(make_adapter(), tmp_path, "a") / "adapter.json"
    value = json.loads(path.read_bytes())
    del value["checksum"]
    path.write_bytes(sealed(value | {"format_version": "2.0"}))
    with pytest.raises(AdapterError, match="format_version"):
        load_adapter(tmp_path, "a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"point": "tail"}, "expected head or layer:K, found tail"),
        ({"gate": "open"}, "unknown gate"),
        ({"bias": np.zeros(3, np.float32)}, "do not fit"),
    ],
)
def test_a_malformed_adapter_is_refused(make_adapter, change, message):
    with pytest.raises(AdapterError, match=message):
        replace(make_adapter(), **change)
    assert isinstance(make_adapter(), Adapter)
