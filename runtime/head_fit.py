"""The adapter at the output head: one natural-gradient step, in closed form.

With z_t the state that enters the head at a position where phrase p ends, y the next token and
p_t = softmax(U z_t), the likelihood's gradient in z_t is g_t = U[y] - U^T p_t. For an injection
``e_p W`` the Kronecker-factored natural-gradient step from W = 0 (Martens and Grosse 2015) is

    W = (sum e e^T + lambda I)^-1 (sum e g^T) (F + r tr(F)/d I)^-1,

the ridge regression from encoder space to the direction in which the text went on. The step's
length, and that of the intercept, maximise the exact likelihood on documents kept apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from phrasemem.runtime.head_likelihood import gradients, local, log_likelihoods
from phrasemem.runtime.ridge import Moments, explained
from phrasemem.runtime.samples import CalibrationError, Progress, Samples

PENALTIES = (0.3, 1.0, 3.0, 10.0)
DAMPINGS = (0.3, 1.0)
SEARCH_SAMPLES = 1536
NEWTON_STEPS = 3
CURVE = (0.0, 0.5, 1.0, 1.5, 2.0)
# Twice the log-likelihood ratio of a useless direction exceeds 3.84 one time in twenty.
WORTH = 1.92


@dataclass(frozen=True)
class Fit:
    """What was fitted, and how.

    Parameters
    ----------
    projection : (dim_in, dim_out) float32
    bias : (dim_out,) float32
    scale : float
    report : dict
    """

    projection: NDArray[np.float32]
    bias: NDArray[np.float32]
    scale: float
    report: dict[str, Any]


@dataclass(frozen=True)
class _Directions:
    """A map and an intercept, without their scales."""

    penalty: float
    damping: float
    weights: torch.Tensor
    bias: torch.Tensor
    mean_vector: torch.Tensor

    def offsets(self, samples: Samples) -> torch.Tensor:
        return ((samples.vectors.double() - self.mean_vector) @ self.weights).float()


def fit_head(head: Any, fit: Samples, choose: Samples, progress: Progress) -> Fit:
    """Fit on some samples, choose penalty, damping and scales on others.

    Raises
    ------
    CalibrationError
        If the head is not a plain linear map, or either part has no samples.
    """
    _check(head, fit, choose)
    slopes = gradients(head, fit)
    progress(f"gradients at {len(fit):,} hits")
    moments = Moments.of(fit.vectors, slopes.continuation)
    few = _first(choose, SEARCH_SAMPLES)
    best, gain = None, -np.inf
    for candidate in _candidates(moments, slopes.curvature):
        here = local(head, few, candidate.bias, candidate.offsets(few), _zeros())
        promised = 0.5 * float(here.gradient @ here.step())
        if promised > gain:
            best, gain = candidate, promised
    assert best is not None
    progress(f"penalty {best.penalty:g}, damping {best.damping:g}")
    scales = _scales(head, choose, best)
    report = {
        "method": "one natural-gradient step",
        "penalty": best.penalty,
        "damping": best.damping,
        "bias_scale": scales[0],
        "phrase_scale": scales[1],
        "explained_variance": explained(
            moments,
            moments.solve(best.penalty),
            choose.vectors,
            gradients(head, choose).continuation,
        ),
        "nats_per_hit": _curve(head, choose, best, scales),
    }
    return _folded(best, scales, report)


def _candidates(moments: Moments, curvature: torch.Tensor) -> list[_Directions]:
    size = len(curvature)
    found = []
    for damping in DAMPINGS:
        # The tiny term is for a head that maps to nothing, whose curvature is zero.
        mean = curvature.trace() / size + 1e-12
        ridge = damping * mean * torch.eye(size, dtype=torch.float64)
        inverse = torch.linalg.inv(curvature + ridge)
        for penalty in PENALTIES:
            weights = moments.solve(penalty) @ inverse
            bias = moments.mean_target @ inverse
            found.append(_Directions(penalty, damping, weights, bias, moments.mean_vector))
    return found


def _scales(head: Any, choose: Samples, chosen: _Directions) -> tuple[float, float]:
    """Maximise the likelihood in both scales, then drop a direction that is not worth it."""
    offsets = chosen.offsets(choose)
    count = len(choose)

    def best(mask: list[float]) -> tuple[torch.Tensor, float]:
        scales = _zeros()
        used = torch.tensor(mask, dtype=torch.float64)
        for _ in range(NEWTON_STEPS):
            here = local(head, choose, chosen.bias * mask[0], offsets * mask[1], scales)
            scales = (scales + here.step()) * used
        final = local(head, choose, chosen.bias, offsets, scales)
        return scales, final.value * count

    frozen = local(head, choose, chosen.bias, offsets, _zeros()).value * count
    options = [(_zeros(), frozen)]
    for mask in ([1.0, 0.0], [0.0, 1.0], [1.0, 1.0]):
        scales, value = best(mask)
        options.append((scales, value - WORTH * sum(mask)))
    allowed = [(scales, value) for scales, value in options if bool((scales >= 0).all())]
    winner = max(allowed, key=lambda option: option[1])[0]
    return float(winner[0]), float(winner[1])


def _curve(
    head: Any, choose: Samples, chosen: _Directions, scales: tuple[float, float]
) -> dict[str, float]:
    """Return the gain in nats a hit at multiples of the chosen scales."""
    delta = scales[0] * chosen.bias.float() + scales[1] * chosen.offsets(choose)
    frozen = log_likelihoods(head, choose, 0 * delta).mean()
    gains = {t: log_likelihoods(head, choose, t * delta).mean() - frozen for t in CURVE}
    only_bias = log_likelihoods(head, choose, (scales[0] * chosen.bias.float()).expand_as(delta))
    named = {f"{t:g}": float(gain) for t, gain in gains.items()}
    return named | {"bias alone": float(only_bias.mean() - frozen)}


def _folded(chosen: _Directions, scales: tuple[float, float], report: dict[str, Any]) -> Fit:
    """Express both scales and the centring as one scale, one map and one bias."""
    scale = scales[1] or scales[0]
    phrases = chosen.weights if scales[1] else torch.zeros_like(chosen.weights)
    bias = chosen.bias * (scales[0] / scale if scale else 0.0) - chosen.mean_vector @ phrases
    return Fit(phrases.float().numpy(), bias.float().numpy(), scale, report)


def _check(head: Any, fit: Samples, choose: Samples) -> None:
    if getattr(head, "weight", None) is None or not head.weight.is_floating_point():
        raise CalibrationError(
            "this output head is not a plain linear map",
            found=type(head).__name__,
            hint="calibrate at a layer: --point layer:K",
        )
    if not len(fit) or not len(choose):
        raise CalibrationError(
            "too little calibration text",
            expected="phrases of the memory in two or more documents",
            found=f"{len(fit)} and {len(choose)} hits",
            hint="give more text with --text or a larger --max-tokens",
        )


def _first(samples: Samples, count: int) -> Samples:
    return Samples(
        samples.states[:count],
        samples.next_tokens[:count],
        samples.vectors[:count],
        samples.documents[:count],
        samples.tokens,
    )


def _zeros() -> torch.Tensor:
    return torch.zeros(2, dtype=torch.float64)
