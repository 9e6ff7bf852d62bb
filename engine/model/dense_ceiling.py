"""How large a number inside the model can become with an adapter, on any input of any length.

From norms alone: RMSNorm bounds what a layer reads, whatever came before it; ‖Wx‖ ≤ ‖W‖ ‖x‖ (Frobenius)
bounds what its linear sites give, ‖BAx‖ ≤ ‖B‖ ‖A‖ ‖x‖ what the adapter adds; attention mixes values, so it
gives none that is larger; the residual only ever adds. Far from tight, and far enough: a usual model with a
usual adapter stays many orders of magnitude below what float32 and bfloat16 hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from engine.model.dense import HEAD_ROWS, DenseModel, Modules


@dataclass
class _Most:
    """The largest number met so far; infinite once one is not a number."""

    value: float = 0.0

    def note(self, value: float) -> float:
        self.value = math.inf if math.isnan(value) else max(self.value, value)
        return value


@dataclass
class Ceilings:
    """Keeps the norms of the model's own weights, each found when it is first asked for."""

    model: DenseModel
    _norms: dict[str, float] = field(default_factory=dict)
    _sites: dict[tuple[int, str], tuple[float, float]] = field(default_factory=dict)

    def of(self, modules: Modules) -> float:
        """Whether its square is a finite float32 decides whether anything can overflow."""
        most = _Most()
        residual = most.note(self._embedding())
        for layer in range(self.model.config.num_layers):
            residual = most.note(residual + self._attention(layer, modules, most))
            residual = most.note(residual + self._mlp(layer, modules, most))
        return most.value

    def _attention(self, layer: int, modules: Modules, most: _Most) -> float:
        x = self._normed(f"model.layers.{layer}.input_layernorm")
        _, _, v = (self._site(layer, site, x, modules, most) for site in ("q_proj", "k_proj", "v_proj"))
        mixed = most.note(v * math.sqrt(self.model.config.num_heads))
        return self._site(layer, "o_proj", mixed, modules, most)

    def _mlp(self, layer: int, modules: Modules, most: _Most) -> float:
        x = self._normed(f"model.layers.{layer}.post_attention_layernorm")
        gate, up = (self._site(layer, site, x, modules, most) for site in ("gate_proj", "up_proj"))
        return self._site(layer, "down_proj", most.note(gate * up), modules, most)

    def _site(self, layer: int, site: str, x: float, modules: Modules, most: _Most) -> float:
        """The norm of what the site gives for an input of norm `x`, the adapter's part included."""
        if (layer, site) not in self._sites:
            weight, bias = self.model.linear(layer, site)
            self._sites[layer, site] = (_norm(weight), 0.0 if bias is None else _norm(bias))
        weight_norm, bias_norm = self._sites[layer, site]
        out = weight_norm * x + bias_norm
        if (factors := modules.get((layer, site))) is not None:
            a, b, scale = factors
            shrunk = most.note(_norm(a) * x)
            out += abs(scale) * most.note(_norm(b) * shrunk)
        return most.note(out)

    def _normed(self, name: str) -> float:
        """RMSNorm gives a vector of norm √width, times its weight."""
        if name not in self._norms:
            weight = self.model.weights[f"{name}.weight"].float()
            self._norms[name] = math.sqrt(weight.numel()) * weight.abs().max().item()
        return self._norms[name]

    def _embedding(self) -> float:
        name = "model.embed_tokens.weight"
        if name not in self._norms:
            weight = self.model.weights[name]
            pieces = (weight[start : start + HEAD_ROWS] for start in range(0, weight.shape[0], HEAD_ROWS))
            self._norms[name] = max(piece.float().norm(dim=1).max().item() for piece in pieces)
        return self._norms[name]


def _norm(tensor: Tensor) -> float:
    return float(tensor.double().norm())
