from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from phrasemem.backbone import (
    BackboneError,
    backbone_fingerprint,
    decoder_blocks,
    hidden_size,
    load_model,
    load_tokenizer,
    output_head,
    tokenizer_fingerprint,
    unwrap,
)


def tiny_llama(seed: int = 0, **changes: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": 50,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **changes})).eval()


def word_tokenizer(words: str) -> PreTrainedTokenizerFast:
    vocabulary = {word: i for i, word in enumerate(words.split())}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")


def test_the_tokenizer_fingerprint_ignores_padding_and_truncation_state():
    tokenizer = word_tokenizer("[UNK] [PAD] a b")
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(["a b", "a"], padding=True, truncation=True, max_length=1)
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    assert state["padding"] is not None
    assert state["truncation"] is not None
    assert tokenizer_fingerprint(tokenizer) == before


def test_the_tokenizer_fingerprint_sees_an_added_token_and_a_changed_vocabulary():
    tokenizer = word_tokenizer("[UNK] [PAD] a b")
    prints = {tokenizer_fingerprint(tokenizer)}
    prints.add(tokenizer_fingerprint(word_tokenizer("[UNK] [PAD] b a")))
    tokenizer.add_tokens(["c"])
    prints.add(tokenizer_fingerprint(tokenizer))
    assert len(prints) == 3


def test_the_tokenizer_fingerprint_survives_a_save(tmp_path):
    tokenizer = word_tokenizer("[UNK] [PAD] a b")
    tokenizer.save_pretrained(tmp_path)
    again = load_tokenizer(str(tmp_path))
    assert tokenizer_fingerprint(again) == tokenizer_fingerprint(tokenizer)


def test_a_slow_tokenizer_has_no_fingerprint():
    with pytest.raises(BackboneError, match="only a fast tokenizer"):
        tokenizer_fingerprint(SimpleNamespace(vocab={}))


def test_the_backbone_fingerprint_is_one_for_float32_and_bfloat16():
    model = tiny_llama()
    exact = backbone_fingerprint(model)
    assert backbone_fingerprint(tiny_llama().to(torch.bfloat16)) == exact
    assert backbone_fingerprint(tiny_llama(seed=1)) != exact
    assert backbone_fingerprint(tiny_llama(num_hidden_layers=2)) != exact


def test_the_backbone_fingerprint_sees_each_parameter():
    model = tiny_llama()
    before = backbone_fingerprint(model)
    for name, parameter in model.named_parameters():
        kept = parameter.detach().clone()
        parameter.data.add_(1.0)
        assert backbone_fingerprint(model) != before, name
        parameter.data.copy_(kept)
    assert backbone_fingerprint(model) == before


def test_a_model_without_data_has_no_fingerprint():
    with pytest.raises(BackboneError, match=r"weights without data .* in lm_head\.weight"):
        backbone_fingerprint(tiny_llama().to("meta"))


def test_blocks_head_and_width_of_llama_and_gpt2():
    llama = tiny_llama()
    gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50))
    assert decoder_blocks(llama) is llama.model.layers
    assert decoder_blocks(gpt2) is gpt2.transformer.h
    assert output_head(gpt2) is gpt2.lm_head
    assert hidden_size(llama) == hidden_size(gpt2) == 16


def test_ambiguous_blocks_are_listed_and_can_be_named():
    model = tiny_llama()
    model.twin = nn.ModuleList(tiny_llama(seed=1).model.layers)
    with pytest.raises(BackboneError, match=r"model\.layers \(3\), twin \(3\)"):
        decoder_blocks(model)
    assert decoder_blocks(model, "model.layers") is model.model.layers
    with pytest.raises(BackboneError, match="no ModuleList nowhere"):
        decoder_blocks(model, "nowhere")


def test_unwrap_looks_inside_compiled_and_peft_like_wrappers():
    model = tiny_llama()
    assert unwrap(torch.compile(model)) is model
    assert unwrap(SimpleNamespace(get_base_model=lambda: model)) is model


def test_a_saved_model_loads_in_the_dtype_asked_for(tmp_path):
    model = tiny_llama()
    model.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), dtype="bfloat16")
    assert loaded.dtype == torch.bfloat16
    assert not loaded.training
    assert backbone_fingerprint(loaded) == backbone_fingerprint(model)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("./no/such/folder", "there is no such model file or folder: found ./no/such/folder"),
        ("missing.gguf", "there is no such model file or folder: found missing.gguf"),
        ("pypi:broken", "not a package reference"),
    ],
)
def test_a_model_that_is_not_there_is_one_clear_line(reference, message):
    for load in (load_model, load_tokenizer):
        with pytest.raises(Exception, match=message) as caught:
            load(reference)
        assert "\n" not in str(caught.value)


def test_a_folder_that_holds_no_model_is_one_clear_line(tmp_path):
    with pytest.raises(BackboneError, match="cannot load") as caught:
        load_model(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_an_unknown_dtype_is_refused(tmp_path):
    with pytest.raises(BackboneError, match="unknown dtype: expected auto, float32"):
        load_model(str(tmp_path), dtype="int8")
