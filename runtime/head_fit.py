"""The adapter at the output head: one natural-gradient step, in closed form.

With z_t the state that enters the head at a position where phrase p ends, y the next token and
p_t = softmax(U z_t), the likelihood's gradient in z_t is g_t = U[y] - U^T p_t. For an injection
``e_p W`` the Kronecker-factored natural-gradient step from W = 0 (Martens and Grosse 2015) is

    W = (sum e e^T + lambda I)^-1 (sum e g^T) (F + r tr(F)/d I)^-1,

the ridge regression from encoder space to the direction in which the text went on. The step's
length, and that of the intercept, maximise the exact likelihood on documents kept apart; lambda
and r maximise its second-order expansion in cross-validation. With all of these the map is then
fitted once more, on all documents.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from phrasemem.runtime.head_likelihood import Gradients, gradients, local, log_likelihoods
from phrasemem.runtime.ridge import Moments, explained
from phrasemem.runtime.samples import CalibrationError, Progress, Samples

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)
DAMPINGS = (0.3, 1.0, 3.0, 10.0)
# The intercept is far better determined than the map: it bears less damping.
BIAS_DAMPING = 0.3
FOLDS = 3
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
    penalty, damping = _cross_validated(fit, slopes)
    progress(f"penalty {penalty:g}, damping {damping:g}")
    best = _directions(moments, slopes.curvature, penalty, damping)
    scales = _scales(head, choose, best)
    others = gradients(head, choose)
    report = {
        "method": "one natural-gradient step",
        "penalty": penalty,
        "damping": damping,
        "bias_scale": scales[0],
        "phrase_scale": scales[1],
        "explained_variance": explained(
            moments, moments.solve(penalty), choose.vectors, others.continuation
        ),
        "nats_per_hit": _curve(head, choose, best, scales),
    }
    every = Moments.of(
        torch.cat([fit.vectors, choose.vectors]),
        torch.cat([slopes.continuation, others.continuation]),
    )
    final = _directions(every, slopes.curvature, penalty, damping)
    return _folded(final, scales, report)


def _cross_validated(fit: Samples, slopes: Gradients) -> tuple[float, float]:
    """Return penalty and damping of the map that goes best from documents to others.

    A map's best gain to second order is L^2 / 2Q, with L = sum g.delta and Q = sum delta F delta.
    """
    inverses = {damping: _inverse(slopes.curvature, damping) for damping in DAMPINGS}
    vectors, targets = fit.vectors.double(), slopes.continuation.double()
    linear: dict[tuple[float, float], float] = defaultdict(float)
    square: dict[tuple[float, float], float] = defaultdict(float)
    for fold in range(FOLDS):
        out = torch.from_numpy(fit.documents % FOLDS == fold)
        if bool(out.all()) or not bool(out.any()):
            continue
        moments = Moments.of(vectors[~out], targets[~out])
        centred = vectors[out] - moments.mean_vector
        cross, covariance = centred.T @ targets[out], centred.T @ centred
        for penalty in PENALTIES:
            plain = moments.solve(penalty)
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


def _zeros() -> torch.Tensor:
    return torch.zeros(2, dtype=torch.float64)
