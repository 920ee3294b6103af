"""The adapter at the output head: one natural-gradient step, in closed form.

With z_t the state that enters the head at a position where phrase p ends, y the next token and
p_t = softmax(U z_t), the likelihood's gradient in z_t is g_t = U[y] - U^T p_t. For an injection
``e_p W`` the Kronecker-factored natural-gradient step from W = 0 (Martens and Grosse 2015) is

    W = (sum e e^T + lambda I)^-1 (sum e g^T) (F + r tr(F)/d I)^-1,

the ridge regression from encoder space to the direction in which the text went on. The step's
length, and that of the intercept, maximise the exact likelihood, and lambda and r its expansion
to second order, both cross-fitted: each document is judged by a map fitted on the others. With
what was chosen the map is then fitted on all documents.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from phrasemem.runtime.head_likelihood import (
    Gradients,
    Local,
    gradients,
    local,
    log_likelihoods,
)
from phrasemem.runtime.ridge import Moments, explained
from phrasemem.runtime.samples import CalibrationError, Progress, Samples

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)
DAMPINGS = (0.3, 1.0, 3.0, 10.0)
# The intercept is far better determined than the map: it bears less damping.
BIAS_DAMPING = 0.3
FOLDS = 4
SEARCH_HITS = 8192
CURVE_HITS = 3072
CURVE = (0.0, 0.5, 1.0, 1.5)
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

    weights: torch.Tensor
    bias: torch.Tensor
    mean_vector: torch.Tensor

    def offsets(self, samples: Samples) -> torch.Tensor:
        return ((samples.vectors.double() - self.mean_vector) @ self.weights).float()


@dataclass(frozen=True)
class _Fold:
    """Some documents' samples, and what was fitted on all the others."""

    samples: Samples
    directions: _Directions

    def thinned(self, share: float) -> _Fold:
        return _Fold(self.samples.thinned(share), self.directions)


def fit_head(head: Any, samples: Samples, progress: Progress) -> Fit:
    """Fit the map, its penalties and its scales.

    Raises
    ------
    CalibrationError
        If the head is not a plain linear map, or all hits are in one document.
    """
    _check(head, samples)
    slopes = gradients(head, samples)
    progress(f"gradients at {len(samples):,} hits")
    targets = slopes.continuation
    held_out = _folds(samples)
    moments = [Moments.of(samples.vectors[~out], targets[~out]) for out in held_out]
    penalty, damping = _shrinkage(samples, slopes, held_out, moments)
    progress(f"penalty {penalty:g}, damping {damping:g}")
    folds = [
        _Fold(samples.where(out), _directions(fitted, slopes.curvature, penalty, damping))
        for out, fitted in zip(held_out, moments, strict=True)
    ]
    scales = _scales(head, [fold.thinned(SEARCH_HITS / len(samples)) for fold in folds])
    progress(f"scale {scales[0]:.3g} of the bias, {scales[1]:.3g} of the phrases")
    shares = [
        explained(fitted, fitted.solve(penalty), samples.vectors[out], targets[out])
        for out, fitted in zip(held_out, moments, strict=True)
    ]
    report = {
        "method": "one natural-gradient step",
        "penalty": penalty,
        "damping": damping,
        "bias_scale": scales[0],
        "phrase_scale": scales[1],
        "explained_variance": sum(shares) / len(shares),
        "nats_per_hit": _curve(
            head, [fold.thinned(CURVE_HITS / len(samples)) for fold in folds], scales
        ),
    }
    every = Moments.of(samples.vectors, targets)
    return _folded(_directions(every, slopes.curvature, penalty, damping), scales, report)


def _folds(samples: Samples) -> list[torch.Tensor]:
    """Return masks that split the samples by document; none is empty."""
    masks = [torch.from_numpy(samples.documents % FOLDS == fold) for fold in range(FOLDS)]
    return [mask for mask in masks if bool(mask.any())]


