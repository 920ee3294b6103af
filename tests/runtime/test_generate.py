"""``generate`` with memory agrees with full forward passes over what it generated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from phrasemem.runtime.attach import attach

NEW = 14


@pytest.fixture
def attached(model, memory, tokenizer, make_adapter, point):
    with attach(model, memory, tokenizer=tokenizer, adapter=make_adapter(point)) as handle:
        yield model
        assert handle.stats().injections > 0


def generate(model, ids, mask, **kwargs):
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False} | kwargs
    return model.generate(
        ids, attention_mask=mask, return_dict_in_generate=True, output_logits=True, **options
    )


def full_logits(model, sequences, mask):
    mask = torch.cat([mask, mask.new_ones(len(mask), sequences.shape[1] - mask.shape[1])], 1)
    position_ids = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        output = model(input_ids=sequences, attention_mask=mask, position_ids=position_ids)
    return output.logits


@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}, {"use_cache": False}])
def test_greedy_logits_equal_those_of_a_full_pass(attached, tiny, options):
    ids, mask = tiny.batch([20, 9, 15], seed=21)
    out = generate(attached, ids, mask, **options)
    full = full_logits(attached, out.sequences, mask)
    raw = torch.stack(out.logits, 1)
    torch.testing.assert_close(raw, full[:, 19:-1], rtol=0, atol=1e-5)


def test_chunked_prefill_generates_the_same(attached, tiny):
    ids, mask = tiny.batch([20, 20], seed=22)
    whole = generate(attached, ids, mask)
    chunked = generate(attached, ids, mask, prefill_chunk_size=6)
    assert torch.equal(whole.sequences, chunked.sequences)


def test_sampling_draws_from_the_logits_of_a_full_pass(attached, tiny):
    ids, mask = tiny.batch([20, 11], seed=23)
    torch.manual_seed(4)
    out = generate(attached, ids, mask, do_sample=True, num_return_sequences=2)
    full = full_logits(attached, out.sequences, mask.repeat_interleave(2, 0))
    torch.testing.assert_close(torch.stack(out.logits, 1), full[:, 19:-1], rtol=0, atol=1e-5)


def test_beam_scores_equal_those_of_full_passes(attached, tiny):
    ids, mask = tiny.batch([20, 13], seed=24)
    out = generate(
        attached, ids, mask, num_beams=4, num_return_sequences=4, output_scores=True,
        length_penalty=0.0,
    )  # fmt: skip
    full = full_logits(attached, out.sequences, mask.repeat_interleave(4, 0)).log_softmax(-1)
    new = out.sequences[:, 20:]
    steps = full[:, 19:-1].gather(2, new[..., None])[..., 0]
    torch.testing.assert_close(out.sequences_scores, steps.sum(1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("attach_assistant", [True, False])
def test_assisted_decoding_generates_what_greedy_decoding_does(
    attached, memory, tokenizer, tiny, make_model, make_adapter, attach_assistant
):
    ids, mask = tiny.batch([20], seed=25)
    greedy = generate(attached, ids, mask)
    assistant = make_model("llama", seed=9, layers=1)
    if attach_assistant:
        with attach(assistant, memory, tokenizer=tokenizer, adapter=make_adapter()):
            assisted = generate(attached, ids, mask, assistant_model=assistant)
    else:
        assisted = generate(attached, ids, mask, assistant_model=assistant)
    assert torch.equal(assisted.sequences, greedy.sequences)


def test_prompt_lookup_decoding_generates_what_greedy_decoding_does(attached, tiny):
    ids, mask = tiny.batch([40], seed=26)
    greedy = generate(attached, ids, mask)
    lookup = generate(attached, ids, mask, prompt_lookup_num_tokens=4)
    assert torch.equal(lookup.sequences, greedy.sequences)


def test_threads_generate_what_one_thread_does(attached, tiny):
    prompts = [tiny.batch([20, 12 + i], seed=30 + i) for i in range(6)]
    alone = [generate(attached, *prompt).sequences for prompt in prompts]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda p: generate(attached, *p).sequences, prompts))
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}])
def test_a_sliding_window_model_keeps_the_history_beyond_its_window(
    memory, tokenizer, tiny, make_adapter, options
):
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=32, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.1, sliding_window=8,
        pad_token_id=1, eos_token_id=2, bos_token_id=None,
    )  # fmt: skip
    model = MistralForCausalLM(config).eval()
    ids, mask = tiny.batch([6, 4], seed=27)
    with attach(model, memory, tokenizer=tokenizer, adapter=make_adapter()) as handle:
        out = generate(model, ids, mask, **options)
        full = full_logits(model, out.sequences, mask)
        assert handle.stats().injections > 0
    torch.testing.assert_close(torch.stack(out.logits, 1), full[:, 5:-1], rtol=0, atol=1e-5)
