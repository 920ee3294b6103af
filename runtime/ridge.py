"""Closed-form ridge regression from encoder space, with its intercept kept apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Moments:
    """Sums over n pairs of encoder vector e and target g, both centred.

    Parameters
    ----------
    covariance : (dim_in, dim_in) float64
        Sum of e e^T.
    cross : (dim_in, dim_out) float64
        Sum of e g^T.
    mean_vector : (dim_in,) float64
    mean_target : (dim_out,) float64
        The intercept: what all phrases share.
    """

    covariance: torch.Tensor
    cross: torch.Tensor
    mean_vector: torch.Tensor
    mean_target: torch.Tensor

    @classmethod
    def of(cls, vectors: torch.Tensor, targets: torch.Tensor) -> Moments:
        """Return the moments of (n, dim_in) vectors and (n, dim_out) targets."""
        vectors, targets = vectors.double(), targets.double()
        mean_vector, mean_target = vectors.mean(0), targets.mean(0)
        centred = vectors - mean_vector
        return cls(
            centred.T @ centred, centred.T @ (targets - mean_target), mean_vector, mean_target
        )

    def solve(self, penalty: float) -> torch.Tensor:
        """Return the (dim_in, dim_out) map for a penalty relative to the mean eigenvalue."""
        size = len(self.covariance)
        ridge = penalty * self.covariance.trace() / size * torch.eye(size, dtype=torch.float64)
        return torch.linalg.solve(self.covariance + ridge, self.cross)


def explained(
    moments: Moments, weights: torch.Tensor, vectors: torch.Tensor, targets: torch.Tensor
) -> float:
    """Return the share of other targets' variance that a map's direction explains.

    At its best length: the squared correlation, 0 where it points the wrong way. Ridge maps
    are too short or too long by design, and calibration chooses the length on its own.
    """
    predicted = (vectors.double() - moments.mean_vector) @ weights
    centred = targets.double() - moments.mean_target
    agreement = float((centred * predicted).sum().clamp(min=0))
    size = float(centred.square().sum() * predicted.square().sum())
    return agreement**2 / size if size else 0.0
