"""Refusals: a tokenizer, adapter or model that does not belong to the memory."""

from __future__ import annotations

from typing import Any

from torch import nn

from phrasemem.backbone import BackboneError, hidden_size, load_tokenizer, tokenizer_fingerprint
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.runtime.adapter import Adapter
from phrasemem.runtime.memory import PhraseMemory


class MismatchError(PhraseMemError):
    """Two parts that were not made for each other."""


def check_tokenizer(model: Any, memory: PhraseMemory, tokenizer: Any = None) -> None:
    """Refuse a model whose tokenizer did not make the memory's keys.

    Raises
    ------
    MismatchError
        With both fingerprints, or if the model's tokenizer cannot be known.
    """
    if tokenizer is None:
        tokenizer = _tokenizer_of(model)
    info = memory.manifest.tokenizer
    found = tokenizer_fingerprint(tokenizer)
    if found != info.fingerprint:
        raise MismatchError(
            "the memory was made with another tokenizer",
            expected=f"{info.fingerprint} ({info.name})",
            found=f"{found} ({getattr(tokenizer, 'name_or_path', None) or 'unnamed'})",
            hint="build a memory for this tokenizer",
        )


def _tokenizer_of(model: Any) -> Any:
    name = getattr(model, "name_or_path", "")
    hint = "pass tokenizer="
    if not name:
        raise MismatchError("the model does not say which tokenizer it uses", hint=hint)
    try:
        return load_tokenizer(name)
    except BackboneError as error:
        raise MismatchError(
            f"the model's tokenizer cannot be checked: {error}", hint=hint
        ) from error


def check_adapter(adapter: Adapter, memory: PhraseMemory, model: nn.Module, head: Any) -> None:
    """Refuse an adapter for another payload, another encoder, or another width.

    Raises
    ------
    MismatchError
    """
    hint = "calibrate again: phrasemem calibrate"
    info = memory.payload.info
    if (adapter.payload, adapter.source) != (info.name, info.source):
        raise MismatchError(
            "the adapter was fitted to other vectors",
            expected=f"{info.name} of {info.source}",
            found=f"{adapter.payload} of {adapter.source}",
            hint=hint,
        )
    # The head's width can differ from the hidden size (OPT).
    width = head.weight.shape[-1] if adapter.layer is None else hidden_size(model)
    if adapter.projection.shape != (memory.payload.dim, width):
        raise MismatchError(
            "the adapter has other widths than memory and model",
            expected=(memory.payload.dim, width),
            found=adapter.projection.shape,
            hint=hint,
        )
