"""Cross entropy of a mixture of the input token and a softmax over the vocabulary (Clark et al. 2020, section 3.5)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.kernels.vocabulary_losses import (
    BLOCK_ELEMENTS,
    Computed,
    LogitParts,
    apply_loss,
    exact_dtype,
    loss_in_blocks,
    matmul_dtype,
    max_with_index,
)


def summed_copying_cross_entropy(
    parts: LogitParts, copying: Tensor, inputs: Tensor, labels: Tensor, block_elements: int = BLOCK_ELEMENTS
) -> tuple[Tensor, Tensor]:
    """Return the summed cross entropy of D [token = input] + (1 - D) softmax, and which predictions are correct.

    D is the sigmoid of `copying`, shape (M,); inputs and labels have shape (M,), int64. The results have shapes () in
    fp32 or finer, and (M,), bool.
    """
    dtype, with_gradients = matmul_dtype(parts.weight), torch.is_grad_enabled()
    exact = exact_dtype(dtype)
    is_right, copying_grad = torch.zeros_like(labels, dtype=torch.bool), torch.empty_like(copying)
    with torch.autocast(parts.features.device.type, enabled=False):

        def block_loss(block: slice, rounded: LogitParts) -> tuple[Tensor, Tensor, Tensor]:
            answers, tokens = labels[block, None], inputs[block, None]
            log_odds = copying.detach()[block, None].to(exact)
            log_copy, log_other = F.logsigmoid(log_odds), F.logsigmoid(-log_odds)
            logits = F.linear(*rounded).to(exact)
            log_probs = torch.log_softmax(logits, 1, out=logits)
            by_softmax = log_other + log_probs.gather(1, answers)
            of_answers = torch.where(tokens == answers, torch.logaddexp(log_copy, by_softmax), by_softmax)
            best, predicted = max_with_index(log_probs)
            copies = torch.logaddexp(log_copy, log_other + log_probs.gather(1, tokens)) >= log_other + best
            is_right[block] = (torch.where(copies, tokens, predicted) == answers).squeeze(1)
            if with_gradients:
                # q is the share of the softmax in the probability of the label:
                # d loss / d logits = q (softmax - one hot), d loss / d log-odds = q - (1 - D).
                q = (by_softmax - of_answers).exp()
                copying_grad[block] = (q - torch.sigmoid(-log_odds)).squeeze(1)
                log_probs.exp_().scatter_add_(1, answers, torch.full_like(q, -1.0)).mul_(q)
            return -of_answers.sum(), is_right[block].sum(), log_probs

        def compute(leaves: LogitParts) -> Computed:
            length = max(1, block_elements // len(leaves.weight))
            total, correct, gradients = loss_in_blocks(leaves, length, block_loss, with_gradients=with_gradients)
            return total, correct, None if gradients is None else (*gradients, copying_grad)

        total, _ = apply_loss(LogitParts(*(part.to(dtype) for part in parts)), compute, copying)
    return total, is_right
