"""The main path: a frozen model reads a memory while it runs.

``attach`` checks that memory, tokenizer, adapter and model belong together, then hooks the
model. In each forward pass (``hooks.py``)

1. before it, the new tokens are joined with those in the KV cache and looked up in RAM;
2. at the injection point, the rows of the phrases found are fetched and proved, and what they
   say is added to the hidden states;
3. after it, the new tokens are recorded with the cache, and a pass in which the injection
   point never ran is an error.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any, Self

from torch import nn

from phrasemem.backbone import backbone_fingerprint, decoder_blocks, output_head, unwrap
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.runtime.adapter import Adapter, load_adapter
from phrasemem.runtime.compatibility import check_adapter, check_tokenizer
from phrasemem.runtime.hooks import ForwardHooks
from phrasemem.runtime.injectors.semantic import SemanticInjector
from phrasemem.runtime.matcher import Matcher
from phrasemem.runtime.memory import PhraseMemory
from phrasemem.runtime.tiers import TierStats

_attached: weakref.WeakKeyDictionary[nn.Module, Attachment] = weakref.WeakKeyDictionary()
_attaching = threading.Lock()


class AttachError(PhraseMemError):
    """A model that cannot be attached to a memory."""


@dataclass(frozen=True)
class AttachStats:
    """What an attachment did: proof that it fired.

    Parameters
    ----------
    forwards : int
        Forward passes that ended without an error.
    positions : int
        Positions that reached the injection point.
    hits : int
        Those at which a phrase of the memory ends.
    hits_by_length : dict of int to int
    injections : int
        Hits at which the scale was not zero.
    tier : TierStats
    """

    forwards: int
    positions: int
    hits: int
    hits_by_length: dict[int, int]
    injections: int
    tier: TierStats


def attach(
    model: nn.Module,
    memory: PhraseMemory,
    *,
    tokenizer: Any = None,
    adapter: Adapter | None = None,
    scale: float | None = None,
    shuffle_seed: int | None = None,
) -> Attachment:
    """Let a model read a memory, until ``detach`` or the end of a ``with`` block.

    Parameters
    ----------
    model : nn.Module
        Any Hugging Face causal LM whose head, or decoder blocks, can be found.
    memory : PhraseMemory
    tokenizer : optional
        The model's. Without it the one at ``model.name_or_path`` is loaded and checked.
    adapter : Adapter, optional
        In place of the memory's own for this backbone.
    scale : float, optional
        In place of the adapter's.
    shuffle_seed : int, optional
        Gives every phrase the vector of another: the control.

    Returns
    -------
    Attachment

    Raises
    ------
    AttachError
        If the model is attached already or has no such decoder block.
    MismatchError
        If tokenizer, adapter and model were not made for this memory.
    AdapterError
        If the memory has no sound adapter for this backbone.
    """
    inner = unwrap(model)
    check_tokenizer(inner, memory, tokenizer)
    if adapter is None:
        adapter = load_adapter(memory.path, backbone_fingerprint(inner))
    head = output_head(inner)
    check_adapter(adapter, memory, inner, head)
    layer = adapter.layer
    point = head if layer is None else _block(inner, layer)
    matcher = Matcher(memory.reader, memory.payload, memory.tier, shuffle_seed)
    device = next(point.parameters()).device
    injector = SemanticInjector(adapter, adapter.scale if scale is None else scale, device)
    hooks = ForwardHooks(matcher, injector, at_head=layer is None)
    with _attaching:
        if inner in _attached:
            raise AttachError("this model reads a memory already", hint="detach it first")
        # A PEFT wrapper may call the inner model past its hooks, or not be called itself
        # (generate): both are hooked, and whichever runs first begins the pass.
        hooks.register([model] if model is inner else [model, inner], point)
        attachment = _attached[inner] = Attachment(inner, memory, hooks)
    return attachment


class Attachment:
    """A model that reads a memory; made by :func:`attach`. A context manager.

    Notes
    -----
    Several threads may run the model at once, each with its own KV cache.
    """

    def __init__(self, model: nn.Module, memory: PhraseMemory, hooks: ForwardHooks) -> None:
        self.memory = memory
        self._model = weakref.ref(model)
        self._hooks = hooks

    def detach(self) -> None:
        """Remove this attachment's hooks, and only those; a second call does nothing."""
        with _attaching:
            self._hooks.remove()
            model = self._model()
            if model is not None and _attached.get(model) is self:
                del _attached[model]

    def stats(self) -> AttachStats:
        """Return the counters since attaching."""
        with self._hooks.counting:
            counts = self._hooks.counts
            lengths = dict(sorted(counts.lengths.items()))
            return AttachStats(
                forwards=counts.forwards,
                positions=counts.positions,
                hits=sum(lengths.values()),
                hits_by_length=lengths,
                injections=counts.injections,
                tier=self.memory.tier_stats(),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()


def _block(model: nn.Module, layer: int) -> nn.Module:
    blocks = decoder_blocks(model)
    if layer >= len(blocks):
        raise AttachError(
            "no such decoder block", expected=f"layer:0..{len(blocks) - 1}", found=f"layer:{layer}"
        )
    return blocks[layer]
