"""The heads that are trained on labelled examples: what the families' transformers classes compute, on flat tokens.

The differences between classes are rows of data (`interchange.families`, `TaskHead`); here is the one module that
computes any of them.

| family | sequence | choice |
|---|---|---|
| BERT, ALBERT, ERNIE | pooled, dropout, linear | the same |
| RoBERTa | first token, dropout, dense, tanh, dropout, linear | pooled, dropout, linear |
| ELECTRA | first token, dropout, dense, gelu, dropout, linear | first token, dense, gelu, dropout, linear |
| DistilBERT | first token, dense, relu, dropout, linear | the same |

Over tokens it is dropout and linear, for answers a linear layer alone; DistilBERT has dropout before it there, too.

T tokens, B sequences, M targets, H hidden, C outputs.
"""

from typing import final

from torch import Tensor, nn

from maskwright.core.tensors import EncoderOutput, activation
from maskwright.core.types import HeadKind
from maskwright.finetuning.features import FeatureBatch
from maskwright.huggingface.families.base import TaskHead
from maskwright.kernels.dropout import DropoutKey, dropout
from maskwright.model.config import EncoderConfig
from maskwright.model.layer import DROPOUT_CALLS


@final
class Head(nn.Module):
    """A head for labelled examples.

    Args:
        kind: What it scores.
        row: How the family's class computes it.
        config: The shape of the encoder it sits on.
        num_outputs: C, width of the last layer.
        rate: Share dropped before the last layer, and of what goes into the dense layer where the class does that.

    Attributes:
        dense: Linear H -> H before the last layer; None where the class has none.
        output: Linear H -> C.
        rate: As given.
    """

    def __init__(self, kind: HeadKind, row: TaskHead, config: EncoderConfig, num_outputs: int, rate: float) -> None:
        super().__init__()
        width = config.hidden_size
        self.dense = nn.Linear(width, width) if row.dense else None
        self.output = nn.Linear(width, num_outputs)
        self.rate = rate
        self._kind = kind
        self._row = row
        # The encoder's calls come first, with the same key: one after the embeddings, the others in its layers.
        self._first_call = 1 + DROPOUT_CALLS * config.num_layers

    def forward(self, output: EncoderOutput, batch: FeatureBatch, dropout_key: int | None) -> Tensor:
        """Score a batch. In training mode values are dropped, if there is a key.

        Args:
            output: What the encoder made of `batch.batch`.
            batch: Which sequences there are, and at which tokens tags are asked.
            dropout_key: Key of the batch's masks; None drops nothing.

        Returns:
            Scores in fp32. "sequence" (B, C), "token" (M, C) at `batch.positions`, "span" (T, 2) at every slot,
            "choice" (B, 1).
        """
        return self.score(self._read(output, batch), dropout_key)

    def score(self, hidden: Tensor, dropout_key: int | None = None) -> Tensor:
        """Score what is read already: hidden states at the slots that `reads` names, or pooled vectors (see `forward`).

        Args:
            hidden: Shape (W, H).
            dropout_key: Key of the batch's masks; None drops nothing.
        """
        key = None
        if self.training and dropout_key is not None:
            key = DropoutKey.on(hidden.device, dropout_key)
        if self.dense is not None:
            if self._row.drops_source:
                hidden = dropout(hidden, self.rate, key, self._first_call)
            hidden = activation(self._row.activation, self.dense(hidden))
        scores: Tensor = self.output(dropout(hidden, self.rate, key, self._first_call + 1))
        return scores.float()

    def reads(self, batch: FeatureBatch) -> Tensor | None:
        """Return the slots whose hidden states are read, as `Encoder.forward` takes them; None for all. Shape (W,)."""
        if self._row.source in ("pooled", "first"):
            return batch.batch.first_tokens
        if self._kind == "token" and batch.positions is None:
            raise ValueError("a head over tokens needs to know at which: the batch has no positions")
        return batch.positions

    def _read(self, output: EncoderOutput, batch: FeatureBatch) -> Tensor:
        if self._row.source == "pooled":
            if output.pooled is None:
                raise ValueError(f"a head of {self._row.architecture} reads the pooled vector, which is not made")
            return output.pooled
        slots = self.reads(batch)
        return output.hidden if slots is None else output.hidden[slots]
