"""What attach refuses, what it changes, and that it leaves no trace."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import DynamicCache

from phrasemem.backbone import tokenizer_fingerprint
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.payloads import add_payload
from phrasemem.memfmt.sparse import Successors
from phrasemem.memfmt.writer import PayloadSpec
from phrasemem.runtime.adapter import AdapterError
from phrasemem.runtime.attach import AttachError, attach
from phrasemem.runtime.compatibility import MismatchError
from phrasemem.runtime.history import HistoryError
from phrasemem.runtime.hooks import HookError
from phrasemem.runtime.memory import PhraseMemory
from phrasemem.runtime.positions import ShapeError


@pytest.fixture
def llama(make_model):
    return make_model("llama")


@pytest.fixture
def ids(tiny):
    return tiny.batch([30], seed=41)[0]


def run(model, ids, **kwargs):
    with torch.no_grad():
        return model(ids, **kwargs)


def hook_count(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_detach_restores_the_logits_bitwise_and_removes_only_its_own_hooks(
    model, memory, tokenizer, make_adapter, point, ids
):
    foreign = model.register_forward_hook(lambda *_: None)
    before, hooks = run(model, ids).logits, hook_count(model)
    handle = attach(model, memory, tokenizer=tokenizer, adapter=make_adapter(point))
    assert hook_count(model) == hooks + 3
    assert not torch.equal(run(model, ids).logits, before)
    handle.detach()
    handle.detach()
    assert hook_count(model) == hooks
    assert foreign.id in model._forward_hooks
    assert torch.equal(run(model, ids).logits, before)


def test_an_exception_inside_the_context_restores_the_logits_bitwise(
    model, memory, tokenizer, make_adapter, point, ids
):
    before = run(model, ids).logits
    with (
        pytest.raises(IndexError),
        attach(model, memory, tokenizer=tokenizer, adapter=make_adapter(point)),
    ):
        run(model, ids + 1000)
    assert torch.equal(run(model, ids).logits, before)


def test_the_injection_at_the_head_is_the_formula_at_hits_and_zero_elsewhere(
    memory, tokenizer, make_adapter, llama, ids
):
    adapter = make_adapter("head")
    frozen = run(llama, ids, output_hidden_states=True)
    seen = []
    with attach(llama, memory, tokenizer=tokenizer, adapter=adapter) as handle:
        spy = llama.lm_head.register_forward_hook(lambda _m, args, _o: seen.append(args[0]))
        attached = run(llama, ids, output_hidden_states=True)
        spy.remove()
        hits = handle.stats().hits
    match = memory.reader.longest_match(ids.numpy())
    hit = match.rows[0] >= 0
    vectors = memory.payload.gather(match.rows[0][hit])
    expected = adapter.scale * (vectors @ adapter.projection + adapter.bias)
    difference = (seen[0] - frozen.hidden_states[-1])[0].numpy()
    assert hits == hit.sum() > 5
    np.testing.assert_allclose(difference[hit], expected, rtol=0, atol=1e-5)
    assert not difference[~hit].any()
    for one, other in zip(frozen.hidden_states, attached.hidden_states, strict=True):
        assert torch.equal(one, other)


def test_the_injection_at_a_layer_leaves_the_layers_before_it_bitwise_equal(
    memory, tokenizer, make_adapter, llama, ids
):
    frozen = run(llama, ids, output_hidden_states=True).hidden_states
    adapter = make_adapter("layer:1")
    with attach(llama, memory, tokenizer=tokenizer, adapter=adapter):
        attached = run(llama, ids, output_hidden_states=True).hidden_states
    assert torch.equal(attached[0], frozen[0])
    assert not torch.equal(attached[2], frozen[2])


def test_the_relu_cos_gate_closes_where_the_value_points_away(
    memory, tokenizer, make_adapter, llama, ids
):
    seen = []
    frozen = run(llama, ids, output_hidden_states=True).hidden_states[-1][0].numpy()
    adapter = make_adapter("head", "relu-cos")
    with attach(llama, memory, tokenizer=tokenizer, adapter=adapter):
        llama.lm_head.register_forward_hook(lambda _m, args, _o: seen.append(args[0]))
        run(llama, ids)
    rows = memory.reader.longest_match(ids.numpy()).rows[0]
    hit = rows >= 0
    values = memory.payload.gather(rows[hit]) @ adapter.projection + adapter.bias
    norms = np.linalg.norm(values, axis=1) * np.linalg.norm(frozen[hit], axis=1)
    cosine = (values * frozen[hit]).sum(1) / norms
    expected = adapter.scale * np.maximum(cosine, 0)[:, None] * values
    assert (cosine < 0).any()
    np.testing.assert_allclose(seen[0][0].numpy()[hit] - frozen[hit], expected, atol=1e-5)


def test_the_shuffled_control_hits_the_same_positions_with_other_vectors(
    memory, tokenizer, make_adapter, llama, ids
):
    logits, stats = {}, {}
    for seed in (None, 1, 1, 2):
        with attach(
            llama, memory, tokenizer=tokenizer, adapter=make_adapter(), shuffle_seed=seed
        ) as handle:
            again = logits.get(seed)
            logits[seed] = run(llama, ids).logits
            stats[seed] = handle.stats()
        assert again is None or torch.equal(again, logits[seed])
    assert not torch.equal(logits[None], logits[1])
    assert not torch.equal(logits[1], logits[2])
    assert stats[None].hits_by_length == stats[1].hits_by_length == stats[2].hits_by_length


def test_scale_zero_counts_hits_and_changes_nothing(memory, tokenizer, make_adapter, llama, ids):
    before = run(llama, ids).logits
    adapter = make_adapter()
    with attach(llama, memory, tokenizer=tokenizer, adapter=adapter, scale=0.0) as handle:
        assert torch.equal(run(llama, ids).logits, before)
        assert handle.stats().hits > 0
        assert handle.stats().injections == 0


def test_no_budget_gives_the_logits_of_a_large_budget(tiny, tokenizer, make_adapter, llama, ids):
    logits = []
    for budget in (0, 3000, 1 << 20):
        with (
            PhraseMemory.open(tiny.path, dram_bytes=budget) as opened,
            attach(llama, opened, tokenizer=tokenizer, adapter=make_adapter()) as handle,
        ):
            for _ in range(3):
                logits.append(run(llama, ids).logits)
            stats = handle.stats().tier
            assert stats.bytes <= budget
            assert (stats.hits > 0) == (budget > 0)
    assert all(torch.equal(other, logits[0]) for other in logits)


def test_another_tokenizer_is_refused_with_both_fingerprints(
    memory, tokenizer, make_tokenizer, make_adapter, llama
):
    other = make_tokenizer(prefix="x")
    with pytest.raises(MismatchError, match="another tokenizer") as caught:
        attach(llama, memory, tokenizer=other, adapter=make_adapter())
    assert tokenizer_fingerprint(tokenizer) in str(caught.value)
    assert tokenizer_fingerprint(other) in str(caught.value)
    assert hook_count(llama) == 0


def test_without_a_tokenizer_the_models_own_is_loaded_and_checked(
    memory, tokenizer, make_tokenizer, make_adapter, llama, tmp_path
):
    with pytest.raises(MismatchError, match="does not say which tokenizer"):
        attach(llama, memory, adapter=make_adapter())
    llama.name_or_path = str(tmp_path / "none")
    with pytest.raises(MismatchError, match=r"cannot be checked.*pass tokenizer="):
        attach(llama, memory, adapter=make_adapter())
    llama.name_or_path = str(tmp_path)
    make_tokenizer(prefix="x").save_pretrained(tmp_path)
    with pytest.raises(MismatchError, match="another tokenizer"):
        attach(llama, memory, adapter=make_adapter())
    tokenizer.save_pretrained(tmp_path)
    attach(llama, memory, adapter=make_adapter()).detach()


def test_the_adapter_is_found_by_the_backbones_fingerprint(
    memory, tokenizer, make_model, make_adapter, install, llama, ids
):
    with pytest.raises(AdapterError, match=r"no adapter for this backbone.*phrasemem calibrate"):
        attach(make_model("llama", seed=5), memory, tokenizer=tokenizer)
    install(llama, make_adapter("layer:2"))
    with attach(llama, memory, tokenizer=tokenizer):
        found = run(llama, ids).logits
    with attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter("layer:2")):
        assert torch.equal(run(llama, ids).logits, found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"projection": np.ones((12, 8), np.float32), "bias": np.ones(8, np.float32)}, "widths"),
        ({"projection": np.ones((9, 24), np.float32)}, "widths"),
        ({"source": "another encoder"}, "fitted to other vectors: expected semantic of random"),
        ({"payload": "other"}, "fitted to other vectors"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(
    memory, tokenizer, make_adapter, llama, change, message
):
    from dataclasses import replace

    with pytest.raises(MismatchError, match=message):
        attach(llama, memory, tokenizer=tokenizer, adapter=replace(make_adapter(), **change))
    assert hook_count(llama) == 0


def test_a_block_that_is_not_there_is_refused(memory, tokenizer, make_adapter, llama):
    with pytest.raises(AttachError, match=r"expected layer:0\.\.2, found layer:3"):
        attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter("layer:3"))


def test_a_second_attachment_is_refused_until_the_first_is_detached(
    memory, tokenizer, make_adapter, llama
):
    first = attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter())
    hooks = hook_count(llama)
    with pytest.raises(AttachError, match="reads a memory already"):
        attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter())
    assert hook_count(llama) == hooks
    first.detach()
    second = attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter())
    first.detach()
    with pytest.raises(AttachError, match="reads a memory already"):
        attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter())
    second.detach()


def test_embeddings_without_ids_are_refused(memory, tokenizer, make_adapter, llama, ids):
    embeds = llama.get_input_embeddings()(ids)
    with (
        attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter()),
        pytest.raises(HookError, match="expected input_ids, found inputs_embeds"),
    ):
        llama(inputs_embeds=embeds)


def test_a_cache_filled_before_attaching_is_refused(memory, tokenizer, make_adapter, llama, ids):
    cache = DynamicCache(config=llama.config)
    run(llama, ids[:, :10], cache=cache, use_cache=True)
    with (
        attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter()),
        pytest.raises(HistoryError, match="expected a history of 10 tokens, found 0"),
    ):
        run(llama, ids[:, 10:], cache=cache)


def test_a_cache_filled_while_detached_is_refused(memory, tokenizer, make_adapter, llama, ids):
    cache = DynamicCache(config=llama.config)
    with attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter()):
        run(llama, ids[:, :10], cache=cache, use_cache=True)
    assert "reorder_cache" not in vars(cache)
    with attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter()):
        with pytest.raises(HistoryError, match="did not see"):
            run(llama, ids[:, 10:], cache=cache)
        cache.reset()


def test_a_mask_that_hides_padding_is_refused(memory, tokenizer, make_adapter, llama, ids):
    with (
        attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter()),
        pytest.raises(HistoryError, match=r"expected \(B, 30\) or \(B, 1, 30, keys\)"),
    ):
        run(llama, ids, attention_mask=torch.ones(1, 7))


class _Detour(nn.Module):
    """A model that does not always run its head."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.detour, self.config = inner, False, inner.config

    def get_output_embeddings(self):
        return self.inner.lm_head

    def forward(self, input_ids):
        hidden = self.inner.model(input_ids).last_hidden_state
        if self.detour == "cut":
            hidden = hidden[:, 3:]
        head = self.inner.lm_head
        logits = hidden @ head.weight.T if self.detour == "skip" else head(hidden)
        return SimpleNamespace(logits=logits)


