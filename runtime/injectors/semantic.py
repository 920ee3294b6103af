"""Semantic rows: a linear map of the phrase's encoder vector, added to a hidden state."""

from __future__ import annotations

import torch
from torch.nn.functional import cosine_similarity, relu

from phrasemem.runtime.adapter import Adapter


class SemanticInjector:
    """Computes ``scale * gate(h, v) * v`` with ``v = e W + b``, in float32.

    Parameters
    ----------
    adapter : Adapter
    scale : float
        In place of the adapter's.
    device : torch.device
        Where the hidden states are.
    """

    def __init__(self, adapter: Adapter, scale: float, device: torch.device) -> None:
        self._projection = torch.from_numpy(adapter.projection).to(device)
        self._bias = torch.from_numpy(adapter.bias).to(device)
        self._gated = adapter.gate == "relu-cos"
        self.scale = scale

    def delta(
        self, vectors: torch.Tensor, which: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        """Return what is added to each state.

        Parameters
        ----------
        vectors : (u, dim_in) float32
            Encoder vectors of the distinct phrases.
        which : (h,) int64
            The vector of each state.
        hidden : (h, dim_out)
            The states, any floating dtype.

        Returns
        -------
        (h, dim_out) float32
        """
        values = (vectors @ self._projection + self._bias)[which]
        if self._gated:
            gate = relu(cosine_similarity(hidden.float(), values, dim=-1))
            values = values * gate[:, None]
        return self.scale * values
