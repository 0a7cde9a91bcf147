"""Objectives with a teacher: match its predictions, hidden states (cosine), self-attention relations or vectors."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, cast

import numpy as np
from pydantic import Field, PositiveInt

from maskwright.core.errors import RecipeError
from maskwright.core.tensors import LossInputs, LossTerm, mean_of_tokens
from maskwright.core.types import Examples, HeadShape, Targets
from maskwright.pretext.objectives.base import EveryTokenObjective, Objective

if TYPE_CHECKING:
    from torch import Tensor, nn


_MLM = "mlm"


class TeacherObjective(Objective):
    """An objective with a teacher.

    Attributes:
        needs_teacher_width: Whether the teacher's hidden states must be as wide as the encoder's.
        needs_teacher_scores: Whether the loss uses the logits of the teacher's masked-token head.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})
    needs_teacher_width: ClassVar[bool] = False
    needs_teacher_scores: ClassVar[bool] = False

    def check_teacher(self, hidden_size: int, teacher_hidden_size: int, teacher_layers: int) -> None:
        """Raise RecipeError if encoders of these shapes cannot be student and teacher."""

    def relation_flops(self, hidden_size: int) -> float:
        """Return the FLOPs of one prediction for each token of its sequence that it is compared with, in one encoder.

        The backward pass has as many.
        """
        return 0.0


class SoftTargets(EveryTokenObjective, TeacherObjective):
    """Match the teacher's distribution over the vocabulary (Hinton et al. 2015; Sanh et al. 2019, section 3).

    The loss is the Kullback-Leibler divergence of the student's distribution from the teacher's, both softened by a
    temperature T, times T squared, which makes the size of its gradients independent of T (distillation:
    distiller.py:372-450). Both see the same masked input. A prediction is correct where the student's best token is
    the teacher's. The logits are those of the masked-token heads; this objective has no weights of its own.

    Attributes:
        temperature: T, by which logits are divided before the softmax.
        loss_at: "selected" is the original's option `restrict_ce_to_mask` (distillation: train.py).
    """

    kind: Literal["soft_targets"] = "soft_targets"
    needs: ClassVar[frozenset[str]] = frozenset({"teacher", "mlm"})
    needs_teacher_scores: ClassVar[bool] = True
    temperature: float = Field(default=2.0, gt=0)

    def loss(self, head: "nn.Module", inputs: LossInputs) -> LossTerm:
        import torch

        from maskwright.kernels import ops

        assert inputs.teacher is not None, "Recipe checks that there is a teacher"
        positions = inputs.targets.positions
        student_head, teacher_head = inputs.encoded.heads[_MLM], inputs.teacher.heads[_MLM]
        features = student_head(inputs.encoded.output.hidden[positions])
        with torch.no_grad():
            teacher_features = teacher_head(inputs.teacher.output.hidden[positions])
        total, agreed = ops.summed_divergence(
            ops.LogitParts(features, inputs.encoded.word_embeddings, cast("Tensor", student_head.bias)),
            ops.LogitParts(teacher_features, inputs.teacher.word_embeddings, cast("Tensor", teacher_head.bias)),
            self.temperature,
        )
        return LossTerm(total=total, correct=agreed)

    def flops(self, shape: HeadShape) -> float:
        """Dense H x E, output E x V; the teacher's own head is counted with the teacher."""
        return 2.0 * (shape.hidden_size * shape.embedding_size + shape.embedding_size * shape.vocab_size)


class _EncoderComparison(TeacherObjective):
    """A comparison of two encoders at all tokens, special ones too, without an accuracy or weights of its own."""

    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "every_token"
    uses_all_tokens: ClassVar[bool] = True

    def targets(self, examples: Examples) -> Targets:
        """Return all tokens; the labels, the tokens themselves, are not used."""
        ids = examples.instances.ids
        return Targets(positions=np.arange(len(ids)), labels=ids.astype(np.int64))


