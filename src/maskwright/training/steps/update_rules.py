"""The optimizer of a recipe, and update rules other than AdamW: StableAdamW, LAMB and Muon."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from maskwright.recipes.optimization import AdamW, Lamb, Muon, OptimizerSpec, StableAdamW
from maskwright.training.steps.optimizer import MOMENTS, AdamWRule, Clipping, Optimizer, UpdateRule


def build_optimizer(
    named_parameters: Iterable[tuple[str, nn.Parameter]],
    constants: OptimizerSpec,
    rate_share: Callable[[str], float] | None = None,
    *,
    peak: float | None = None,
) -> Optimizer:
    """Build the optimizer of a recipe. Biases and LayerNorm weights, the vectors of these models, have no weight decay.

    A parameter with several names (tied, shared by layers) counts once. `rate_share` gives the factor on the learning
    rate of the parameter with a name, for AdamW. `peak` is the largest learning rate of the run, for Muon and
    StableAdamW.
    """
    names: dict[nn.Parameter, str] = {}
    for name, parameter in named_parameters:
        names.setdefault(parameter, name)
    assert rate_share is None or isinstance(constants, AdamW), "the others have one schedule for all parameters"
    rules: dict[nn.Parameter, UpdateRule] = {}
    match constants:
        case Lamb():
            rules |= dict.fromkeys(names, LambRule(names, constants))
        case Muon():
            assert peak is not None, "the rate of matrices is a multiple of the share of the peak"
            matrices = [each for each, name in names.items() if each.ndim == 2 and _is_layer_matrix(name)]
            rules |= dict.fromkeys(matrices, MuonRule(matrices, constants, peak))
            if rest := [each for each in names if each not in rules]:
                adamw = AdamW(betas=constants.betas, eps=constants.eps, weight_decay=constants.weight_decay)
                rules |= dict.fromkeys(rest, AdamWRule(rest, adamw, {}))
        case StableAdamW():
            assert peak is not None, "weight decay is per step at the peak"
            rules |= dict.fromkeys(names, StableAdamWRule(names, constants, peak))
        case AdamW():
            shares = {} if rate_share is None else {each: rate_share(name) for each, name in names.items()}
            rules |= dict.fromkeys(names, AdamWRule(names, constants, shares))
    return Optimizer(names, rules)


def _is_layer_matrix(name: str) -> bool:
    """Return whether Muon updates the matrix with this name: those of encoder and generator but the embeddings."""
    return name.startswith(("encoder.", "generator.")) and "_embeddings." not in name


class StableAdamWRule(AdamWRule):
    """StableAdamW (Wortsman et al. 2023), with weight decay that depends on the schedule but not on the peak.

    With m and v the debiased moments, g the gradient and d the decay, for each tensor w:

        r = max(1, sqrt(mean(g^2 / max(v, eps^2))))
        w = (1 - d lr / peak) w - lr / r m / (sqrt(v) + eps)

    Torch's kernel updates the moments, at a rate of 0.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], constants: StableAdamW, peak: float) -> None:
        super().__init__(parameters, AdamW(betas=constants.betas, eps=constants.eps, weight_decay=0.0), {})
        self._decay, self._peak = constants.weight_decay_per_step, peak

    @torch.no_grad()
    def update(self, learning_rate: float, number: int, clipping: Clipping | None) -> None:
        weights: list[Tensor] = [each for group in self.param_groups for each in group["params"]]
        weights = [each for each in weights if each.grad is not None]
        if not weights:
            return
        gradients = [each.grad for each in weights if each.grad is not None]
        if clipping is not None:  # The ratios below read the clipped gradients too.
            torch._foreach_div_(gradients, clipping.grad_scale)
            clipping = replace(clipping, grad_scale=torch.ones_like(clipping.grad_scale))
        super().update(0.0, number, clipping)
        first, second = ([self.state[each][name] for each in weights] for name in MOMENTS)
        beta1, beta2 = self._constants.betas
        roots = torch._foreach_sqrt(second)
        torch._foreach_div_(roots, math.sqrt(1 - beta2**number))
        ratios = torch._foreach_div(gradients, torch._foreach_clamp_min(roots, self._constants.eps))
        norms = torch._foreach_norm(ratios)
        torch._foreach_div_(norms, [math.sqrt(each.numel()) for each in weights])
        rates = -learning_rate / (1 - beta1**number) / torch.stack(norms).clamp(min=1)
        kept = rates.new_full((), 1 - self._decay * learning_rate / self._peak)
        if clipping is not None:  # A skipped update has left the moments.
            keeps = clipping.found_inf == 0
            rates, kept = torch.where(keeps, rates, 0.0), torch.where(keeps, kept, 1.0)
        torch._foreach_add_(roots, self._constants.eps)
        updates = torch._foreach_div(first, roots)
        torch._foreach_mul_(updates, list(rates.unbind()))
        if decayed := [each for each in weights if each.ndim > 1]:
            torch._foreach_mul_(decayed, kept)
        torch._foreach_add_(weights, updates)


