"""AdamW and the norm of gradients by C code of our own (`adamw.c`): one call each, however many tensors there are.

Between the backward pass and the next step every gradient is read twice, for the norm and for the update, and every
weight and moment once. PyTorch's operations are called tensor by tensor, and read and write all gradients once more
where they are clipped.
"""

import ctypes
from array import array
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maskwright.core.native.library import AVX512, Code
from maskwright.core.own_code import is_allowed

_FEWEST = 16_384
"""Elements for which a thread is woken: it computes them in about the time that waking it takes."""


class _Update(ctypes.Structure):
    """`Update` of `adamw.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("sizes", "gradients", "weights", "first", "second", "steps", "decays")),
        ("count", ctypes.c_int64),
        *((name, ctypes.c_double) for name in ("rate", "epsilon", "beta1", "beta2", "shrinkage", "scale")),
    ]


def _declare(found: ctypes.CDLL) -> None:
    pointer = ctypes.c_void_p
    found.chunks_of_all.argtypes, found.chunks_of_all.restype = (pointer, ctypes.c_int64), ctypes.c_int64
    found.norm.argtypes = (pointer, pointer, ctypes.c_int64, pointer, ctypes.c_int)
    found.norm.restype = ctypes.c_double
    found.update.argtypes, found.update.restype = (pointer, ctypes.c_int), None


CODE = Code(Path(__file__).with_name("adamw.c"), AVX512, _declare, shares_threads=True)


def total_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return the root of the sum of the squares of all elements: no finite number if one of them is none.

    Args:
        tensors: Gradients, of any shapes, all on one device.

    Returns:
        A scalar on their device, in fp32, or in fp64 where our own code computed it.
    """
    library = CODE.library() if tensors and is_allowed() and tensors[0].is_cpu else None
    where = _addresses(tensors) if library else None
    if library is None or where is None:
        return torch.nn.utils.get_total_norm(tensors, foreach=bool(tensors) and not tensors[0].is_cpu)
    sizes = array("q", [tensor.numel() for tensor in tensors])
    count, at = len(sizes), _begin(sizes)
    room = torch.empty(library.chunks_of_all(at, count), dtype=torch.float32)
    norm = library.norm(_begin(where), at, count, room.data_ptr(), _threads_for(sum(sizes)))
    return torch.tensor(norm, dtype=torch.float64)


@dataclass(frozen=True, slots=True)
class Step:
    """The constants of one update, as torch's AdamW takes them.

    Attributes:
        rate: The learning rate.
        epsilon: Added to the root of the second moment.
        betas: Decay rates of the moments.
        shrinkage: Times a parameter's decay: the share of its weights that is taken off.
        gradient_scale: Gradients are multiplied by it.
    """

    rate: float
    epsilon: float
    betas: tuple[float, float]
    shrinkage: float
    gradient_scale: float


class NativeUpdate:
    """Torch's AdamW of many parameters at once.

    Args:
        decays: The weight decay of each parameter, per unit of learning rate.
        state: Torch's own: "step", "exp_avg" and "exp_avg_sq" by parameter, made here where they are not there yet.
    """

    def __init__(self, decays: Mapping[nn.Parameter, float], state: MutableMapping[Tensor, Any]) -> None:
        self._decays, self._state = decays, state
        self._placed: _Placed | None = None

    def forget(self) -> None:
        """Look anew where moments lie: some were exchanged."""
        self._placed = None

    def update(self, step: Step) -> bool:
        """Update every parameter that has a gradient, if our own code can do all of them: fp32, in one piece each, on a
        processor that has the code. Else nothing is done.

        Args:
            step: Its constants.

        Returns:
            Whether they were updated.
        """
        pairs = [(each, gradient) for each in self._decays if (gradient := each.grad) is not None]
        library = CODE.library() if pairs and pairs[0][0].is_cpu and is_allowed() else None
        if library is None:
            return False
        gradients = _addresses([gradient for _, gradient in pairs])
        placed = self._place([each for each, _ in pairs])
        if gradients is None or placed is None:
            return False
        call = _Update(
            sizes=_begin(placed.sizes),
            gradients=_begin(gradients),
            weights=_begin(placed.weights),
            first=_begin(placed.first),
            second=_begin(placed.second),
            steps=_begin(placed.steps),
            decays=_begin(placed.decays),
            count=len(pairs),
            rate=step.rate,
            epsilon=step.epsilon,
            beta1=step.betas[0],
            beta2=step.betas[1],
            shrinkage=step.shrinkage,
            scale=step.gradient_scale,
        )
        library.update(ctypes.byref(call), _threads_for(placed.elements))
        # What autograd kept of a weight for a backward pass to come is no longer what it was.
        torch.autograd.graph.increment_version([each for each, _ in pairs])
        return True

    def _place(self, parameters: list[nn.Parameter]) -> "_Placed | None":
        where = array("q", [each.data_ptr() for each in parameters])
        if self._placed is None or self._placed.weights != where:
            is_read = all(each.is_cpu for each in parameters) and _addresses(parameters) is not None
            self._placed = self._look(parameters, where) if is_read else None
        return self._placed

    def _look(self, parameters: list[nn.Parameter], where: "array[int]") -> "_Placed | None":
        states = []
        for each in parameters:
            # Torch makes its state so, and looks whether there is any by its length.
            if not (state := self._state[each]):
                state["step"] = torch.zeros((), dtype=torch.float32)
                for moment in ("exp_avg", "exp_avg_sq"):
                    state[moment] = torch.zeros_like(each, memory_format=torch.preserve_format)
            states.append(state)
        first, second, steps = (
            _addresses([state[name] for state in states]) for name in ("exp_avg", "exp_avg_sq", "step")
        )
        if first is None or second is None or steps is None:
            return None
        sizes = array("q", [each.numel() for each in parameters])
        decays = array("d", [self._decays[each] for each in parameters])
        return _Placed(where, first, second, steps, sizes, decays, sum(sizes))


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where weights, moments and numbers of updates lie, how many elements each has, and what decays."""

    weights: "array[int]"
    first: "array[int]"
    second: "array[int]"
    steps: "array[int]"
    sizes: "array[int]"
    decays: "array[float]"
    elements: int


def _addresses(tensors: Sequence[Tensor]) -> "array[int] | None":
    """Return where tensors on the processor begin; None unless each is fp32 in one piece."""
    # Asked of hundreds in each step: loops that Python runs fast.
    if not all(map(Tensor.is_contiguous, tensors)) or {each.dtype for each in tensors} - {torch.float32}:
        return None
    return array("q", [each.data_ptr() for each in tensors])


def _begin(values: "array[Any]") -> int:
    return values.buffer_info()[0]


def _threads_for(elements: int) -> int:
    # All or one: a team of another size would end threads that the next operation starts again.
    threads = torch.get_num_threads()
    return threads if elements >= threads * _FEWEST else 1
