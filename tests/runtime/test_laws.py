"""With memory attached, cached decoding gives the logits of one full forward pass."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import DynamicCache, StaticCache

from phrasemem.runtime.attach import attach

EXACT = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(params=["none", "relu-cos"])
def gate(request):
    return request.param


@pytest.fixture
def attached(model, memory, tokenizer, make_adapter, point, gate):
    """The model with memory; afterwards, proof that phrases were hit and injected."""
    with attach(model, memory, tokenizer=tokenizer, adapter=make_adapter(point, gate)) as handle:
        yield model
        stats = handle.stats()
        assert stats.injections > 0
        assert stats.hits == stats.injections
        assert set(stats.hits_by_length) >= {2, 3, 4}


def logits(model, ids, mask=None, **kwargs):
    """Logits at real positions; position ids count real tokens, as in generate."""
    mask = torch.ones_like(ids) if mask is None else mask
    position_ids = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask, position_ids=position_ids, **kwargs)


def in_chunks(model, ids, mask, sizes, cache):
    parts, begin = [], 0
    for size in sizes:
        end = begin + size
        output = logits(model, ids[:, begin:end], mask[:, :end], cache=cache, use_cache=True)
        parts.append(output.logits)
        begin = end
    assert begin == ids.shape[1]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("lengths", [[40], [40, 17, 33]])
def test_token_by_token_and_chunked_prefill_equal_one_full_pass(attached, tiny, lengths):
    ids, mask = tiny.batch(lengths, seed=7)
    full = logits(attached, ids, mask, use_cache=False).logits
    real = mask.bool()
    for sizes in ([1] * 40, [13, 2, 1, 1, 20, 3], [39, 1], [40]):
        cached = in_chunks(attached, ids, mask, sizes, DynamicCache(config=attached.config))
        torch.testing.assert_close(cached[real], full[real], **EXACT)


def test_memory_changes_the_logits_and_only_where_phrases_can_reach(
    model, memory, tokenizer, tiny, make_adapter, point
):
    ids, _ = tiny.batch([40], seed=7)
    frozen = logits(model, ids).logits
    with attach(model, memory, tokenizer=tokenizer, adapter=make_adapter(point)):
        changed = logits(model, ids).logits
    first = int((memory.reader.longest_match(ids.numpy()).rows[0] >= 0).argmax())
    assert first > 0
    assert torch.equal(changed[:, :first], frozen[:, :first])
    assert (changed[:, first] - frozen[:, first]).abs().max() > 1e-2


def test_a_cache_that_the_model_makes_itself_keeps_the_history(attached, tiny):
    ids, mask = tiny.batch([30], seed=11)
    full = logits(attached, ids).logits
    first = logits(attached, ids[:, :18], use_cache=True)
    rest = logits(attached, ids[:, 18:], mask, cache=first.cache)
    torch.testing.assert_close(rest.logits, full[:, 18:], **EXACT)


def test_rollback_forgets_the_tokens_that_were_cropped(attached, tiny):
    ids, mask = tiny.batch([30], seed=12)
    other, _ = tiny.batch([30], seed=99)
    full = logits(attached, ids).logits
    cache = DynamicCache(config=attached.config)
    logits(attached, torch.cat([ids[:, :20], other[:, :6]], 1), cache=cache, use_cache=True)
    cache.crop(-6)
    rest = logits(attached, ids[:, 20:], mask, cache=cache)
    torch.testing.assert_close(rest.logits, full[:, 20:], **EXACT)


def test_a_reset_cache_begins_a_new_history(attached, tiny):
    ids, mask = tiny.batch([24], seed=13)
    other, _ = tiny.batch([24], seed=98)
    full = logits(attached, ids).logits
    cache = StaticCache(config=attached.config, max_cache_len=24)
    logits(attached, other, cache=cache, use_cache=True)
    cache.reset()
    again = in_chunks(attached, ids, mask, [10, 14], cache)
    torch.testing.assert_close(again, full, **EXACT)


def test_a_copied_cache_carries_its_own_history(attached, tiny):
    ids, mask = tiny.batch([30, 30], seed=14)
    other, _ = tiny.batch([30, 30], seed=97)
    prompt = DynamicCache(config=attached.config)
    logits(attached, ids[:, :15], cache=prompt, use_cache=True)
    for tail in (ids, other):
        tokens = torch.cat([ids[:, :15], tail[:, 15:]], 1)
        copied = copy.deepcopy(prompt)
        copied.reorder_cache(torch.tensor([1, 0]))
        rest = logits(attached, tokens.flip(0)[:, 15:], mask, cache=copied)
        full = logits(attached, tokens.flip(0)).logits
        torch.testing.assert_close(rest.logits, full[:, 15:], **EXACT)


def test_phrases_never_begin_in_padding(attached, tiny):
    text = tiny.batch([24], seed=17)[0]
    # What stands under the mask would complete phrases at the first real tokens.
    padding = torch.tensor([[key[0] for key in tiny.keys if key[1] == text[0, 0]]])
    ids = torch.cat([padding, text], 1)
    mask = torch.cat([torch.zeros_like(padding), torch.ones_like(text)], 1)
    alone = logits(attached, text).logits
    for cache in (DynamicCache(config=attached.config), StaticCache(attached.config, 60)):
        padded = logits(attached, ids, mask, cache=cache, use_cache=True).logits
        torch.testing.assert_close(padded[:, padding.shape[1] :], alone, **EXACT)


@pytest.mark.parametrize("operation", ["reorder_cache", "repeat", "select"])
def test_histories_follow_the_rows_of_the_cache(attached, tiny, operation):
    ids, mask = tiny.batch([30, 30, 30], seed=15)
    cache = DynamicCache(config=attached.config)
    logits(attached, ids[:, :20], cache=cache, use_cache=True)
    if operation == "repeat":
        order = torch.tensor([0, 0, 1, 1, 2, 2])
        cache.batch_repeat_interleave(2)
    elif operation == "select":
        order = torch.tensor([2, 0])
        cache.batch_select_indices(order)
    else:
        order = torch.tensor([2, 2, 0])
        cache.reorder_cache(order)
    ids, mask = ids[order], mask[order]
    rest = logits(attached, ids[:, 20:], mask, cache=cache).logits
    torch.testing.assert_close(rest, logits(attached, ids).logits[:, 20:], **EXACT)


@pytest.mark.parametrize("keep", [1, 5, 0, torch.tensor([3, 8, 9]), torch.tensor([[4], [7]])])
def test_logits_to_keep_gives_the_same_logits_at_the_positions_kept(attached, tiny, keep):
    ids, mask = tiny.batch([30, 22], seed=16)
    full = logits(attached, ids, mask).logits
    kept = logits(attached, ids, mask, logits_to_keep=keep).logits
    if isinstance(keep, int):
        expected = full[:, -keep:]
    elif keep.ndim == 1:
        expected = full[:, keep]
    else:
        expected = full.take_along_dim(keep[..., None], 1)
    torch.testing.assert_close(kept, expected, **EXACT)


def test_a_boolean_logits_to_keep_flattens(attached, tiny):
    ids, mask = tiny.batch([30, 22], seed=16)
    kept = logits(attached, ids, mask, logits_to_keep=mask.bool()).logits
    torch.testing.assert_close(kept, logits(attached, ids, mask).logits[mask.bool()], **EXACT)
