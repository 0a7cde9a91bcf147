"""The kernels of attention over short runs, in Triton's interpreter, against one run after the other."""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys

import pytest


def _interprets() -> bool:
    # The interpreter of versions before cannot loop to a number in memory with NumPy 2.4.
    if importlib.util.find_spec("triton") is None:
        return False
    return tuple(map(int, importlib.metadata.version("triton").split(".")[:2])) >= (3, 7)


needs_triton = pytest.mark.skipif(not _interprets(), reason="needs Triton 3.7 or later")

CASES = {
    "64": {"lengths": [64, 33, 31, 1, 2, 60, 32], "row_length": 64},
    "128": {"lengths": [128, 100, 27, 65, 63, 127], "row_length": 128},
    "rows of words": {"lengths": [65, 31, 64, 30, 96], "row_length": 96},
    "odd rows": {"lengths": [61, 30, 2, 1], "row_length": 65},
    "runs in a longer row": {"lengths": [128, 100], "row_length": 512},
}

# In a process of its own: whether kernels are interpreted is decided when Triton is imported. In fp32, since the
# interpreter multiplies matrices of bf16 as if they were integers.
CHILD = """
import json, sys
import numpy, torch
from maskwright.kernels.attention import attend
from maskwright.kernels.attention import AttentionPlan, Runs
from maskwright.kernels.dropout import DropoutKey, RandomWords
from maskwright.kernels.cuda import attention, launches

numpy.seterr(all="ignore")  # Products of 64 bits are meant to overflow.
num_heads, head_size = 2, 16


def errors(lengths, row_length, rate):
    torch.manual_seed(0)
    offsets, slots, row, filled = [0], [], 0, 0
    for length in lengths:
        offsets.append(offsets[-1] + length)
        if filled + length > row_length:
            row, filled = row + 1, 0
        slots.append(row * row_length + filled)
        filled += length
    offsets, slots = torch.tensor(offsets), torch.tensor(slots)
    runs = Runs(offsets=offsets, real=slots >= 0, slots=slots, row_length=row_length, num_rows=row + 1)
    key = DropoutKey.on(torch.device("cpu"), 7) if rate else None
    qkv = torch.randn(int(offsets[-1]), 3 * num_heads * head_size, requires_grad=True)
    expected = attend(
        *qkv.chunk(3, 1), AttentionPlan("reference", row_length, runs=runs), num_heads=num_heads, dropout_rate=rate,
        dropout_key=key, dropout_call=3,
    )
    slope = torch.randn_like(expected)
    (expected_slope,) = torch.autograd.grad(expected, qkv, slope)
    # Two empty runs follow.
    padded = torch.cat([offsets, offsets[-1:].expand(2)]).int(), torch.cat([slots, slots.new_zeros(2)])
    given = dict(
        num_heads=num_heads, longest=max(lengths), row_length=row_length, rate=rate,
        words=key and RandomWords.of(runs.pair_shape(num_heads), key, 3),
    )
    qkv, expected = qkv.detach(), expected.detach()
    mixed, logsumexp = attention.forward(qkv, *padded, **given)
    slope, sums = attention.backward(slope, qkv, mixed, logsumexp, *padded, **given)
    pairs = (mixed, expected), (slope, expected_slope), (sums, expected_slope.sum(0))
    return [float((one - other).abs().max()) for one, other in pairs]


def long_filler():
    offsets, slots = torch.tensor([0, 20, 120], dtype=torch.int32), torch.zeros(2, dtype=torch.int64)
    given = dict(num_heads=num_heads, longest=32, row_length=32, words=None, rate=0.0)
    qkv = torch.randn(120, 3 * num_heads * head_size)
    mixed, logsumexp = attention.forward(qkv, offsets, slots, **given)
    slope, sums = attention.backward(torch.ones_like(mixed), qkv, mixed, logsumexp, offsets, slots, **given)
    return [*(float(each[20:].abs().max()) for each in (mixed, slope)), float((sums - slope.sum(0)).abs().max())]


def join():
    slopes = [torch.randn(10000, num_heads, head_size) for _ in range(3)]
    expected = torch.cat([each.flatten(1) for each in slopes], 1)
    joined, sums = launches.join(*slopes)
    return [float((joined - expected).abs().max()), float((sums - expected.sum(0)).abs().max())]


cases = json.loads(sys.argv[1])
results = {name: [errors(**case, rate=rate) for rate in (0.0, 0.1)] for name, case in cases.items()}
print(json.dumps({**results, "filler": long_filler(), "joined": join()}))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, list[list[float]]]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(CASES)], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@needs_triton
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("drops", [False, True])
def test_kernels_compute_what_the_reference_does_with_the_same_masks(
    case: str, drops: bool, found: dict[str, list[list[float]]]
) -> None:
    mixed, slope, sums = found[case][drops]
    assert mixed < 1e-5
    assert slope < 5e-5
    assert sums < 5e-5


@needs_triton
def test_a_run_longer_than_said_is_filler_and_gets_zeros(found: dict[str, list[list[float]]]) -> None:
    mixed, slope, sums = found["filler"]
    assert mixed == slope == 0.0
    assert sums < 5e-5


@needs_triton
def test_three_slopes_are_laid_side_by_side_and_summed(found: dict[str, list[list[float]]]) -> None:
    difference, sums = found["joined"]
    assert difference == 0.0
    assert sums < 2e-3


def test_launches_do_not_import_triton_before_they_are_used() -> None:
    code = "import sys, maskwright.kernels.cuda.attention; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
