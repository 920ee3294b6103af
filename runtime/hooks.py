"""What happens before, inside and after each forward pass of an attached model."""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.runtime.history import CacheHistories, Tokens, cache_length, new_tokens
from phrasemem.runtime.injectors.semantic import SemanticInjector
from phrasemem.runtime.matcher import Candidates, Matcher
from phrasemem.runtime.positions import positions_of, replace_hidden


class HookError(PhraseMemError):
    """A forward pass that the memory could not take part in."""


@dataclass
class Counts:
    """What was done so far; see ``AttachStats``."""

    forwards: int = 0
    positions: int = 0
    injections: int = 0
    lengths: Counter[int] = field(default_factory=Counter)


@dataclass
class _Pass:
    """One forward pass of one thread."""

    module: nn.Module
    ids: torch.Tensor | None
    cache: Any = None
    before: Tokens | None = None
    new: Tokens | None = None
    keep: Any = 0
    found: Candidates | None = None
    fired: bool = False
    nested: int = 0


class ForwardHooks:
    """The three hooks of one attachment.

    Parameters
    ----------
    matcher : Matcher
    injector : SemanticInjector
    at_head : bool
        The injection point is the output head, which ``logits_to_keep`` may let see fewer
        positions than the model.

    Notes
    -----
    The state of a pass is kept by thread: several may run the model at once.
    """

    def __init__(self, matcher: Matcher, injector: SemanticInjector, *, at_head: bool) -> None:
        self.counts = Counts()
        self.counting = threading.Lock()
        self._matcher = matcher
        self._injector = injector
        self._at_head = at_head
        self._histories = CacheHistories()
        self._parameters: dict[int, list[str]] = {}
        self._handles: list[Any] = []
        self._here = threading.local()

    def register(self, models: list[nn.Module], point: nn.Module) -> None:
        """Add hooks to a model, its wrappers first, and to the injection point in it."""
        for model in models:
            names = list(inspect.signature(model.forward).parameters)
            if "input_ids" not in names:  # a compiled model's forward only passes on
                names = list(inspect.signature(models[-1].forward).parameters)
            self._parameters[id(model)] = names
            self._handles.append(model.register_forward_pre_hook(self._begin, with_kwargs=True))
            self._handles.append(model.register_forward_hook(self._end, always_call=True))
        self._handles.append(point.register_forward_pre_hook(self._inject, with_kwargs=True))

    def remove(self) -> None:
        """Remove these hooks, and only these, and forget what lies in which cache."""
        while self._handles:
            self._handles.pop().remove()
        self._histories.forget()

    @torch.compiler.disable
    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Look the new tokens up, together with those in the KV cache."""
        given = dict(zip(self._parameters[id(module)], args, strict=False)) | kwargs
        ids = given.get("input_ids")
        running = self._running()
        # A pass that an interrupt cut short never ended: only a wrapper's call of the model
        # inside it, with the very same ids, is part of the running one.
        if running is not None and running.module is not module and running.ids is ids:
            running.nested += 1
            return
        this = self._here.running = _Pass(module, ids)
        if ids is None or given.get("inputs_embeds") is not None:
            raise HookError(
                "the memory is keyed by token ids", expected="input_ids", found="inputs_embeds"
            )
        # transformers calls the cache `cache`, older versions `past_key_values`.
        this.cache = given.get("cache", given.get("past_key_values"))
        this.before = self._histories.tokens_in(this.cache)
        this.new = new_tokens(ids, given.get("attention_mask"), cache_length(this.cache))
        this.keep = given.get("logits_to_keep", 0) if self._at_head else 0
        this.found = self._matcher.candidates(this.before, this.new)

    @torch.compiler.disable
    def _inject(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Add to the hidden states at positions where a phrase ends."""
        this = self._running()
        if this is None or this.found is None:
            raise HookError(
                "the injection point ran outside a forward pass of the attached model",
                where=type(module).__name__,
                hint="call the model itself, not its parts or its .forward",
            )
        found, keep, this.fired = this.found, this.keep, True
        return replace_hidden(args, kwargs, lambda hidden: self._changed(hidden, found, keep))

    def _changed(self, hidden: torch.Tensor, found: Candidates, keep: Any) -> torch.Tensor:
        asked = positions_of(hidden, found.rows.shape, keep)
        hits = self._matcher.fetch(found, asked)
        injected = len(hits.places) if self._injector.scale else 0
        with self.counting:
            self.counts.positions += len(asked)
            self.counts.lengths.update(hits.lengths.tolist())
            self.counts.injections += injected
        if not injected:
            return hidden
        # A copy: the state may be returned elsewhere too, unchanged.
        states = hidden.reshape(-1, hidden.shape[-1]).clone()
        vectors, which, places = (
            torch.from_numpy(array).to(hidden.device)
            for array in (hits.vectors, hits.which, hits.places)
        )
        delta = self._injector.delta(vectors, which, states[places])
        states[places] += delta.to(hidden.dtype)
        return states.reshape(hidden.shape)

    @torch.compiler.disable
    def _end(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Record the new tokens with their cache; refuse a pass without injection."""
        this = self._running()
        if this is not None and this.nested:
            this.nested -= 1
            return
        self._here.running = None
        if this is None or this.new is None or output is None:  # an exception is on its way
            return
        if not this.fired:
            raise HookError(
                "the injection point did not run in this forward pass",
                where=type(module).__name__,
                hint="its logits are those of the frozen model",
            )
        cache = this.cache if this.cache is not None else _cache_of(output)
        if cache is not None:
            self._histories.append(cache, this.before, this.new)
        with self.counting:
            self.counts.forwards += 1

    def _running(self) -> _Pass | None:
        running: _Pass | None = getattr(self._here, "running", None)
        return running


def _cache_of(output: Any) -> Any:
    """Return the KV cache that a forward pass made; asking by the old name would warn."""
    values = output if isinstance(output, tuple) else vars(output).values()
    return next((value for value in values if hasattr(value, "get_seq_length")), None)
