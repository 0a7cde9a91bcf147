import pytest
import torch
from flat_batches import packed

from maskwright.kernels.attention import choose_backend, plan_attention

FULL = (24, 24)


def test_no_mask_is_made_when_every_row_is_one_full_sequence():
    assert plan_attention(packed(FULL), "rows", torch.float32).mask is None
    assert plan_attention(packed((23, 24)), "rows", torch.float32).mask is not None
    assert plan_attention(packed((12, 12)), "rows", torch.float32).mask is not None


@pytest.mark.parametrize(
    ("row_length", "device", "dtype", "drops", "expected"),
    [
        (128, "cpu", torch.float32, False, "rows"),
        (512, "cpu", torch.float32, False, "sdpa"),
        (512, "cpu", torch.float32, True, "rows"),
        (128, "cuda", torch.bfloat16, True, "jagged"),
        (128, "cuda", torch.float32, True, "sdpa"),
    ],
)
def test_backend_is_chosen_by_what_can_be_done_fastest(row_length, device, dtype, drops, expected):
    assert choose_backend(row_length, device, dtype, drops=drops) == expected
