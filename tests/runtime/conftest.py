"""A tiny memory with random non-zero rows, tiny random models, and text full of its phrases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zstandard
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from phrasemem.backbone import backbone_fingerprint, tokenizer_fingerprint
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.shard import Entries
from phrasemem.memfmt.writer import (
    CorpusInfo,
    Header,
    PayloadSpec,
    TokenizerInfo,
    write_memory,
)
from phrasemem.runtime.adapter import Adapter, save_adapter
from phrasemem.runtime.documents import Document
from phrasemem.runtime.memory import PhraseMemory

# Tiny tensors: a second thread only waits for the first.
torch.set_num_threads(1)

VOCAB = 32
DIM = 12
WIDTH = 24
N_MAX = 4
SOURCE = "random vectors"
ARCHITECTURES = ["llama", "qwen3", "gpt2"]
POINTS = ["head", "layer:1"]


def word_tokenizer(prefix: str = "w") -> PreTrainedTokenizerFast:
    vocabulary = {"[UNK]": 0, "[PAD]": 1, "[EOS]": 2}
    vocabulary |= {f"{prefix}{i}": i for i in range(3, VOCAB)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]", eos_token="[EOS]"
    )


def tiny_model(architecture: str, seed: int = 0, layers: int = 3) -> Any:
    torch.manual_seed(seed)
    shared = {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "intermediate_size": 40,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.1,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "bos_token_id": None,
    }
    if architecture == "llama":
        return LlamaForCausalLM(LlamaConfig(**shared)).eval()
    if architecture == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**shared, head_dim=8)).eval()
    sizes = {"n_embd": WIDTH, "n_layer": layers, "n_head": 4, "vocab_size": VOCAB}
    config = GPT2Config(
        **sizes, initializer_range=0.1, pad_token_id=1, eos_token_id=2, bos_token_id=None
    )
    return GPT2LMHeadModel(config).eval()


@dataclass(frozen=True)
class Tiny:
    path: Path
    keys: list[tuple[int, ...]]

    def stitched(self, count: int, seed: int) -> list[int]:
        """Return ``count`` tokens made of the memory's phrases, so that hits are many."""
        rng = np.random.default_rng(seed)
        tokens: list[int] = []
        while len(tokens) < count:
            length = rng.integers(2, N_MAX + 1)
            keys = [key for key in self.keys if len(key) == length]
            tokens += keys[rng.integers(len(keys))]
            if rng.random() < 0.3:
                tokens.append(int(rng.integers(3, VOCAB)))
        return tokens[:count]

    def batch(self, lengths: list[int], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return left-padded ids and their mask."""
        width = max(lengths)
        ids = torch.full((len(lengths), width), 1)
        mask = torch.zeros_like(ids)
        for i, length in enumerate(lengths):
            ids[i, width - length :] = torch.tensor(self.stitched(length, seed + i))
            mask[i, width - length :] = 1
        return ids, mask


def random_keys(seed: int) -> list[tuple[int, ...]]:
    """Half of all pairs, so that generated text hits phrases too, and longer phrases.

    Some of the longer ones end in a pair that is no phrase: no suffix leads to them.
    """
    rng = np.random.default_rng(seed)
    words = range(3, VOCAB)
    keys = {(a, b) for a in words for b in words if rng.random() < 0.5}
    for length in range(3, N_MAX + 1):
        keys |= {tuple(rng.integers(3, VOCAB, length).tolist()) for _ in range(120)}
    return sorted(keys)


def write_tiny(path: Path, keys: list[tuple[int, ...]], **files: Path) -> None:
    tokens = np.zeros((len(keys), N_MAX), dtype=np.uint32)
    for i, key in enumerate(keys):
        tokens[i, : len(key)] = key
    vectors = np.random.default_rng(5).standard_normal((len(keys), DIM)).astype(np.float32)
    entries = Entries(
        lengths=np.array([len(key) for key in keys], dtype=np.uint8),
        tokens=tokens,
        records=[Record(" ".join(map(str, key)), 1.0, {"c": 2}, 2) for key in keys],
        payloads={"semantic": vectors},
    )
    header = Header(
        tokenizer=TokenizerInfo(
            fingerprint=tokenizer_fingerprint(word_tokenizer()), name="words", vocab_size=VOCAB
        ),
        n_max=N_MAX,
        payloads=[PayloadSpec("semantic", DIM, "float16", SOURCE)],
        corpora=[CorpusInfo(name="c", kind="web", licence="-", source="-", documents=1, tokens=9)],
    )
    write_memory(path, entries, header, shard_bits=1, extra_files=files)


@pytest.fixture(scope="session", name="write_tiny")
def write_tiny_fixture() -> Callable[..., None]:
    return write_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    path = tmp_path_factory.mktemp("tiny") / "memory"
    keys = random_keys(seed=1)
    write_tiny(path, keys)
    return Tiny(path, keys)


@pytest.fixture(scope="session")
def memory(tiny: Tiny) -> Iterator[PhraseMemory]:
    with PhraseMemory.open(tiny.path) as opened:
        yield opened


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer()


def random_adapter(point: str = "head", gate: Any = "none", scale: float = 0.2) -> Adapter:
    rng = np.random.default_rng(3)
    return Adapter(
        projection=rng.standard_normal((DIM, WIDTH)).astype(np.float32),
        bias=rng.standard_normal(WIDTH).astype(np.float32),
        scale=scale,
        point=point,
        gate=gate,
        source=SOURCE,
    )


@pytest.fixture
def install(tiny: Tiny) -> Callable[[Any, Adapter], Path]:
    """Save an adapter into the tiny memory for a model."""
    return lambda model, adapter: save_adapter(adapter, tiny.path, backbone_fingerprint(model))


def planted_text(tiny: Tiny, memory: PhraseMemory, rng: np.random.Generator) -> str:
    """Phrases whose next token is decided by their vector: what calibration should find."""
    directions = np.random.default_rng(77).standard_normal((DIM, VOCAB - 3))
    tokens: list[int] = []
    for _ in range(60):
        key = tiny.keys[rng.integers(len(tiny.keys))]
        vector = memory.payload.gather(memory.reader.get_many([key]))[0]
        tokens += [*key, 3 + int(np.argmax(vector @ directions))]
    return " ".join(f"w{token}" for token in tokens)


@pytest.fixture(scope="session")
def documents(tiny: Tiny, memory: PhraseMemory) -> list[Document]:
    rng = np.random.default_rng(2)
    kinds = ["web", "science"]
    return [Document(kinds[i % 2], planted_text(tiny, memory, rng)) for i in range(24)]


@pytest.fixture(scope="session")
def held_out(
    tmp_path_factory: pytest.TempPathFactory, tiny: Tiny, documents: list[Document]
) -> Path:
    """The tiny memory again, with held-out documents in it."""
    folder = tmp_path_factory.mktemp("held-out")
    lines = [
        json.dumps(
            {"id": str(i), "corpus": "c", "kind": d.kind, "text": d.text}
            | {"split": "test" if i % 3 == 0 else "calibration"}
        )
        for i, d in enumerate(documents)
    ]
    path = folder / "heldout.jsonl.zst"
    path.write_bytes(zstandard.compress("\n".join(lines).encode() + b"\n"))
    write_tiny(folder / "memory", tiny.keys, **{path.name: path})
    return folder / "memory"


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_model(request.param)


@pytest.fixture(params=POINTS)
def point(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Any]:
    return tiny_model


@pytest.fixture(scope="session")
def make_adapter() -> Callable[..., Adapter]:
    return random_adapter


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    return word_tokenizer
