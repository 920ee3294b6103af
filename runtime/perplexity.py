"""How well a model predicts windows of text, whatever is attached to it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from phrasemem.runtime.documents import Window, batches

BATCH_TOKENS = 1024


@dataclass(frozen=True)
class Loss:
    """Negative log-likelihood of predicted tokens, in nats, and their number."""

    nats: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """The exponential of the mean."""
        return math.exp(self.nats / self.tokens)


def losses(model: Any, windows: Sequence[Window]) -> dict[str, Loss]:
    """Run a model over windows.

    Parameters
    ----------
    model : nn.Module
    windows : sequence of Window
        The first token of each is not predicted.

    Returns
    -------
    dict of str to Loss
        By kind, sorted.
    """
    nats: dict[str, float] = defaultdict(float)
    tokens: Counter[str] = Counter()
    device = next(model.parameters()).device
    for batch in batches(windows, BATCH_TOKENS):
        ids, mask = batch.ids.to(device), batch.mask.to(device)
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        for i, window in enumerate(batch.windows):
            length = len(window.tokens)
            log_p = logits[i, : length - 1].float().log_softmax(-1)
            gained = log_p.gather(1, ids[i, 1:length, None]).double().sum()
            nats[window.kind] -= float(gained)
            tokens[window.kind] += length - 1
    return {kind: Loss(nats[kind], tokens[kind]) for kind in sorted(tokens)}


def total(by_kind: dict[str, Loss]) -> Loss:
    """Return the loss over all kinds."""
    parts = by_kind.values()
    return Loss(sum(part.nats for part in parts), sum(part.tokens for part in parts))
