"""Vectors of phrases: equal to those of the library, whatever is done to make them sooner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem import artifacts
from phrasemem.pipeline.config import BuildConfig, ConfigError, load_config
from phrasemem.pipeline.embed import by_length, cosines, embed_part, encode
from phrasemem.pipeline.encoder import EncoderError, load_encoder
from phrasemem.pipeline.encoder_options import (
    EncoderOptions,
    changed_part,
    compute_for,
    device_for,
    options_from,
    resolve_compute,
)
from phrasemem.pipeline.existing import OutputError, refuse_other_memory
from phrasemem.pipeline.plan import encoder_options, make_plan

ROOT = Path(__file__).parents[2]
TEXTS = ["red panda", "Red Panda", "a", "the speed of light", "x-ray", "high blood pressure", "us"]
WHEEL = "pypi:wordllama==0.4.0.post1/wordllama"
STATIC = EncoderOptions(
    f"{WHEEL}/weights/l2_supercat_256.safetensors",
    kind="static",
    tokenizer=f"{WHEEL}/tokenizers/l2_supercat_tokenizer_config.json",
)


@pytest.fixture(scope="module")
def options(world: Any) -> EncoderOptions:
    return EncoderOptions(str(world.encoder))


def by_library(options: EncoderOptions, texts: list[str], **how: Any) -> Any:
    """Encode one text at a time, so that there is no padding and no batch."""
    model = load_encoder(EncoderOptions(options.id)).model
    how = {"normalize_embeddings": True, **how}
    return np.stack([model.encode(text, **how) for text in texts])


@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(st.text("abcdefXYZ '-", min_size=1, max_size=30), min_size=1, max_size=12),
    batch_size=st.integers(1, 5),
)
def test_vectors_are_the_library_s(world: Any, texts: list[str], batch_size: int) -> None:
    options = EncoderOptions(str(world.encoder))
    found = encode(texts, load_encoder(options), batch_size)
    np.testing.assert_allclose(found, by_library(options, texts), atol=2e-3)


def test_spellings_that_the_encoder_reads_alike_have_one_vector(options: EncoderOptions) -> None:
    found = encode(TEXTS, load_encoder(options), 2)
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()


@pytest.mark.parametrize("left", [False, True])
def test_texts_of_one_length_stand_together_without_padding(left: bool) -> None:
    ids = torch.tensor([[7, 0, 0], [5, 6, 0], [7, 0, 0], [1, 2, 3], [5, 4, 0]])
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]])
    features = {"input_ids": ids, "attention_mask": mask, "prompt_length": 1}
    if left:
        features |= {
            "input_ids": torch.stack(
                [row.roll(int(3 - n)) for row, n in zip(ids, mask.sum(1), strict=True)]
            ),
            "attention_mask": mask.flip(1),
        }
    seen = {}
    for rows, group, repeats in by_length(features):
        assert bool(group["attention_mask"].all())
        assert group["prompt_length"] == 1
        assert len(group["input_ids"]) == repeats.max() + 1
        for row, place in zip(rows.tolist(), repeats.tolist(), strict=True):
            seen[row] = group["input_ids"][place].tolist()
    assert seen == {0: [7], 1: [5, 6], 2: [7], 3: [1, 2, 3], 4: [5, 4]}


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({"prompt": "query: "}, {"prompt": "query: "}),
        ({"dims": 5}, {"truncate_dim": 5}),
        ({"normalize": False}, {"normalize_embeddings": False}),
    ],
)
def test_settings_do_what_the_library_does(
    options: EncoderOptions, changes: dict[str, Any], how: dict[str, Any]
) -> None:
    found = encode(TEXTS, load_encoder(replace(options, **changes)), 3)
    expected = by_library(options, TEXTS, **how)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert found.shape == (len(TEXTS), changes.get("dims", 16))
    if "dims" not in changes:
        assert np.abs(found - encode(TEXTS, load_encoder(options), 3)).max() > 0.01


def test_a_prompt_by_the_model_s_name_for_it(options: EncoderOptions, tmp_path: Path) -> None:
    model = load_encoder(options).model
    model.prompts = {"query": "query: "}
    try:
        model.save(str(tmp_path / "named"))
    finally:
        model.prompts = {}
    named = EncoderOptions(str(tmp_path / "named"), prompt_name="query")
    found = encode(TEXTS, load_encoder(named), 3)
    spelt = replace(options, prompt="query: ")
    assert (found == encode(TEXTS, load_encoder(spelt), 3)).all()
    with pytest.raises(EncoderError, match=r"no prompt 'other'.*expected one of .*query"):
        load_encoder(replace(named, prompt_name="other"))


def test_longer_texts_are_cut(options: EncoderOptions) -> None:
    short = load_encoder(replace(options, max_tokens=5))
    found = encode(["abcdef", "abcxyz", "abd"], short, 3)
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": 17}, r"fewer dimensions.*at most 16.*dims: 17"),
        ({"max_tokens": 65}, r"fewer tokens.*at most 64"),
        ({"kind": "static"}, r"another kind|cannot load the encoder"),
        ({"device": "cuda"}, r"no CUDA device.*device: cpu"),
    ],
)
def test_what_the_encoder_cannot_do_is_refused(
    options: EncoderOptions, changes: dict[str, Any], message: str
) -> None:
    if "device" in changes and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(EncoderError, match=message):
        load_encoder(replace(options, **changes))


def test_int8_is_refused_where_it_changes_vectors() -> None:
    profile = load_config(ROOT / "corpora.yaml", "tiny")
    encoder = load_encoder(EncoderOptions(profile.encoder.id, "int8"))
    with pytest.raises(EncoderError, match=r"int8 changes.*at least 0\.999.*found 0\.[0-9]+.*auto"):
        encode(TEXTS, encoder, 256)
    plain = encode(TEXTS, load_encoder(EncoderOptions(profile.encoder.id)), 256)
    assert cosines(encode(TEXTS, encoder, 256, checked=False), plain).min() > 0.8


def test_vectors_beyond_float16_are_an_error(options: EncoderOptions, tmp_path: Path) -> None:
    model = load_encoder(replace(options, normalize=False)).model
    weight = model[0].auto_model.encoder.layer[-1].output.LayerNorm.weight
    before = weight.detach().clone()
    try:
        weight.data.mul_(1e6)
        with pytest.raises(EncoderError, match=r"7 vectors are not finite.*normalize: true"):
            encode(TEXTS, load_encoder(replace(options, normalize=False)), 3)
    finally:
        weight.data.copy_(before)


def test_a_static_encoder_takes_the_mean_of_its_rows() -> None:
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    rows = load_file(artifacts.fetch(STATIC.id))["embedding.weight"].astype(np.float32)
    tokenizer = Tokenizer.from_file(str(artifacts.fetch(STATIC.tokenizer or "")))
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    means = np.stack([rows[each].mean(axis=0) for each in ids])
    expected = means / np.linalg.norm(means, axis=1, keepdims=True)
    found = encode(TEXTS, load_encoder(STATIC), 2)
    assert found.shape == (len(TEXTS), 256)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    cut = encode(TEXTS, load_encoder(replace(STATIC, max_tokens=1, dims=64)), 2)
    first = rows[[each[0] for each in ids], :64]
    np.testing.assert_allclose(cut, first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-3)


def test_a_static_encoder_must_be_whole(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    with pytest.raises(EncoderError, match=r"needs a tokenizer.*encoder.tokenizer"):
        load_encoder(replace(STATIC, tokenizer=None))
    with pytest.raises(EncoderError, match=r"another kind.*expected transformer, found static"):
        load_encoder(replace(STATIC, kind="transformer"))
    for name, shape, message in (
        ("other", (32000, 2), r"not the weights.*expected embedding\.weight, found other"),
        ("embedding.weight", (9, 2), r"no row.*expected 9, found 32000"),
    ):
        save_file({name: np.zeros(shape, np.float32)}, tmp_path / f"{name}.safetensors")
        with pytest.raises(EncoderError, match=message):
            load_encoder(replace(STATIC, id=str(tmp_path / f"{name}.safetensors")))


def test_model2vec_s_own_layout_loads(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    rows = load_file(artifacts.fetch(STATIC.id))["embedding.weight"].astype(np.float32)
    save_file({"embeddings": rows[:, :8].copy()}, tmp_path / "model.safetensors")
    tokenizer = artifacts.fetch(STATIC.tokenizer or "").read_bytes()
    (tmp_path / "tokenizer.json").write_bytes(tokenizer)
    (tmp_path / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')
    found = encode(TEXTS, load_encoder(EncoderOptions(str(tmp_path), kind="static")), 2)
    expected = encode(TEXTS, load_encoder(replace(STATIC, dims=8)), 2)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def write_catalogue(folder: Path) -> str:
    path = folder / "catalogue.parquet"
    tokens = [[number, number + 1] for number in range(len(TEXTS))]
    pq.write_table(pa.table({"text": TEXTS, "tokens": tokens}), path)
    return str(path)


def test_a_part_that_is_made_again_has_the_same_bytes(
    options: EncoderOptions, tmp_path: Path
) -> None:
    catalogue = write_catalogue(tmp_path)

    def run(key: str, start: int, stop: int) -> bytes:
        report = embed_part(
            tmp_path, key, catalogue=catalogue, start=start, stop=stop, encoder=options,
            batch_size=2,
        )  # fmt: skip
        assert report == {"phrases": stop - start, "dim": 16, "encoded": stop - start}
        return (tmp_path / f"{key}.npy").read_bytes()

    before = [run("0", 0, 4), run("1", 4, 7)]
    (tmp_path / "1.npy").unlink()
    load_encoder.cache_clear()
    assert [run("1", 4, 7), run("0", 0, 4)] == before[::-1]
    assert len({path.name for path in tmp_path.iterdir()}) == 3


@given(
    prompt=st.none() | st.text(),
    dims=st.none() | st.integers(1, 9999),
    normalize=st.booleans(),
    max_tokens=st.none() | st.integers(1, 9999),
)
def test_a_source_recalls_the_settings(
    prompt: str | None, dims: int | None, normalize: bool, max_tokens: int | None
) -> None:
    options = EncoderOptions(
        "a b", "bfloat16", "static", "t", prompt, None, dims, normalize, max_tokens
    )
    assert " " not in options.how
    assert options_from("a b", options.how) == options
    assert options_from("x", "float32") == EncoderOptions("x")


def test_device_and_number_format_are_chosen_without_torch() -> None:
    cards = ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]
    assert device_for("2.13.0+cu130", cards) == "cuda"
    assert device_for("2.13.0", cards) == "cuda"
    assert device_for("2.13.0+cpu", cards) == "cpu"
    assert device_for("2.13.0", ["/dev/nvidiactl"]) == "cpu"
    assert compute_for("model : x\nflags\t\t: fpu avx512_bf16 avx2\n") == "bfloat16"
    assert compute_for("flags\t\t: fpu avx512_bf16x avx2\n") == "float32"
    assert resolve_compute("auto", "cuda") == "float16"
    assert resolve_compute("int8", "cuda") == "int8"


def loaded(world: Any, **encoder: Any) -> BuildConfig:
    changes = {**world.config()["encoder"], **encoder}
    return load_config(world.write("embedding", encoder=changes))


def test_a_setting_redoes_what_depends_on_it(world: Any) -> None:
    def fingerprints(**encoder: Any) -> dict[str, str]:
        plan = make_plan(loaded(world, **encoder), [])
        return {stage.name: stage.fingerprint for stage in plan.stages()}

    plain = fingerprints()
    for change in (
        {"dims": 8}, {"prompt": ""}, {"prompt_name": "q"}, {"normalize": False},
        {"max_tokens": 9}, {"kind": "transformer"}, {"batch_size": 9}, {"device": "cuda"},
    ):  # fmt: skip
        changed = fingerprints(**change)
        assert {name for name in plain if plain[name] != changed[name]} == {"embed", "pack"}


def test_static_and_int8_stay_on_the_cpu(world: Any) -> None:
    static = encoder_options(loaded(world, kind="static"))
    assert (static.device, static.compute) == ("cpu", "float32")
    assert encoder_options(loaded(world, compute="int8")).device == "cpu"
    with pytest.raises(ConfigError, match="prompt or prompt_name, not both"):
        loaded(world, prompt="a", prompt_name="b")


def test_a_memory_with_other_settings_is_refused() -> None:
    golden = ROOT / "tests" / "memfmt" / "golden" / "v1.0"
    message = r"other settings of the encoder.*expected prompt='a b', dims='8', found none"
    how = EncoderOptions("golden", dims=8, prompt="a b").how
    with pytest.raises(OutputError, match=message):
        refuse_other_memory(golden, "m", ("golden", "1", how), "exact")
    assert changed_part(f"id revision {how}") == "prompt=a+b&dims=8"


def test_the_documented_static_encoder_is_a_profile_s() -> None:
    page = (ROOT / "docs" / "encoders.md").read_text()
    block = next(b for b in page.split("```yaml\n")[1:] if "kind: static" in b).split("```")[0]
    encoder = yaml.safe_load(block)["profiles"]["mine"]["encoder"]
    options = EncoderOptions(encoder["id"], kind="static", tokenizer=encoder["tokenizer"])
    assert encode(TEXTS, load_encoder(options), 2).shape == (len(TEXTS), 256)
