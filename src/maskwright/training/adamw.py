"""AdamW as the recipes say it: which parameters decay, and Adam with or without bias correction."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from maskwright.recipes.optimization import AdamW


@dataclass(frozen=True, slots=True)
class Clipping:
    """What happens to gradients before an update, as numbers on their device, which nobody has to read first.

    Attributes:
        divisor: Gradients are divided by it, an fp32 scalar.
        refused: 1 if the update must not be made, else 0; an fp32 scalar.
    """

    divisor: Tensor
    refused: Tensor

    @classmethod
    def of(cls, norm: Tensor, loss: Tensor, most: float) -> "Clipping":
        """Return what scales gradients down to a norm, and refuses numbers that are none.

        Args:
            norm: The gradients' norm.
            loss: The summed losses.
            most: The norm allowed; 0 leaves gradients as they are.
        """
        refused = ~(norm.isfinite() & loss.isfinite())
        over = (norm + 1e-6) / most if most else torch.ones_like(norm)
        return cls(torch.where(over > 1, over, torch.ones_like(over)).float(), refused.float())


def total_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return the L2 norm over all elements of tensors on one device; not finite if an element is not."""
    # One tensor after another on a CPU: the `foreach` form sums each in another order.
    return torch.nn.utils.get_total_norm(tensors, foreach=bool(tensors) and not tensors[0].is_cpu)


def scale_gradients(parameters: Iterable[nn.Parameter], scale: float) -> None:
    """Multiply all gradients there are by a number, in place."""
    gradients = [gradient for each in parameters if (gradient := each.grad) is not None]
    if scale != 1 and gradients:
        torch._foreach_mul_(gradients, scale)


class AdamWRule:
    """PyTorch's fused AdamW with the constants of a recipe.

    Google's BERT and ELECTRA leave Adam's bias correction out (bert:optimization.py:57-74): their update is
    lr * m / (sqrt(v) + eps). Torch always corrects, so at step t the rate, the epsilon and the decay handed to it are
    scaled such that its corrections cancel exactly: with a = 1 - beta1^t and b = sqrt(1 - beta2^t),
    lr' = lr a / b, eps' = eps / b, decay' = decay lr / lr'.

    Args:
        decayed: Parameters with weight decay.
        plain: Parameters without.
        constants: The recipe's optimizer.
        shares: Factor on the learning rate of some parameters; 1 for the others.
    """

    def __init__(
        self,
        decayed: Sequence[nn.Parameter],
        plain: Sequence[nn.Parameter],
        constants: AdamW,
        shares: Mapping[nn.Parameter, float] = MappingProxyType({}),
    ) -> None:
        self.constants = constants
        self._parameters = [*decayed, *plain]
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for parameters, decay in ((decayed, constants.weight_decay), (plain, 0.0)):
            for parameter in parameters:
                groups.setdefault((decay, shares.get(parameter, 1.0)), []).append(parameter)
        self.decays_and_shares = list(groups)
        self._torch = torch.optim.AdamW(
            [{"params": parameters} for parameters in groups.values()],
            lr=0.0,
            betas=constants.betas,
            eps=constants.eps,
            fused=True,
        )

    def step(
        self, learning_rate: float, number: int, clipping: Clipping | None = None, gradient_scale: float = 1.0
    ) -> None:
        """Update every parameter that has a gradient.

        Args:
            learning_rate: For this step.
            number: The step's number, from 1.
            clipping: What is done to gradients first (on a GPU); None leaves them as they are.
            gradient_scale: What they are multiplied by first.
        """
        rate, eps, scale = learning_rate, self.constants.eps, 1.0
        if not self.constants.bias_correction:
            beta1, beta2 = self.constants.betas
            first, second = 1 - beta1**number, math.sqrt(1 - beta2**number)
            scale = first / second
            rate, eps = learning_rate * scale, self.constants.eps / second
        scale_gradients(self._parameters, gradient_scale)
        for group, (decay, share) in zip(self._torch.param_groups, self.decays_and_shares, strict=True):
            group["lr"], group["eps"], group["weight_decay"] = rate * share, eps, decay / scale
        # What torch's scaler of losses tells its optimizers: its kernel divides by the one and obeys the other.
        told = (None, None) if clipping is None else (clipping.divisor, clipping.refused)
        self._torch.grad_scale, self._torch.found_inf = told  # type: ignore[attr-defined]
        self._torch.step()

    def moments(self, parameter: nn.Parameter) -> Mapping[str, Tensor]:
        """Return "exp_avg" and "exp_avg_sq" of a parameter; nothing before its first gradient."""
        moments: Mapping[str, Tensor] = self._torch.state.get(parameter, {})
        return moments

    def set_moments(self, parameter: nn.Parameter, moments: Mapping[str, Tensor], steps: int) -> None:
        """Give a parameter the moments that it had after `steps` steps."""
        count = torch.tensor(float(steps), dtype=torch.float32, device=parameter.device)
        self._torch.state[parameter] = {"step": count, **moments}
