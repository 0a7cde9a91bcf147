"""A teacher: a trained model that sees the same batches, without gradient and without dropout."""

import torch
from torch import nn

from maskwright.core.tensors import FlatBatch, View
from maskwright.encoder.encoder import Encoder


class TeacherModel:
    """An encoder with the heads that turn its hidden states into scores; never trained, never saved.

    Args:
        encoder: The teacher's encoder.
        heads: Its heads, by kind ("mlm").
    """

    def __init__(self, encoder: Encoder, heads: dict[str, nn.Module]) -> None:
        self.encoder = encoder.eval().requires_grad_(False)
        self.heads = {kind: head.eval().requires_grad_(False) for kind, head in heads.items()}

    def to(self, device: torch.device) -> "TeacherModel":
        """Move it to a device, in place."""
        self.encoder.to(device)
        for head in self.heads.values():
            head.to(device)
        return self

    def look(self, batch: FlatBatch) -> View:
        """Read a batch."""
        with torch.no_grad():
            output = self.encoder(batch)
        return View(output=output, word_embeddings=self.encoder.word_embeddings.weight, heads=self.heads)