@pytest.mark.parametrize(
    ("detour", "error", "message"),
    [
        ("skip", HookError, "did not run in this forward pass"),
        ("cut", ShapeError, r"expected \(1, 30\), found \(1, 27\)"),
    ],
)
def test_a_pass_without_injection_is_an_error(
    memory, tokenizer, make_adapter, llama, ids, detour, error, message
):
    model = _Detour(llama)
    with attach(model, memory, tokenizer=tokenizer, adapter=make_adapter()) as handle:
        run(model, ids)
        model.detour = detour
        with pytest.raises(error, match=message):
            run(model, ids)
        model.detour = False
        run(model, ids)
        assert handle.stats().forwards == 2


def test_the_head_alone_is_refused(memory, tokenizer, make_adapter, llama):
    with (
        attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter()),
        pytest.raises(HookError, match="ran outside a forward pass"),
    ):
        llama.lm_head(torch.zeros(1, 1, 24))


class _Wrapper(nn.Module):
    """Like PEFT: its forward may pass the inner model's hooks by."""

    def __init__(self, inner, *, through_forward):
        super().__init__()
        self.inner, self.through_forward = inner, through_forward

    def get_base_model(self):
        return self.inner

    def forward(self, input_ids):
        call = self.inner.forward if self.through_forward else self.inner
        return call(input_ids=input_ids)