class LambRule:
    """LAMB (You et al. 2020) as in ALBERT's code (lamb_optimizer.py:40-122).

    With m and v the moments (not corrected for their bias) and d the decay:

        u = m / (sqrt(v) + eps) + d w        of a matrix w; of a bias or LayerNorm without d w
        w = w - lr r u                       r = |w| / |u|, 1 if either is 0; always 1 for biases and LayerNorm
    """

    moments: ClassVar[tuple[str, ...]] = MOMENTS

    def __init__(self, parameters: Iterable[nn.Parameter], constants: Lamb) -> None:
        self._parameters, self._constants = list(parameters), constants
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}

    @torch.no_grad()
    def update(self, learning_rate: float, number: int, clipping: Clipping | None) -> None:
        (beta1, beta2), constants = self._constants.betas, self._constants
        if clipping is not None:
            if clipping.found_inf:  # Waits for the GPU.
                return
            for weight in self._parameters:
                if weight.grad is not None:
                    weight.grad.div_(clipping.grad_scale)
        for weight in self._parameters:
            if weight.grad is None:
                continue
            if weight not in self.state:
                self.state[weight] = {name: torch.zeros_like(weight) for name in MOMENTS}
            first, second = (self.state[weight][name] for name in MOMENTS)
            first.lerp_(weight.grad, 1 - beta1)
            second.mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
            update = first / (second.sqrt() + constants.eps)
            if weight.ndim > 1:
                update += constants.weight_decay * weight
                size, length = weight.norm(), update.norm()
                update *= torch.where((size > 0) & (length > 0), size / length, 1.0)
            weight.sub_(update, alpha=learning_rate)


class MuonRule:
    """Muon (Jordan et al. 2024) as in `torch.optim.Muon`, for matrices of the same shape at once.

    With the gradient g of a matrix w of shape (a, b), and mu the momentum:

        m = mu m + (1 - mu) g
        u = orthogonalized(mu m + (1 - mu) g)
        w = (1 - lr d) w - lr sqrt(max(1, a / b)) u

    Torch's class launches some 20 kernels for each matrix, and computes in bfloat16 on a CPU too.
    """

    moments: ClassVar[tuple[str, ...]] = ("momentum",)

    def __init__(self, matrices: Iterable[nn.Parameter], constants: Muon, peak: float) -> None:
        self._constants, self._peak = constants, peak
        self._by_shape: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for matrix in matrices:
            self._by_shape.setdefault(tuple(matrix.shape), []).append(matrix)
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    @torch.no_grad()
    def update(self, learning_rate: float, number: int, clipping: Clipping | None) -> None:
        constants = self._constants
        rate = constants.matrix_learning_rate * learning_rate / self._peak
        for (rows, columns), matrices in self._by_shape.items():
            weights: list[Tensor] = [each for each in matrices if each.grad is not None]
            if not weights:
                continue
            for each in weights:
                self.state.setdefault(each, {"momentum": torch.zeros_like(each)})
            momentum = [self.state[each]["momentum"] for each in weights]
            gradients = torch.stack([each.grad for each in weights if each.grad is not None])
            kept = 1 - rate * constants.weight_decay
            size = -rate * math.sqrt(max(1.0, rows / columns))
            if clipping is None:
                decay, scale = torch.tensor(kept), torch.tensor(size)
            else:
                # A skipped update has the momentum as gradient, which leaves it as it is, and no rate.
                keeps = clipping.found_inf == 0
                gradients = torch.where(keeps, gradients / clipping.grad_scale, torch.stack(momentum))
                decay, scale = torch.where(keeps, kept, 1.0), torch.where(keeps, size, 0.0)
            each_gradient = list(gradients.unbind())
            torch._foreach_lerp_(momentum, each_gradient, 1 - constants.momentum)
            direction = torch.stack(torch._foreach_lerp(each_gradient, momentum, constants.momentum))
            torch._foreach_mul_(weights, decay)
            torch._foreach_add_(weights, list((scale * orthogonalize(direction)).unbind()))


def orthogonalize(matrices: Tensor) -> Tensor:
    """Return matrices with the same singular vectors and singular values near 1, by five Newton-Schulz iterations.

    Shape (N, a, b); with the coefficients of Jordan et al. (2024), singular values are about 0.7 to 1.2. In bfloat16 on
    a GPU.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    wide: Tensor = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    result: Tensor = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    result = result.bfloat16() if result.is_cuda else result
    for _ in range(5):
        gram = result @ result.mT
        result = torch.baddbmm(result, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), result, beta=a)
    result = result if wide is matrices else result.mT
    return result.to(matrices.dtype).contiguous()
