"""A trained model that sees the same batches as the student, without gradient and dropout."""

from dataclasses import replace

import torch
from torch import nn

from maskwright.core.errors import RecipeError
from maskwright.core.tensors import PackedBatch, View
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.pretext.objectives.heads import MaskedLanguageModelingHead
from maskwright.recipes.recipe import Recipe
from maskwright.training.existing import Differences, ExistingModel, differences_of_layers, settings

_WIDTH_FIELDS = ("hidden_size", "num_heads", "intermediate_size")


class TeacherModel:
    """An encoder with the heads that turn its hidden states into scores; never trained, never saved.

    Args:
        encoder: The teacher's encoder.
        heads: Its heads, by kind ("mlm").
        sees_segments: Whether it is given the segment ids; else all tokens are of segment 0.
    """

    def __init__(self, encoder: Encoder, heads: dict[str, nn.Module], sees_segments: bool = True) -> None:
        self.encoder = encoder.eval().requires_grad_(False)
        self.heads = {kind: head.eval().requires_grad_(False) for kind, head in heads.items()}
        self.sees_segments = sees_segments

    @property
    def config(self) -> EncoderConfig:
        """The shape of its encoder."""
        return self.encoder.config

    def to(self, device: torch.device) -> "TeacherModel":
        """Move it to a device, in place."""
        self.encoder.to(device)
        for head in self.heads.values():
            head.to(device)
        return self

    def view(self, batch: PackedBatch) -> View:
        """Encode a batch, without gradient."""
        if not self.sees_segments:
            batch = replace(batch, segment_ids=torch.zeros_like(batch.segment_ids))
        with torch.no_grad():
            output = self.encoder(batch)
        return View(output=output, word_embeddings=self.encoder.word_embeddings.weight, heads=self.heads)


def build_teacher(model: ExistingModel, recipe: Recipe) -> TeacherModel:
    """Build the teacher of a recipe from a model: its encoder without pooler and, if it has one, its masked-token head.

    The teacher of a student without segments gets segment 0 for every token (distillation: distiller.py).
    """
    config = model.config.replace(pooler=False)
    vocab_size = model.tokenizer.special_tokens.vocab_size
    with torch.device("meta"):  # Weights are loaded, not initialized.
        parts: dict[str, nn.Module] = {"encoder": Encoder(config, vocab_size)}
        if any(name.startswith("heads.mlm.") for name in model.state):
            parts["heads.mlm"] = MaskedLanguageModelingHead(config.head_shape(vocab_size))
    for prefix, module in parts.items():
        module.load_state_dict(
            {name: model.state[f"{prefix}.{name}"] for name in module.state_dict()}, assign=True, strict=True
        )
    encoder = parts.pop("encoder")
    assert isinstance(encoder, Encoder)
    heads = {prefix.removeprefix("heads."): module for prefix, module in parts.items()}
    return TeacherModel(encoder, heads, sees_segments=recipe.encoder.type_vocab_size > 1)


def check_teacher(recipe: Recipe, model: ExistingModel) -> None:
    """Check that a recipe can learn from a teacher. They share the tokenizer, so the vocabulary too.

    Raises:
        RecipeError: If it cannot.
    """
    mine, theirs = recipe.encoder, model.config
    for objective in recipe.objectives:
        if objective.needs_teacher_scores and not any(name.startswith("heads.mlm.") for name in model.state):
            raise RecipeError(
                f"objective {objective.kind!r} needs the scores of the teacher's masked-token head, and {model.name} "
                "has none",
                todo=f"Choose a teacher saved with that head, or leave {objective.kind!r} out of the objectives.",
            )
        if objective.needs_teacher_width and mine.hidden_size != theirs.hidden_size:
            fitting = settings(_to_compare(recipe, theirs))
            raise RecipeError(
                f"objective {objective.kind!r} compares hidden states, but those of the teacher {model.name} are "
                f"{theirs.hidden_size} wide and encoder.hidden_size is {mine.hidden_size}",
                todo=f"Give `{fitting}` or another size of the recipe, or leave {objective.kind!r} out of the "
                "objectives.",
            )
    if recipe.training.max_length > theirs.max_positions:
        raise RecipeError(
            f"training.phases reach length {recipe.training.max_length}, but the teacher {model.name} supports "
            f"{theirs.max_positions} tokens",
            todo=f"Give `--set 'training.phases=[{{share: 1.0, max_length: {theirs.max_positions}}}]'`.",
        )


def _to_compare(recipe: Recipe, theirs: EncoderConfig) -> Differences:
    """Return the fields to change so that hidden states are as wide as the teacher's and the recipe is valid."""
    different = differences_of_layers(recipe.encoder, theirs)
    if recipe.teacher is not None and recipe.teacher.initialize == "layers":
        return {field: values for field, values in different.items() if field != "position_offset"}
    # The heads must divide the width, and the feed-forward part keeps its proportion to it.
    return {field: different[field] for field in _WIDTH_FIELDS if field in different}