@pytest.mark.parametrize("through_forward", [True, False])
def test_a_wrapped_model_reads_once_each_pass(
    memory, tokenizer, make_adapter, llama, ids, through_forward
):
    with attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter()) as handle:
        expected = run(llama, ids).logits
        injections = handle.stats().injections
    wrapper = _Wrapper(llama, through_forward=through_forward)
    with attach(wrapper, memory, tokenizer=tokenizer, adapter=make_adapter()) as handle:
        assert torch.equal(run(wrapper, ids).logits, expected)
        assert handle.stats().injections == injections
        assert torch.equal(run(llama, ids).logits, expected)
        assert handle.stats().forwards == 2


def test_an_interrupt_in_one_pass_does_not_disturb_the_next(
    memory, tokenizer, make_adapter, llama, ids
):
    def interrupt(*_):
        raise KeyboardInterrupt

    with attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter()):
        expected = run(llama, ids).logits
        hook = llama.model.norm.register_forward_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(llama, ids.flip(1))
        hook.remove()
        assert torch.equal(run(llama, ids).logits, expected)


def test_one_memory_serves_models_in_threads(memory, tokenizer, make_model, make_adapter, ids):
    models = [make_model(name) for name in ("llama", "qwen3", "gpt2")]
    expected, found = [], [None] * 3
    for model in models:
        with attach(model, memory, tokenizer=tokenizer, adapter=make_adapter()):
            expected.append(run(model, ids).logits)

    def work(i):
        with attach(models[i], memory, tokenizer=tokenizer, adapter=make_adapter()):
            found[i] = run(models[i], ids).logits

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_a_compiled_model_reads_too(memory, tokenizer, make_adapter, llama, ids):
    with attach(llama, memory, tokenizer=tokenizer, adapter=make_adapter()):
        expected = run(llama, ids).logits
    compiled = torch.compile(llama, backend="eager")
    with attach(compiled, memory, tokenizer=tokenizer, adapter=make_adapter()) as handle:
        torch.testing.assert_close(run(compiled, ids).logits, expected, rtol=0, atol=1e-5)
        assert handle.stats().injections > 0


