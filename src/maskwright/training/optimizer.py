"""AdamW and LAMB over named parameters, with gradient clipping; the state is two moments per parameter, by name."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maskwright.core.errors import CheckpointError
from maskwright.recipes.optimization import AdamW, Lamb, OptimizerSpec

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


class Optimizer:
    """The optimizer of a recipe. Biases and LayerNorm weights, the vectors of these models, have no weight decay.

    A parameter with several names (tied, shared by layers) counts once. `rate_share` gives the factor on the learning
    rate of the parameter with a name, for AdamW.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        constants: OptimizerSpec,
        rate_share: Callable[[str], float] | None = None,
    ) -> None:
        self.names: dict[nn.Parameter, str] = {}
        for name, parameter in named_parameters:
            self.names.setdefault(parameter, name)
        self.steps = 0
        if isinstance(constants, Lamb):
            assert rate_share is None, "LAMB has one rate for all parameters"
            self._rule: _AdamW | _Lamb = _Lamb(self.names, constants)
        else:
            shares = {} if rate_share is None else {each: rate_share(name) for each, name in self.names.items()}
            self._rule = _AdamW(self.names, constants, shares)

    @property
    def accepts_clipping(self) -> bool:
        """Whether `step` accepts a `Clipping`, so that the host need not wait for the norm."""
        return isinstance(self._rule, _AdamW)

    def step(self, learning_rate: float, clipping: Clipping | None = None, gradient_scale: float = 1.0) -> None:
        """Update all parameters that have a gradient; gradients are then dropped.

        They are clipped by the factor `gradient_scale` or, on a GPU and if the optimizer accepts it, by `clipping`.
        """
        self.steps += 1
        gradients = [parameter.grad for parameter in self.names if parameter.grad is not None]
        if gradient_scale != 1 and gradients:
            torch._foreach_mul_(gradients, gradient_scale)
        self._rule.update(learning_rate, self.steps, clipping)
        for parameter in self.names:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return both moments of every parameter, named "exp_avg.NAME" and "exp_avg_sq.NAME".

        A parameter that no loss depends on (a pooler without a pair objective) has no moments yet: they are zero.
        """
        return {
            f"{moment}.{name}": self._rule.state.get(parameter, {}).get(moment, torch.zeros_like(parameter))
            for parameter, name in self.names.items()
            for moment in MOMENTS
        }

    def load_state(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Load the moments after `steps` steps. Raises CheckpointError if a moment is missing or has another shape."""
        self.steps = steps
        for parameter, name in self.names.items():
            moments = {}
            for moment in MOMENTS:
                saved = state.get(f"{moment}.{name}")
                if saved is None or saved.shape != parameter.shape:
                    found = "nothing" if saved is None else f"shape {tuple(saved.shape)}"
                    raise CheckpointError(
                        f"optimizer state {moment} of {name}: found {found}, expected shape {tuple(parameter.shape)}",
                        todo="The checkpoint belongs to another model; choose another --out folder.",
                    )
                moments[moment] = saved.to(parameter.device, parameter.dtype, copy=True)
            if self.accepts_clipping:  # Torch counts the steps of each parameter, in a tensor.
                moments["step"] = torch.tensor(float(steps), dtype=torch.float32, device=parameter.device)
            self._rule.state[parameter] = moments


class _AdamW(torch.optim.AdamW):
    """PyTorch's fused AdamW, with or without Adam's bias correction.

    Google's BERT and ELECTRA omit the correction (bert:optimization.py:57-74): their update is
    lr * m / (sqrt(v) + eps). Torch always corrects, so at step t its rate, epsilon and decay are scaled such that the
    corrections cancel exactly: with a = 1 - beta1^t and b = sqrt(1 - beta2^t), lr' = lr a / b, eps' = eps / b,
    decay' = decay lr / lr'.
    """

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


class _Lamb:
    """LAMB (You et al. 2020) as in ALBERT's code (lamb_optimizer.py:40-122).

    With m and v the moments (not corrected for their bias) and d the decay:

        u = m / (sqrt(v) + eps) + d w        of a matrix w; of a bias or LayerNorm without d w
        w = w - lr r u                       r = |w| / |u|, 1 if either is 0; always 1 for biases and LayerNorm
    """

    def __init__(self, parameters: Iterable[nn.Parameter], constants: Lamb) -> None:
        self._parameters, self._constants = list(parameters), constants
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}

    @torch.no_grad()
    def update(self, learning_rate: float, number: int, clipping: Clipping | None) -> None:
        (beta1, beta2), constants = self._constants.betas, self._constants
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
