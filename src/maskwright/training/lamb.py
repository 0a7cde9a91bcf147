"""LAMB: Adam whose update of each matrix is scaled to the matrix's own norm (You et al. 2020)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from maskwright.recipes.optimization import Lamb


class LambRule:
    """LAMB with the constants of a recipe, as ALBERT's code has it (lamb_optimizer.py:40-122).

    With m and v the moments (not corrected for their bias) and d the decay:

        u = m / (sqrt(v) + eps) + d w        of a matrix w; of a bias or LayerNorm without d w
        w = w - lr r u                       r = |w| / |u|, 1 if either is 0; always 1 for biases and LayerNorm

    Args:
        matrices: Parameters that are decayed and scaled.
        vectors: Parameters that are neither.
        constants: The recipe's optimizer.
    """

    def __init__(self, matrices: Sequence[nn.Parameter], vectors: Sequence[nn.Parameter], constants: Lamb) -> None:
        self.constants = constants
        self._groups = (tuple(matrices), True), (tuple(vectors), False)
        self._moments: dict[nn.Parameter, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self, learning_rate: float, number: int) -> None:
        """Update every parameter that has a gradient.

        Args:
            learning_rate: For this step.
            number: The step's number, from 1; nothing here depends on it.
        """
        for parameters, is_scaled in self._groups:
            if reached := [parameter for parameter in parameters if parameter.grad is not None]:
                self._update(reached, is_scaled, learning_rate)

    def _update(self, parameters: list[nn.Parameter], is_scaled: bool, learning_rate: float) -> None:
        (beta1, beta2), constants = self.constants.betas, self.constants
        weights: list[Tensor] = list(parameters)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        first = [self._own(parameter)["exp_avg"] for parameter in parameters]
        second = [self._own(parameter)["exp_avg_sq"] for parameter in parameters]
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, value=1 - beta2)
        updates = list(torch._foreach_sqrt(second))
        torch._foreach_add_(updates, constants.eps)
        updates = list(torch._foreach_div(first, updates))
        if is_scaled:
            torch._foreach_add_(updates, weights, alpha=constants.weight_decay)
            sizes, steps = torch.stack(torch._foreach_norm(weights)), torch.stack(torch._foreach_norm(updates))
            ratios = torch.where((sizes > 0) & (steps > 0), sizes / steps, 1.0)
            torch._foreach_addcmul_(weights, updates, list(ratios.unbind()), value=-learning_rate)
        else:
            torch._foreach_add_(weights, updates, alpha=-learning_rate)

    def _own(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        if parameter not in self._moments:
            self._moments[parameter] = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        return self._moments[parameter]

    def moments(self, parameter: nn.Parameter) -> Mapping[str, Tensor]:
        """Return "exp_avg" and "exp_avg_sq" of a parameter; nothing before its first gradient."""
        return self._moments.get(parameter, {})

    def set_moments(self, parameter: nn.Parameter, moments: Mapping[str, Tensor], steps: int) -> None:
        """Give a parameter the moments that it had after `steps` steps."""
        self._moments[parameter] = dict(moments)