def test_half_precision_adds_in_the_hidden_dtype(memory, tokenizer, make_adapter, llama, ids):
    model = llama.to(torch.bfloat16)
    seen = []
    frozen = run(model, ids, output_hidden_states=True).hidden_states[-1]
    adapter = make_adapter()
    with attach(model, memory, tokenizer=tokenizer, adapter=adapter):
        model.lm_head.register_forward_hook(lambda _m, args, _o: seen.append(args[0]))
        run(model, ids)
    rows = memory.reader.longest_match(ids.numpy()).rows[0]
    hit = np.flatnonzero(rows >= 0)
    values = memory.payload.gather(rows[hit]) @ adapter.projection + adapter.bias
    delta = torch.from_numpy(adapter.scale * values).to(torch.bfloat16)
    assert seen[0].dtype == torch.bfloat16
    torch.testing.assert_close(seen[0][0, hit], frozen[0, hit] + delta, rtol=0, atol=0.02)


def test_successors_cannot_be_injected_and_that_is_one_clear_error(tiny, tmp_path):
    path = Path(shutil.copytree(tiny.path, tmp_path / "memory"))

    def nothing(_: int, lengths: np.ndarray, tokens: np.ndarray) -> Successors:
        zeros = np.zeros((len(lengths), 2), np.float32)
        return Successors(zeros.astype(np.uint32), zeros, zeros, np.zeros(len(lengths), np.uint8))

    add_payload(path, PayloadSpec("next", 2, kind="sparse"), nothing)
    add_payload(path, PayloadSpec("more", 3), lambda _, n, tokens: np.ones((len(n), 3), "f4"))
    with pytest.raises(PhraseMemError, match="expected a dense payload, found 'next', which is"):
        PhraseMemory.open(path, payload="next")
    with PhraseMemory.open(path, payload="more") as opened:
        assert opened.payload.gather(np.arange(2)).tolist() == [[1, 1, 1]] * 2
