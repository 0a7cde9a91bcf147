"""The recipe: one choice on each axis of the BERT family, as one frozen value."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, cast

from pydantic import Field, PositiveInt, model_validator

from maskwright.core.fields import kind_of, members
from maskwright.core.spec import Spec
from maskwright.core.types import FamilyName
from maskwright.data.tokenizers.spec import TokenizerSpec
from maskwright.data.words.spec import Words
from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats import FormatChoice
from maskwright.pretext.masking import MaskingChoice
from maskwright.pretext.objectives import ObjectiveChoice
from maskwright.pretext.objectives.base import Objective, by_encoder
from maskwright.pretext.replacement import ReplacementChoice
from maskwright.recipes.optimization import Training

SHARED_EMBEDDINGS = ("word_embeddings", "position_embeddings", "segment_embeddings", "embedding_norm")
"""Modules that generator and encoder share if `Generator.shared` is "embeddings" (electra: one variable scope)."""


class MaskSampling(Spec):
    """Number of times that sequences and masks are sampled.

    Attributes:
        copies: None samples them in every epoch (dynamic masks: RoBERTa). A number k samples them k times and then
            repeats (static masks: BERT's dupe_factor 10).
    """

    copies: PositiveInt | None = None


class Generator(Spec):
    """A small masked language model whose samples replace the selected tokens (Clark et al. 2020, section 2).

    Its sizes follow the encoder's (electra: run_pretraining.py:338-350): as many layers, hidden size round(H x size),
    heads max(1, hidden size // 64), feed-forward 4 x hidden size. If that number of heads does not divide the hidden
    size (never at a published size), the next lower number that does is used.

    Attributes:
        size: Hidden size as a fraction of the encoder's.
        shared: "embeddings": generator and encoder share `SHARED_EMBEDDINGS`; "none": each has its own.
    """

    size: Annotated[float, Field(gt=0, le=1)] = 0.25
    shared: Literal["embeddings", "none"] = "embeddings"

    def config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Return the generator's shape for an encoder. It has no pooler."""
        hidden = max(1, round(encoder.hidden_size * self.size))
        return encoder.replace(
            hidden_size=hidden,
            num_heads=next(heads for heads in range(max(1, hidden // 64), 0, -1) if hidden % heads == 0),
            intermediate_size=4 * hidden,
            embedding_size=encoder.embedding_width,
            sharing="none",
            num_groups=1,
            blocks_per_group=1,
            pooler=False,
        )


class Teacher(Spec):
    """A trained model that the encoder is distilled from (Sanh et al. 2019).

    Attributes:
        model: A run directory, a Hugging Face directory or a hub name.
        initialize: "layers": the student starts with the teacher's embeddings, its masked-token head and some of its
            layers, evenly spaced (distillation: scripts/extract_distilbert.py takes 0, 2, 4, 7, 9 and 11 of 12), or, if
            it is narrower, with embeddings and layers on the principal axes of the teacher's states;
            "embeddings": with the embeddings only, on their principal axes if they are narrower; "none": it starts with
            random weights.
    """

    model: str = ""
    initialize: Literal["layers", "embeddings", "none"] = "layers"

    def published_config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Return the published teacher's shape, twice as deep as the student; the real one is in its directory."""
        return encoder.replace(num_layers=2 * encoder.num_layers)


class Recipe(Spec):
    """One system of the BERT family at one size.

    Attributes:
        name: "system/size".
        summary: Its special features, in one line.
        paper: The source of the constants.
        family: The Hugging Face classes that load the weights.
        generator: A second encoder, trained with the first, that replaces the selected tokens (ELECTRA).
        teacher: A trained model to distill (DistilBERT, MiniLMv2).
        training: The published schedule.
    """

    synonyms: ClassVar[Mapping[str, str]] = {
        "lr": "training.learning_rate",
        "batch_size": "training.batch_sequences",
        "max_steps": "training.steps",
        "num_train_steps": "training.steps",
        "warmup": "training.warmup_steps",
        "max_length": "training.phases.0.max_length",
        "seq_length": "training.phases.0.max_length",
        "dropout": "encoder.hidden_dropout",
        "layers": "encoder.num_layers",
        "heads": "encoder.num_heads",
        "activation": "encoder.hidden_activation",
        "mask_rate": "masking.rate",
        "masking_rate": "masking.rate",
        "mlm_probability": "masking.rate",
        "vocab": "tokenizer.vocab_size",
    }

    name: str
    summary: str = ""
    paper: str = ""
    family: FamilyName = "bert"
    tokenizer: TokenizerSpec
    words: Words = Words()
    format: FormatChoice
    masking: MaskingChoice
    replacement: ReplacementChoice
    masks: MaskSampling = MaskSampling()
    objectives: Annotated[tuple[ObjectiveChoice, ...], Field(min_length=1)]
    encoder: EncoderConfig
    generator: Generator | None = None
    teacher: Teacher | None = None
    training: Training

    @property
    def encoders(self) -> dict[str, tuple[EncoderConfig, tuple[Objective, ...]]]:
        """The shapes of the "encoder" and, if there is one, the "generator", each with the objectives on it."""
        shapes = {"encoder": self.encoder}
        if self.generator is not None:
            shapes["generator"] = self.generator.config(self.encoder)
        objectives = by_encoder(self.objectives, has_generator=self.generator is not None)
        return {name: (shapes[name], each) for name, each in objectives.items()}

    @model_validator(mode="after")
    def _choices_fit_together(self) -> "Recipe":
        kinds = [objective.kind for objective in self.objectives]
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"objectives {kinds} contain a duplicate; keep one and set its weight")
        for objective in self.objectives:
            if missing := objective.needs - self.provides:
                remedies = "; and ".join(_remedy(fact, self) for fact in sorted(missing))
                raise ValueError(f"objective {objective.kind!r} needs {remedies}; or remove the objective")
            if objective.needs_pooler and not self.encoder.pooler:
                raise ValueError(f"objective {objective.kind!r} needs the pooled vector: set encoder.pooler=true")
        if missing_kinds := sorted(self.masking.span_kinds - set(self.words.span_kinds)):
            remedies = " and ".join(_SPAN_SOURCES[kind] for kind in missing_kinds)
            raise ValueError(
                f"masking {self.masking.kind!r} needs {' and '.join(missing_kinds)} spans, which no source provides: "
                f"add {remedies}"
            )
        for second in ("generator", "teacher"):
            users = [objective.kind for objective in self.objectives if second in objective.needs]
            if getattr(self, second) is not None and not users:
                allowed = [cast(type[Objective], each) for each in members(ObjectiveChoice)]
                user = " or ".join(repr(kind_of(each)) for each in allowed if second in each.needs)
                other = f"choose a recipe with a {second} (`maskwright recipes`), "
                raise ValueError(f"no objective uses the {second}: {other}add {user}, or set {second}=null")
        if self.generator is not None and not any(objective.on_generator for objective in self.objectives):
            raise ValueError("the generator needs the objective 'mlm', which trains it; add it")
        if self.training.max_length > self.encoder.max_positions:
            raise ValueError(
                f"training.phases reach length {self.training.max_length}, encoder.max_positions is "
                f"{self.encoder.max_positions}; decrease the former or increase the latter"
            )
        return self

    @model_validator(mode="after")
    def _predicts_what_it_masks(self) -> "Recipe":
        predicted = {objective.kind: objective.predicts for objective in self.objectives}
        copied = [kind for kind, predicts in predicted.items() if predicts == "token"]
        if copied and not self.replacement.hides:
            raise ValueError(
                f"objective {copied[0]!r} predicts the selected tokens, but replacement {self.replacement.kind!r} "
                "leaves all of them unchanged: decrease replacement.keep"
            )
        if self.replacement.hides and set(predicted.values()) == {"sequence"}:
            raise ValueError(
                f"masking {self.masking.kind!r} masks {100 * self.masking.rate:g} % of the tokens, but none of the "
                f"objectives {list(predicted)} predicts them: add 'mlm', or mask nothing: set "
                "replacement={kind: mask_random_keep, mask: 0, random: 0, keep: 1}"
            )
        return self

    @property
    def origin(self) -> str:
        """Heading of the recipe's values in tables: most small sizes of a system only follow its published ones."""
        return "recipe" if self.summary.startswith("not published") else "published"

    @property
    def provides(self) -> frozenset[str]:
        """All facts that objectives can require in their `needs`."""
        present = {name for name in ("generator", "teacher") if getattr(self, name) is not None}
        # With a generator, the masked-token head is on the generator, not on the encoder.
        heads = {"mlm"} & {objective.kind for objective in self.objectives} if self.generator is None else set()
        return self.format.provides | self.masking.provides | present | heads


_SPAN_SOURCES = {
    "phrase": "`--set words.phrases=[collocations]` (allowed: segmenter, collocations, files of phrases)",
    "entity": "`--set words.entities=[names.txt]` (allowed: tags, files of names)",
}


def _remedy(fact: str, recipe: Recipe) -> str:
    """Describe a missing fact and the choice that provides it."""
    unlike = f"which format {recipe.format.kind!r} as configured does not make: set format"
    return {
        "next_sentence_label": f"pairs labeled next or random, {unlike}={{kind: segment_pair, second: next_or_random}}",
        "order_label": f"pairs labeled in order or swapped, {unlike}={{kind: segment_pair, second: next_or_swapped}}",
        "contiguous_units": f"spans of adjacent tokens, which masking {recipe.masking.kind!r} does not select: set "
        "masking=span or masking=whole_word",
        "generator": "a generator that replaces tokens: set generator={}",
        "teacher": "a teacher: set teacher.model to a run or model directory",
        "mlm": "a masked-token head on the encoder: add objective 'mlm' and set generator=null",
    }.get(fact, fact)
