"""Calibration finds a planted signal, abstains from noise, and writes what it did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from phrasemem.backbone import backbone_fingerprint
from phrasemem.memfmt.verify import verify
from phrasemem.runtime.adapter import AdapterError
from phrasemem.runtime.attach import attach
from phrasemem.runtime.calibrate import calibrate, calibrated_on
from phrasemem.runtime.compatibility import MismatchError
from phrasemem.runtime.documents import (
    Document,
    TextError,
    batches,
    cut,
    read_held_out,
    read_text,
)
from phrasemem.runtime.evaluate import EvaluationError, evaluate
from phrasemem.runtime.head_fit import fit_head
from phrasemem.runtime.head_likelihood import gradients, local, log_likelihoods
from phrasemem.runtime.memory import PhraseMemory
from phrasemem.runtime.perplexity import losses, total
from phrasemem.runtime.ridge import Moments, explained
from phrasemem.runtime.samples import CalibrationError, Samples

DIM, WIDTH, VOCAB = 12, 24, 32


@pytest.fixture
def llama(make_model):
    return make_model("llama")


def tree(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_calibration_at_the_head_finds_what_the_vectors_say(held_out, llama, tokenizer):
    adapter = calibrate(held_out, llama, tokenizer)
    assert adapter.point == "head"
    assert adapter.scale > 0
    gains = adapter.report["nats_per_hit"]
    assert gains["1"] > 0.05
    assert gains["1"] > gains["bias alone"] + 0.03
    assert gains["1"] >= max(gains.values()) - 1e-3
    assert gains["0"] == 0
    assert adapter.report["tokens"] == sum(adapter.report["tokens_by_kind"].values())
    assert adapter.report["threads"] == torch.get_num_threads()
    with PhraseMemory.open(held_out) as opened:
        results = evaluate(opened, llama, tokenizer, read_held_out(held_out, "test"))
    assert sorted(results) == ["science", "web"]
    for result in results.values():
        assert result.attached < 0.97 * result.frozen
        assert result.attached < 0.98 * result.shuffled
    verify(held_out)


def test_calibration_twice_gives_the_same_bytes(held_out, llama, tokenizer):
    calibrate(held_out, llama, tokenizer)
    folder = held_out / "adapters" / backbone_fingerprint(llama)
    first = tree(folder)
    calibrate(held_out, llama, tokenizer)
    assert tree(folder) == first


@pytest.mark.parametrize("gate", ["none", "relu-cos"])
def test_calibration_at_a_layer_never_hurts_where_it_chose(held_out, llama, tokenizer, gate):
    adapter = calibrate(held_out, llama, tokenizer, point="layer:1", gate=gate)
    curve = adapter.report["nats_per_token"]
    assert (adapter.point, adapter.gate) == ("layer:1", gate)
    assert curve[f"{adapter.scale:g}"] == min(curve.values()) <= curve["0"]
    assert 0 < adapter.report["explained_variance"] < 1
    with PhraseMemory.open(held_out) as opened, attach(llama, opened, tokenizer=tokenizer) as h:
        llama(torch.tensor([[5, 6, 7]]))
        assert h.stats().forwards == 1


def test_a_head_that_says_nothing_is_abstained_from(held_out, llama, tokenizer):
    with torch.no_grad():
        llama.lm_head.weight.zero_()
    adapter = calibrate(held_out, llama, tokenizer)
    assert adapter.scale == 0
    assert adapter.report["phrase_scale"] == adapter.report["bias_scale"] == 0


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_abstained_from(head, seed):
    rng = torch.Generator().manual_seed(seed)
    states = torch.randn(2000, WIDTH, generator=rng)
    told = torch.distributions.Categorical(logits=head(states)).probs
    targets = torch.multinomial(told, 1, generator=rng)[:, 0]  # the head is right already
    noise = torch.randn(2000, DIM, generator=rng)
    samples = Samples(states, targets, noise, np.arange(2000) // 10, {"web": 2000})
    fit = fit_head(head, samples, lambda _: None)
    assert fit.report["phrase_scale"] == 0


def test_calibration_refuses_what_it_cannot_use(held_out, llama, tokenizer, make_tokenizer):
    with pytest.raises(CalibrationError, match=r"expected head or layer:0\.\.2, found layer:3"):
        calibrate(held_out, llama, tokenizer, point="layer:3")
    with pytest.raises(CalibrationError, match="head takes no gate"):
        calibrate(held_out, llama, tokenizer, gate="relu-cos")
    with pytest.raises(MismatchError, match="another tokenizer"):
        calibrate(held_out, llama, make_tokenizer(prefix="x"))
    with pytest.raises(CalibrationError, match="no phrase of the memory occurs"):
        calibrate(held_out, llama, tokenizer, documents=[Document("web", "[UNK] [UNK]")])
    one = [Document("web", "w3 w5 w3 w7 w3 w8 w9")]
    with pytest.raises(CalibrationError, match="too little calibration text"):
        calibrate(held_out, llama, tokenizer, documents=one)


def test_evaluation_refuses_documents_that_calibration_used(held_out, llama, tokenizer):
    adapter = calibrate(held_out, llama, tokenizer)
    used = read_held_out(held_out, "calibration")
    assert all(calibrated_on(adapter, document) for document in used)
    fresh = read_held_out(held_out, "test")
    with PhraseMemory.open(held_out) as opened:
        with pytest.raises(EvaluationError, match=r"calibrated on documents.*found 1 of 9"):
            evaluate(opened, llama, tokenizer, [*fresh, used[0]])
        evaluate(opened, llama, tokenizer, fresh)


def test_evaluation_without_an_adapter_says_how_to_make_one(held_out, make_model, tokenizer):
    with (
        PhraseMemory.open(held_out) as opened,
        pytest.raises(AdapterError, match="phrasemem calibrate"),
    ):
        evaluate(opened, make_model("gpt2"), tokenizer, read_held_out(held_out, "test"))


def test_shuffled_vectors_and_frozen_give_what_the_definitions_say(held_out, llama, tokenizer):
    adapter = calibrate(held_out, llama, tokenizer)
    fresh = read_held_out(held_out, "test")
    windows = cut(fresh, tokenizer, width=1024)
    with PhraseMemory.open(held_out) as opened:
        results = evaluate(opened, llama, tokenizer, fresh, max_tokens=None)
        frozen = losses(llama, windows)
        with attach(llama, opened, tokenizer=tokenizer, adapter=replace(adapter, scale=0.0)):
            assert losses(llama, windows) == frozen
    for kind, loss in frozen.items():
        assert (results[kind].tokens, results[kind].frozen) == (loss.tokens, loss.perplexity)


def test_the_loss_is_that_of_transformers(llama, tokenizer, documents):
    windows = cut(documents[:1], tokenizer, width=1024)
    ids = torch.from_numpy(windows[0].tokens)[None]
    with torch.no_grad():
        expected = float(llama(ids, labels=ids).loss)
    loss = total(losses(llama, windows))
    assert loss.nats / loss.tokens == pytest.approx(expected, abs=1e-5)
    assert loss.tokens == ids.shape[1] - 1


# The head's algebra, against autograd.


@pytest.fixture(scope="module")
def samples():
    torch.manual_seed(0)
    return Samples(
        torch.randn(300, WIDTH),
        torch.randint(0, VOCAB, (300,)),
        torch.randn(300, DIM),
        np.arange(300) // 10,
        {"web": 300},
    )


@pytest.fixture(scope="module")
def head():
    torch.manual_seed(1)
    return torch.nn.Linear(WIDTH, VOCAB, bias=True).requires_grad_(False)


def test_gradients_and_curvature_are_those_of_the_likelihood(head, samples):
    found = gradients(head, samples)
    delta = torch.zeros(len(samples), WIDTH, requires_grad=True)
    log_likelihoods(head, samples, delta).sum().backward()
    torch.testing.assert_close(found.continuation, delta.grad, rtol=0, atol=1e-5)
    expected = torch.zeros(WIDTH, WIDTH)
    for state in samples.states:

        def negative(x, state=state):
            return head(state + x).logsumexp(-1)

        expected += torch.autograd.functional.hessian(negative, torch.zeros(WIDTH))
    torch.testing.assert_close(
        found.curvature.float(), expected / len(samples), rtol=1e-4, atol=1e-5
    )


def test_the_line_search_has_the_exact_derivatives(head, samples):
    torch.manual_seed(2)
    bias, offsets = torch.randn(WIDTH), torch.randn(len(samples), WIDTH)

    def value(scales):
        delta = scales[0] * bias + scales[1] * offsets
        return log_likelihoods(head, samples, delta).double().mean()

    scales = torch.tensor([0.2, -0.1], dtype=torch.float64, requires_grad=True)
    here = local(head, samples, bias, offsets, scales.detach())
    slope = torch.autograd.grad(value(scales), scales)[0]
    hessian = torch.autograd.functional.hessian(value, scales.detach())
    assert here.value == pytest.approx(float(value(scales).detach()), abs=1e-5)
    torch.testing.assert_close(here.gradient, slope, rtol=0, atol=1e-5)
    torch.testing.assert_close(here.curvature, -hessian, rtol=1e-3, atol=1e-4)


def test_a_fit_needs_several_documents_and_a_plain_head(head, samples):
    one = samples.of(np.arange(30) == 3)
    with pytest.raises(CalibrationError, match="found 10 hits in 1 documents"):
        fit_head(head, one, lambda _: None)
    with pytest.raises(CalibrationError, match="not a plain linear map: found Identity"):
        fit_head(torch.nn.Identity(), samples, lambda _: None)


def test_newton_steps_reach_the_maximum_of_the_likelihood(head, samples):
    torch.manual_seed(3)
    bias, offsets = 0.3 * torch.randn(WIDTH), 0.3 * torch.randn(len(samples), WIDTH)
    scales = torch.zeros(2, dtype=torch.float64)
    for used, free in (([True, False], 0), ([False, True], 1), ([True, True], None)):
        scales.zero_()
        for _ in range(4):
            scales += local(head, samples, bias, offsets, scales).step(used)
        left = local(head, samples, bias, offsets, scales).gradient
        assert (left if free is None else left[free]).abs().max() < 1e-6
        assert [bool(s) for s in scales] == used


def test_thinning_keeps_an_even_share(samples):
    assert len(samples.thinned(0.1)) == 30
    assert samples.thinned(0.1).documents.tolist() == list(range(30))
    assert samples.thinned(2.0) is samples
    assert len(samples.thinned(1e-9)) == 1


def test_ridge_recovers_a_linear_map_and_its_intercept():
    rng = torch.Generator().manual_seed(0)
    true, shift = torch.randn(DIM, WIDTH, generator=rng), torch.randn(WIDTH, generator=rng)
    vectors = torch.randn(500, DIM, generator=rng) + 1
    moments = Moments.of(vectors, vectors @ true + shift)
    weights = moments.solve(1e-9)
    torch.testing.assert_close(weights.float(), true, rtol=0, atol=1e-4)
    intercept = moments.mean_target - moments.mean_vector @ weights
    torch.testing.assert_close(intercept.float(), shift, rtol=0, atol=1e-4)
    assert explained(moments, weights, vectors, vectors @ true + shift) == pytest.approx(1)
    assert explained(moments, -weights, vectors, vectors @ true + shift) == 0
    assert moments.solve(100.0).norm() < moments.solve(1.0).norm() < weights.norm()


# Text.


def test_text_files_become_documents(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "w3 w4", "kind": "web"}\n\n{"text": "w5"}\n{"text": "w5"}\n')
    assert {(d.kind, d.text) for d in read_text(path)} == {("web", "w3 w4"), ("text", "w5")}
    plain = tmp_path / "a.txt"
    plain.write_text("w3\n\nw4")
    assert read_text(plain) == [Document("text", "w3\n\nw4")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"txt": 1}', r"not a record with a text in .*a\.jsonl:2"),
        ("a.jsonl", b"[]", "not a record"),
        ("a.txt", b"  \n", "holds no text"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("b.txt", None, "no such text file"),
    ],
)
def test_text_that_cannot_be_read_says_why(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TextError, match=message):
        read_text(tmp_path / name)


def test_a_memory_without_held_out_text_says_so(tiny):
    with pytest.raises(TextError, match=r"no held-out text.*give --text"):
        read_held_out(tiny.path, "test")


def test_windows_keep_to_width_and_budget_and_batches_lose_nothing(tokenizer, documents):
    windows = cut(documents, tokenizer, width=50, budget=333)
    assert max(len(w.tokens) for w in windows) == 50
    for kind in ("web", "science"):
        assert 300 < sum(len(w.tokens) for w in windows if w.kind == kind) <= 333
    first = tokenizer(documents[0].text).input_ids
    joined = np.concatenate([w.tokens for w in windows if w.document == 0])
    assert joined.tolist() == first[: len(joined)]
    seen = []
    for batch in batches(windows, 120):
        assert batch.ids.numel() <= 120
        for row, mask, window in zip(batch.ids, batch.mask, batch.windows, strict=True):
            assert row[mask.bool()].tolist() == window.tokens.tolist()
            seen.append(id(window))
    assert sorted(seen) == sorted(map(id, windows))