class Cosine(_EncoderComparison):
    """Align the last hidden states of all tokens with the teacher's (Sanh et al. 2019, section 3).

    The loss at a token is 1 - cos(student, teacher), the cosine-embedding loss with target 1 (distillation:
    distiller.py:372-450). The mean cosine is reported.
    """

    kind: Literal["cosine"] = "cosine"
    needs_teacher_width: ClassVar[bool] = True

    def loss(self, head: "nn.Module", inputs: LossInputs) -> LossTerm:
        """Sum 1 - cosine over the targets, in fp32. Tally: the sum of the "cosine"."""
        import torch

        assert inputs.teacher is not None, "Recipe checks that there is a teacher"
        positions = inputs.targets.positions
        student, teacher = (encoded.output.hidden[positions] for encoded in (inputs.encoded, inputs.teacher))
        exact = torch.promote_types(student.dtype, torch.float32)
        cosines = torch.nn.functional.cosine_similarity(student.to(exact), teacher.to(exact), dim=1)
        return LossTerm(total=(1 - cosines).sum(), correct=None, tallies={"cosine": cosines.detach().sum()})

    def flops(self, shape: HeadShape) -> float:
        """Three dot products of H numbers."""
        return 6.0 * shape.hidden_size

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Return the "mean" cosine."""
        return {"mean": tallies["cosine"] / count}


MOST_RELATION_HEADS = 48
"""The published number, for teachers of width 768 (Wang et al. 2021, section 4)."""


class Relations(_EncoderComparison):
    """Match the teacher's self-attention relations: of queries, of keys and of values (MiniLMv2, arXiv:2012.15828).

    The queries of all heads, concatenated, are split into relation heads; the relations of a head are the softmax of
    their scaled dot products within the sequence (section 3.1). The loss at a token is the Kullback-Leibler divergence
    of the student's relations from the teacher's, the mean of the relation heads, summed over queries, keys and values.
    So width, depth and attention heads of the student are free. The last layer is trained up to its projections only;
    another objective, such as "mlm", trains the rest.

    Attributes:
        relation_heads: Must divide both widths; None for the largest such number up to `MOST_RELATION_HEADS`.
        teacher_layer: The teacher's layer, counted from 1; None for the last. The paper takes the last of 12 layers,
            and one in the upper middle of 24 (section 3.2). The student's is its last.
    """

    kind: Literal["relations"] = "relations"
    relation_heads: PositiveInt | None = None
    teacher_layer: PositiveInt | None = None

    def check_teacher(self, hidden_size: int, teacher_hidden_size: int, teacher_layers: int) -> None:
        widths = math.gcd(hidden_size, teacher_hidden_size)
        if self.relation_heads is not None and widths % self.relation_heads:
            raise RecipeError(
                f"objectives.relations.relation_heads is {self.relation_heads}, which does not divide both the "
                f"student's width {hidden_size} and the teacher's, {teacher_hidden_size}",
                allowed=f"a divisor of {widths}, or null for {_most_relation_heads(hidden_size, teacher_hidden_size)}",
            )
        if self.teacher_layer is not None and self.teacher_layer > teacher_layers:
            raise RecipeError(
                f"objectives.relations.teacher_layer is {self.teacher_layer}, but the teacher has {teacher_layers} "
                "layers",
                allowed=f"1 to {teacher_layers}, or null for the last",
            )

    def qkv_layer(self, num_layers: int, *, of_teacher: bool) -> int | None:
        return (self.teacher_layer if of_teacher and self.teacher_layer else num_layers) - 1

    def loss(self, head: "nn.Module", inputs: LossInputs) -> LossTerm:
        """Sum the divergences over all tokens of the batch, which are the targets."""
        import torch

        from maskwright.kernels import ops

        assert inputs.teacher is not None, "Recipe checks that there is a teacher"
        assert inputs.batch is not None
        student, teacher = inputs.encoded.output.qkv, inputs.teacher.output.qkv
        assert student is not None, "qkv_layer requests them"
        assert teacher is not None, "qkv_layer requests them"
        sequences = ops.Sequences(inputs.batch.cu_seqlens, inputs.batch.max_seqlen)
        heads = self.relation_heads or _most_relation_heads(student[0].shape[1], teacher[0].shape[1])
        totals = [
            ops.summed_relation_divergence(ours, wanted, sequences, heads)
            for ours, wanted in zip(student, teacher, strict=True)
        ]
        return LossTerm(total=torch.stack(totals).sum(), correct=None)

    def flops(self, shape: HeadShape) -> float:
        return 0.0

    def relation_flops(self, hidden_size: int) -> float:
        """Three dot products of H numbers."""
        return 6.0 * hidden_size


def _most_relation_heads(hidden_size: int, teacher_hidden_size: int) -> int:
    widths = math.gcd(hidden_size, teacher_hidden_size)
    return next(heads for heads in range(MOST_RELATION_HEADS, 0, -1) if widths % heads == 0)


_FEWEST_COMPARED = 3
"""Sequences of a batch from which the similarities of any two are ranked."""


class SentenceVectors(TeacherObjective):
    """Match the vectors of a sentence embedder (Reimers and Gurevych 2020, arXiv:2004.09813, section 3).

    A sequence's vector is its pooled hidden states; the student's are mapped to the teacher's width by a linear layer
    if the widths differ, which the saved model keeps as a Dense module of sentence-transformers. The loss of a sequence
    is 1 - cosine, half the squared error of vectors of length 1. The mean cosine is reported.

    Attributes:
        pooling: Of teacher and student: "mean" of all tokens, or the "first"; None for the teacher's.
        vector_size: Width of the teacher's vectors; None until the teacher is known.
    """

    kind: Literal["sentence_vectors"] = "sentence_vectors"
    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "sequence"
    uses_all_tokens: ClassVar[bool] = True
    pooling: Literal["mean", "first"] | None = None
    vector_size: PositiveInt | None = None

    def targets(self, examples: Examples) -> Targets:
        """Return all sequences; the labels are not used."""
        sequences = np.arange(len(examples.instances))
        return Targets(positions=sequences, labels=sequences)

    def head(self, shape: HeadShape) -> "nn.Module":
        """Build the linear layer, if there is one."""
        from torch import nn

        projects = self.vector_size not in (None, shape.hidden_size)
        return nn.Linear(shape.hidden_size, self.vector_size or 0) if projects else nn.Identity()

    def num_parameters(self, shape: HeadShape) -> int:
        projects = self.vector_size not in (None, shape.hidden_size)
        return (shape.hidden_size + 1) * (self.vector_size or 0) if projects else 0

    def loss(self, head: "nn.Module", inputs: LossInputs) -> LossTerm:
        """Sum 1 - cosine over the sequences, in fp32.

        Tallies: the sum of the "cosine"; "spearman", the rank correlation of the similarities of any two vectors with
        the teacher's, times the "compared" sequences, both 0 for fewer than three.
        """
        import torch

        student, teacher = self._vectors(head, inputs)
        cosines = torch.nn.functional.cosine_similarity(student, teacher)
        tallies = {"cosine": cosines.detach().sum(), **dict.fromkeys(("spearman", "compared"), cosines.new_zeros(()))}
        if (compared := len(student)) >= _FEWEST_COMPARED:
            pairs = torch.triu_indices(compared, compared, 1, device=student.device).unbind()
            ranks = []
            for vectors in (student.detach(), teacher):
                directions = torch.nn.functional.normalize(vectors)
                ranks.append((directions @ directions.T)[pairs].argsort().argsort().to(vectors.dtype))
            tallies["spearman"] = compared * torch.corrcoef(torch.stack(ranks))[0, 1]
            tallies["compared"] = cosines.new_tensor(compared)
        return LossTerm(total=(1 - cosines).sum(), correct=None, tallies=tallies)

    def _vectors(self, head: "nn.Module", inputs: LossInputs) -> "tuple[Tensor, Tensor]":
        """Return the vectors of student and teacher, each of shape (B, `vector_size`), in fp32 or fp64."""
        import torch

        assert inputs.teacher is not None, "Recipe checks that there is a teacher"
        assert inputs.batch is not None
        vectors = []
        for encoded, layer in ((inputs.encoded, head), (inputs.teacher, inputs.teacher.heads[self.kind])):
            hidden = encoded.output.hidden
            hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
            is_first = self.pooling == "first"
            pooled = hidden[inputs.batch.first_tokens] if is_first else mean_of_tokens(hidden, inputs.batch)
            with torch.autocast(hidden.device.type, enabled=False):
                vectors.append(layer(pooled))
        return vectors[0], vectors[1]

    def flops(self, shape: HeadShape) -> float:
        """Dense H x vector size, if there is one."""
        return 2.0 * shape.hidden_size * self.vector_size if self.num_parameters(shape) and self.vector_size else 0.0

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Return the "mean" cosine and, if there were enough sequences, the mean "spearman" of the batches."""
        shares = {"mean": tallies["cosine"] / count}
        if tallies["compared"]:
            shares["spearman"] = tallies["spearman"] / tallies["compared"]
        return shares
