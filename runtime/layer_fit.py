"""The adapter at a decoder layer, after TF-Engram (arXiv 2607.07388) and NGM's gate.

The map from encoder space is the ridge regression to the hidden state that enters block K at a
phrase's last token. Its scale is chosen by real forward passes on documents kept apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrasemem.runtime.adapter import Adapter, Gate
from phrasemem.runtime.attach import attach
from phrasemem.runtime.documents import Window
from phrasemem.runtime.head_fit import Fit
from phrasemem.runtime.memory import PhraseMemory
from phrasemem.runtime.perplexity import losses, total
from phrasemem.runtime.ridge import Moments, explained
from phrasemem.runtime.samples import CalibrationError, Progress, collect

PENALTIES = (0.001, 0.01, 0.1, 1.0)
SCALES = (0.0, 0.01, 0.03, 0.1, 0.3)
SEARCH_TOKENS = 4096


def fit_layer(
    model: Any,
    block: Any,
    point: str,
    gate: Gate,
    memory: PhraseMemory,
    tokenizer: Any,
    windows: Sequence[Window],
    chooses: NDArray[np.bool_],
    progress: Progress,
) -> Fit:
    """Fit on the documents that do not choose, choose penalty and scale on those that do.

    Raises
    ------
    CalibrationError
        If either part has no hits.
    """
    samples = collect(model, block, memory, windows, progress)
    fit, choose = samples.of(~chooses), samples.of(chooses)
    if not len(fit) or not len(choose):
        raise CalibrationError(
            "too little calibration text",
            expected="phrases of the memory in two or more documents",
            found=f"{len(fit)} and {len(choose)} hits",
            hint="give more text with --text or a larger --max-tokens",
        )
    moments = Moments.of(fit.vectors, fit.states)
    shares = {
        penalty: explained(moments, moments.solve(penalty), choose.vectors, choose.states)
        for penalty in PENALTIES
    }
    penalty = max(shares, key=lambda p: shares[p])
    weights = moments.solve(penalty)
    bias = moments.mean_target - moments.mean_vector @ weights
    projection, offset = weights.float().numpy(), bias.float().numpy()
    info = memory.payload.info
    adapter = Adapter(projection, offset, 1.0, point, gate, info.name, info.source)
    progress(f"penalty {penalty:g} explains {shares[penalty]:.1%} of the hidden states")
    few = _within(windows, chooses, SEARCH_TOKENS)
    curve = {}
    for scale in SCALES:
        with attach(model, memory, tokenizer=tokenizer, adapter=adapter, scale=scale):
            loss = total(losses(model, few))
        curve[f"{scale:g}"] = loss.nats / loss.tokens
        progress(f"scale {scale:g}: {curve[f'{scale:g}']:.4f} nats a token")
    best = min(SCALES, key=lambda scale: curve[f"{scale:g}"])
    report = {
        "method": "ridge to the hidden state",
        "penalty": penalty,
        "explained_variance": shares[penalty],
        "nats_per_token": curve,
    }
    return Fit(projection, offset, best, report | samples.counts())


def _within(windows: Sequence[Window], chooses: NDArray[np.bool_], tokens: int) -> list[Window]:
    kept: list[Window] = []
    for window in windows:
        if chooses[window.document] and tokens > 0:
            kept.append(Window(window.tokens[:tokens], window.kind, window.document))
            tokens -= len(window.tokens)
    return [window for window in kept if len(window.tokens) > 1]
