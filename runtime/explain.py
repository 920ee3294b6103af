"""One prompt, continued frozen and with memory: the texts, the phrases that fired, the time."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from phrasemem.memfmt.keys import SHORTEST_PHRASE
from phrasemem.runtime.attach import AttachStats, attach
from phrasemem.runtime.memory import PhraseMemory


@dataclass(frozen=True)
class FiredPhrase:
    """A phrase of the memory that ends at a token.

    Parameters
    ----------
    position : int
        Of its last token; 0 is the first of the prompt.
    token, phrase : str
    """

    position: int
    token: str
    phrase: str


@dataclass(frozen=True)
class Continuation:
    """What a model wrote after a prompt.

    Parameters
    ----------
    text : str
        Without the prompt.
    tokens : int
    seconds_per_token : float
        Median time between two tokens; nan for fewer than two.
    fired : list of FiredPhrase
        In the prompt and in the text; empty without memory.
    stats : AttachStats or None
    """

    text: str
    tokens: int
    seconds_per_token: float
    fired: list[FiredPhrase]
    stats: AttachStats | None


def continue_both(
    model: Any,
    memory: PhraseMemory,
    tokenizer: Any,
    prompt: str,
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> tuple[Continuation, Continuation]:
    """Continue a prompt without and with memory.

    Parameters
    ----------
    model : nn.Module
    memory : PhraseMemory
    tokenizer : fast tokenizer
    prompt : str
    max_new_tokens : int
    temperature : float
        0 is greedy.
    seed : int
        Of sampling, the same for both.

    Returns
    -------
    frozen, attached : Continuation
    """
    options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "do_sample": temperature > 0}
    if temperature > 0:
        options["temperature"] = temperature
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    # The first call of a process pays for what later ones find ready.
    model.generate(**inputs, **options | {"max_new_tokens": 2})
    frozen = _continue(model, tokenizer, inputs, options, seed)
    with attach(model, memory, tokenizer=tokenizer) as handle:
        with_memory = _continue(model, tokenizer, inputs, options, seed)
        stats = handle.stats()
    ids, text, seconds = with_memory
    new = len(ids) - inputs["input_ids"].shape[1]
    attached = Continuation(text, new, seconds, fired_phrases(memory, tokenizer, ids), stats)
    new = len(frozen[0]) - inputs["input_ids"].shape[1]
    return Continuation(frozen[1], new, frozen[2], [], None), attached


def fired_phrases(memory: PhraseMemory, tokenizer: Any, ids: list[int]) -> list[FiredPhrase]:
    """Return the longest phrase that ends at each token of a sequence, where one does."""
    match = memory.reader.longest_match(np.array([ids], np.int64), shortest=SHORTEST_PHRASE)
    lengths = match.lengths[0].tolist()
    return [
        FiredPhrase(
            position,
            tokenizer.decode(ids[position : position + 1]),
            tokenizer.decode(ids[position + 1 - length : position + 1]),
        )
        for position, length in enumerate(lengths)
        if length
    ]


class _Clock(StoppingCriteria):
    """Notes when each token was there; never stops."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _continue(
    model: Any, tokenizer: Any, inputs: Any, options: dict[str, Any], seed: int
) -> tuple[list[int], str, float]:
    clock = _Clock()
    torch.manual_seed(seed)
    output = model.generate(**inputs, **options, stopping_criteria=StoppingCriteriaList([clock]))
    ids: list[int] = output[0].tolist()
    text = tokenizer.decode(ids[inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    gaps = np.diff(clock.times).tolist()
    return ids, text, statistics.median(gaps) if gaps else float("nan")