def _shrinkage(
    samples: Samples,
    slopes: Gradients,
    held_out: list[torch.Tensor],
    moments: list[Moments],
) -> tuple[float, float]:
    """Return penalty and damping of the map that goes best from documents to others.

    A map's best gain to second order is L^2 / 2Q, with L = sum g.delta and Q = sum delta F delta.
    """
    inverses = {damping: _inverse(slopes.curvature, damping) for damping in DAMPINGS}
    linear: dict[tuple[float, float], float] = defaultdict(float)
    square: dict[tuple[float, float], float] = defaultdict(float)
    for out, fitted in zip(held_out, moments, strict=True):
        centred = samples.vectors[out].double() - fitted.mean_vector
        cross = centred.T @ slopes.continuation[out].double()
        covariance = centred.T @ centred
        for penalty in PENALTIES:
            plain = fitted.solve(penalty)
            for damping, inverse in inverses.items():
                weights = plain @ inverse
                linear[penalty, damping] += float((weights * cross).sum())
                bent = covariance @ weights @ slopes.curvature
                square[penalty, damping] += float((weights * bent).sum())

    def gain(choice: tuple[float, float]) -> float:
        return max(linear[choice], 0.0) ** 2 / square[choice] if square[choice] > 0 else 0.0

    # Of equals, such as where no map is of use, the one that shrinks most.
    choices = [(penalty, damping) for penalty in PENALTIES for damping in DAMPINGS]
    return max(reversed(choices), key=gain)


def _inverse(curvature: torch.Tensor, damping: float) -> torch.Tensor:
    size = len(curvature)
    # The tiny term is for a head that maps to nothing, whose curvature is zero.
    ridge = damping * (curvature.trace() / size + 1e-12) * torch.eye(size, dtype=torch.float64)
    return torch.linalg.inv(curvature + ridge)


def _directions(
    moments: Moments, curvature: torch.Tensor, penalty: float, damping: float
) -> _Directions:
    return _Directions(
        moments.solve(penalty) @ _inverse(curvature, damping),
        moments.mean_target @ _inverse(curvature, BIAS_DAMPING),
        moments.mean_vector,
    )


def _scales(head: Any, folds: list[_Fold]) -> tuple[float, float]:
    """Return the scales of intercept and map; 0 where one is not worth its place.

    Newton steps on the exact likelihood: the first, from zero, decides what is of use, the
    second, with only that, ends where the likelihood is flat.
    """
    start = _summed(head, folds, torch.zeros(2, dtype=torch.float64))
    hits = sum(len(fold.samples) for fold in folds)
    best, used, gain = torch.zeros(2, dtype=torch.float64), [False, False], 0.0
    for chosen in ([True, False], [False, True], [True, True]):
        step = start.step(chosen)
        worth = 0.5 * float(start.gradient @ step) - WORTH * sum(chosen) / hits
        if worth > gain and bool((step >= 0).all()):
            best, used, gain = step, chosen, worth
    if gain:
        best = (best + _summed(head, folds, best).step(used)).clamp(min=0)
    return float(best[0]), float(best[1])


def _summed(head: Any, folds: list[_Fold], scales: torch.Tensor) -> Local:
    """Return the likelihood over all folds as a function of the scales, around some."""
    parts = [
        local(head, f.samples, f.directions.bias, f.directions.offsets(f.samples), scales)
        for f in folds
    ]
    return Local.mean(parts, [len(fold.samples) for fold in folds])


def _curve(head: Any, folds: list[_Fold], scales: tuple[float, float]) -> dict[str, float]:
    """Return the gain in nats a hit at multiples of the chosen scales."""
    factors = {f"{t:g}": (t * scales[0], t * scales[1]) for t in CURVE}
    factors["bias alone"] = (scales[0], 0.0)
    sums = dict.fromkeys(factors, 0.0)
    for fold in folds:
        bias, offsets = fold.directions.bias.float(), fold.directions.offsets(fold.samples)
        for name, (first, second) in factors.items():
            delta = first * bias + second * offsets
            sums[name] += float(log_likelihoods(head, fold.samples, delta).double().sum())
    hits = sum(len(fold.samples) for fold in folds)
    return {name: (value - sums["0"]) / hits for name, value in sums.items()}


def _folded(chosen: _Directions, scales: tuple[float, float], report: dict[str, Any]) -> Fit:
    """Express both scales and the centring as one scale, one map and one bias."""
    scale = scales[1] or scales[0]
    phrases = chosen.weights if scales[1] else torch.zeros_like(chosen.weights)
    bias = chosen.bias * (scales[0] / scale if scale else 0.0) - chosen.mean_vector @ phrases
    return Fit(phrases.float().numpy(), bias.float().numpy(), scale, report)


def _check(head: Any, samples: Samples) -> None:
    if getattr(head, "weight", None) is None or not head.weight.is_floating_point():
        raise CalibrationError(
            "this output head is not a plain linear map",
            found=type(head).__name__,
            hint="calibrate at a layer: --point layer:K",
        )
    if len(_folds(samples)) < 2:
        raise CalibrationError(
            "too little calibration text",
            expected="phrases of the memory in several documents",
            found=f"{len(samples)} hits in {len(set(samples.documents.tolist()))} documents",
            hint="give more text with --text or a larger --max-tokens",
        )
