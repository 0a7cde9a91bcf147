"""The optimizer: gradient clipping, the interface of update rules, AdamW, and the state, which is moments by name."""

import math
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from maskwright.core.errors import CheckpointError
from maskwright.recipes.optimization import AdamW

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True)
class Clipping:
    """Gradient clipping and the check for non-finite values as fp32 scalars on the device, as torch's GradScaler does.

    Gradients are divided by `grad_scale`; `found_inf` is 1 if the update must be skipped, else 0.
    """

    grad_scale: Tensor
    found_inf: Tensor

    @classmethod
    def of(cls, norm: Tensor, loss: Tensor, max_norm: float) -> "Clipping":
        """Clip gradients of this norm to `max_norm` (0 is off); skip the update if norm or loss are not finite."""
        found_inf = ~(norm.isfinite() & loss.isfinite())
        scale = (norm + 1e-6) / max_norm if max_norm else torch.ones_like(norm)
        return cls(torch.where(scale > 1, scale, torch.ones_like(scale)).float(), found_inf.float())


def total_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return the L2 norm over all elements of tensors on one device; not finite if an element is not."""
    # One tensor after another on a CPU: the `foreach` form sums each in another order.
    return torch.nn.utils.get_total_norm(tensors, foreach=bool(tensors) and not tensors[0].is_cpu)


def clipping_scale(norm: float, max_norm: float) -> float:
    """Return the factor that clips gradients of this norm to `max_norm`; 0 is off."""
    return max_norm / (norm + 1e-6) if max_norm and norm > max_norm else 1.0


class UpdateRule(Protocol):
    """The update of some parameters; `moments` are the tensors that `state` has of each parameter, in its shape."""

    moments: ClassVar[tuple[str, ...]]

    @property
    def state(self) -> MutableMapping[Any, Any]: ...

    def update(self, learning_rate: float, number: int, clipping: Clipping | None) -> None: ...


class AdamWRule(torch.optim.AdamW):
    """PyTorch's fused AdamW, with or without Adam's bias correction.

    Google's BERT and ELECTRA omit the correction (bert:optimization.py:57-74): their update is
    lr * m / (sqrt(v) + eps). Torch always corrects, so at step t its rate, epsilon and decay are scaled such that the
    corrections cancel exactly: with a = 1 - beta1^t and b = sqrt(1 - beta2^t), lr' = lr a / b, eps' = eps / b,
    decay' = decay lr / lr'.
    """

    moments: ClassVar[tuple[str, ...]] = MOMENTS

    def __init__(
        self, parameters: Iterable[nn.Parameter], constants: AdamW, shares: Mapping[nn.Parameter, float]
    ) -> None:
        self._constants = constants
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for parameter in parameters:
            decays = constants.decayed == "all" or parameter.ndim > 1
            key = constants.weight_decay if decays else 0.0, shares.get(parameter, 1.0)
            groups.setdefault(key, []).append(parameter)
        super().__init__(
            [{"params": group, "decay": decay, "share": share} for (decay, share), group in groups.items()],
            lr=0.0,
            betas=constants.betas,
            fused=True,
        )

    def update(self, learning_rate: float, number: int, clipping: Clipping | None) -> None:
        first = second = 1.0
        if not self._constants.bias_correction:
            beta1, beta2 = self._constants.betas
            first, second = 1 - beta1**number, math.sqrt(1 - beta2**number)
        scale = first / second
        for group in self.param_groups:
            group["lr"] = learning_rate * scale * group["share"]
            group["eps"], group["weight_decay"] = self._constants.eps / second, group["decay"] / scale
        # The attributes that torch's GradScaler sets: the kernel divides by the one and obeys the other.
        self.grad_scale = None if clipping is None else clipping.grad_scale
        self.found_inf = None if clipping is None else clipping.found_inf
        self.step()


@dataclass(eq=False, slots=True)
class Optimizer:
    """Parameters, each once, with their first names and update rules (`update_rules.build_optimizer`)."""

    names: Mapping[nn.Parameter, str]
    rules: Mapping[nn.Parameter, UpdateRule]
    steps: int = 0

    def step(self, learning_rate: float, clipping: Clipping | None = None, gradient_scale: float = 1.0) -> None:
        """Update all parameters that have a gradient; gradients are then dropped.

        They are clipped by the factor `gradient_scale` or, on a GPU, by `clipping`.
        """
        self.steps += 1
        gradients = [parameter.grad for parameter in self.names if parameter.grad is not None]
        if gradient_scale != 1 and gradients:
            torch._foreach_mul_(gradients, gradient_scale)
        for rule in dict.fromkeys(self.rules.values()):
            rule.update(learning_rate, self.steps, clipping)
        for parameter in self.names:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return the moments of every parameter, named "exp_avg.NAME", "exp_avg_sq.NAME" or "momentum.NAME".

        A parameter that no loss depends on (a pooler without a pair objective) has no moments yet: they are zero.
        """
        return {
            f"{moment}.{name}": self.rules[parameter].state.get(parameter, {}).get(moment, torch.zeros_like(parameter))
            for parameter, name in self.names.items()
            for moment in self.rules[parameter].moments
        }

    def load_state(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Load the moments after `steps` steps. Raises CheckpointError if a moment is missing or has another shape."""
        self.steps = steps
        for parameter, name in self.names.items():
            moments, rule = {}, self.rules[parameter]
            for moment in rule.moments:
                saved = state.get(f"{moment}.{name}")
                if saved is None or saved.shape != parameter.shape:
                    actual = "nothing" if saved is None else f"shape {tuple(saved.shape)}"
                    raise CheckpointError(
                        f"optimizer state {moment} of {name}: found {actual}, expected shape {tuple(parameter.shape)}",
                        hint="The checkpoint belongs to another model; choose another --out folder.",
                    )
                moments[moment] = saved.to(parameter.device, parameter.dtype, copy=True)
            if isinstance(rule, AdamWRule):  # Torch counts the steps of each parameter, in a tensor.
                moments["step"] = torch.tensor(float(steps), dtype=torch.float32, device=parameter.device)
            rule.state[parameter] = moments
