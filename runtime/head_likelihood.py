"""The likelihood of next tokens as a function of what is added to the head's input.

With z the state that enters the output head U and y the next token, log p(y) = log softmax(U
(z + delta))[y] is concave in delta, so a scale along given directions is found by Newton steps
on the exact likelihood.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from phrasemem.runtime.samples import Samples

CHUNK = 256


@dataclass(frozen=True)
class Gradients:
    """First and second order of the likelihood at delta = 0.

    Parameters
    ----------
    continuation : (n, dim) float32
        g = U[y] - U^T p, the direction in which the state should have gone.
    curvature : (dim, dim) float64
        F = mean(U^T diag(p) U - mu mu^T) with mu = U^T p.
    """

    continuation: torch.Tensor
    curvature: torch.Tensor


def gradients(head: Any, samples: Samples) -> Gradients:
    """Return g and F over samples."""
    weight = head.weight.detach()
    parts = []
    mass = torch.zeros(weight.shape[0], dtype=torch.float64)
    outer = torch.zeros(weight.shape[1], weight.shape[1], dtype=torch.float64)
    for states, targets in _chunks(samples):
        p = head(states).float().softmax(-1)
        mean = (p.to(weight.dtype) @ weight).float()
        mass += p.sum(0).double()
        outer += (mean.T @ mean).double()
        parts.append(weight[targets].float() - mean)
    full = weight.float()
    second = (full.T * (mass / len(samples)).float()) @ full
    return Gradients(torch.cat(parts), second.double() - outer / len(samples))


@dataclass(frozen=True)
class Local:
    """Mean log-likelihood at some scales, with its gradient and negative Hessian in them."""

    value: float
    gradient: torch.Tensor
    curvature: torch.Tensor

    @classmethod
    def mean(cls, parts: list[Local], weights: list[int]) -> Local:
        """Return the mean over samples of several parts, weighted by their number."""
        shares = [weight / sum(weights) for weight in weights]
        pairs = list(zip(shares, parts, strict=True))
        return cls(
            sum(share * part.value for share, part in pairs),
            torch.stack([share * part.gradient for share, part in pairs]).sum(0),
            torch.stack([share * part.curvature for share, part in pairs]).sum(0),
        )

    def step(self, used: list[bool]) -> torch.Tensor:
        """Return the Newton step in the (2,) scales, 0 in those not used."""
        step = torch.zeros(2, dtype=torch.float64)
        index = torch.tensor(used).nonzero()[:, 0]
        curvature = self.curvature[index[:, None], index]
        # The tiny term is for a direction that changes no likelihood.
        eye = 1e-9 * (curvature.trace() + 1e-30) * torch.eye(len(index), dtype=torch.float64)
        step[index] = torch.linalg.solve(curvature + eye, self.gradient[index])
        return step


def local(
    head: Any,
    samples: Samples,
    bias: torch.Tensor,
    offsets: torch.Tensor,
    scales: torch.Tensor,
) -> Local:
    """Evaluate ``delta = scales[0] * bias + scales[1] * offsets``.

    Parameters
    ----------
    head : nn.Module
    samples : Samples
    bias : (dim,)
        The same at every position.
    offsets : (n, dim)
        One for each position.
    scales : (2,) float64
    """
    weight = head.weight.detach()
    shared = (bias.to(weight.dtype) @ weight.T).float()
    value, gradient = 0.0, torch.zeros(2, dtype=torch.float64)
    curvature = torch.zeros(2, 2, dtype=torch.float64)
    first, second = float(scales[0]), float(scales[1])
    begin = 0
    for states, targets in _chunks(samples):
        own = (offsets[begin : begin + len(states)].to(weight.dtype) @ weight.T).float()
        begin += len(states)
        log_p = (head(states).float() + first * shared + second * own).log_softmax(-1)
        value += float(log_p.gather(1, targets[:, None]).sum())
        p = log_p.exp()
        means = torch.stack([p @ shared, (p * own).sum(1)], 1)
        observed = torch.stack([shared[targets], own.gather(1, targets[:, None])[:, 0]], 1)
        gradient += (observed - means).sum(0).double()
        mixed = ((p * own) @ shared).sum()
        squares = [(p @ shared.square()).sum(), mixed, mixed, (p * own.square()).sum()]
        curvature += torch.stack(squares).reshape(2, 2).double() - (means.T @ means).double()
    count = len(samples)
    return Local(value / count, gradient / count, curvature / count)


def log_likelihoods(head: Any, samples: Samples, delta: torch.Tensor) -> torch.Tensor:
    """Return log p(y) of each sample, (n,) float32, with (n, dim) added to the states."""
    parts, begin = [], 0
    for states, targets in _chunks(samples):
        moved = states + delta[begin : begin + len(states)].to(states.dtype)
        begin += len(states)
        log_p = head(moved).float().log_softmax(-1)
        parts.append(log_p.gather(1, targets[:, None])[:, 0])
    return torch.cat(parts)


def _chunks(samples: Samples) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for begin in range(0, len(samples), CHUNK):
        part = slice(begin, begin + CHUNK)
        yield samples.states[part], samples.next_tokens[part]
