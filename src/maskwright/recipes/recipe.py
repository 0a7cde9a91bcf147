"""A recipe says which: one choice on each axis of the BERT family, as one frozen value."""

from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from maskwright.core.spec import Spec
from maskwright.core.types import FamilyName
from maskwright.data.tokenizers.spec import TokenizerSpec
from maskwright.data.words.spec import Words
from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats import FormatChoice
from maskwright.pretext.masking import MaskingChoice
from maskwright.pretext.objectives import ObjectiveChoice
from maskwright.pretext.replacement import ReplacementChoice
from maskwright.recipes.optimization import Training
from maskwright.recipes.towers import Generator, Teacher


class MaskRefresh(Spec):
    """When layouts and masks are drawn anew.

    Attributes:
        copies: None draws anew in every epoch (dynamic masks: RoBERTa). A number k draws k times and then
            repeats (static masks: BERT's dupe_factor 10).
    """

    copies: PositiveInt | None = None

    def refresh(self, epoch: int) -> int:
        """Return which drawing an epoch (from 0) uses."""
        return epoch if self.copies is None else epoch % self.copies


class Recipe(Spec):
    """One system of the BERT family at one size.

    Attributes:
        name: "system/size".
        summary: What is special about it, in one line.
        paper: Where the constants come from.
        family: Which Hugging Face classes the weights load into.
        tokenizer: How text becomes tokens.
        words: What counts as a word, a phrase and an entity.
        format: How running text becomes sequences.
        masking: Which tokens are selected.
        replacement: What stands in their place.
        masks: When masks are drawn anew.
        objectives: What is asked back; the losses are added with their weights.
        encoder: The shape of the encoder.
        generator: A second encoder, trained with it, that fills in what was selected (ELECTRA); None for none.
        teacher: A trained model to learn from (DistilBERT); None for none.
        training: The published schedule.
    """

    name: str
    summary: str = ""
    paper: str = ""
    family: FamilyName = "bert"
    tokenizer: TokenizerSpec
    words: Words = Words()
    format: FormatChoice
    masking: MaskingChoice
    replacement: ReplacementChoice
    masks: MaskRefresh = MaskRefresh()
    objectives: Annotated[tuple[ObjectiveChoice, ...], Field(min_length=1)]
    encoder: EncoderConfig
    generator: Generator | None = None
    teacher: Teacher | None = None
    training: Training

    @model_validator(mode="after")
    def _makes_sense(self) -> "Recipe":
        kinds = [objective.kind for objective in self.objectives]
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"objectives {kinds} name one twice; keep one and set its weight")
        for objective in self.objectives:
            if missing := objective.needs - self.provides:
                raise ValueError(f"objective {objective.kind!r} needs {_remedies(missing, self)}; or drop it")
            if objective.needs_pooler and not self.encoder.pooler:
                raise ValueError(f"objective {objective.kind!r} reads the pooled vector: set encoder.pooler=true")
        if self.format.tells_by_segments and self.encoder.type_vocab_size < 2:
            raise ValueError(
                f"format {self.format.kind!r} says by segments what nothing else says, but the encoder has no two "
                f"kinds of them: set encoder.type_vocab_size=2 (it is {self.encoder.type_vocab_size})"
            )
        if missing_levels := self.masking.levels - set(self.words.levels):
            fields = " and ".join(f"words.{_LEVEL_FIELDS[level]}" for level in sorted(missing_levels))
            raise ValueError(
                f"masking {self.masking.kind!r} masks units of the level {', '.join(sorted(missing_levels))}, which "
                f"nobody finds: say where they come from in {fields}"
            )
        for tower, user in (("generator", "rtd"), ("teacher", "soft_targets")):
            users = [objective.kind for objective in self.objectives if tower in objective.needs]
            if getattr(self, tower) is not None and not users:
                raise ValueError(f"a {tower} is given, but no objective uses it: add {user!r} or set {tower}=null")
        if self.generator is not None and not any(objective.on_generator for objective in self.objectives):
            raise ValueError("a generator is given, but objective 'mlm', which trains it, is not; add it")
        if self.training.max_length > self.encoder.max_positions:
            raise ValueError(
                f"training.phases reach length {self.training.max_length}, encoder.max_positions is "
                f"{self.encoder.max_positions}; shorten the one or raise the other"
            )
        return self

    @model_validator(mode="after")
    def _asks_for_what_it_hides(self) -> "Recipe":
        asked = {objective.kind: objective.predicts for objective in self.objectives}
        copied = [kind for kind, predicts in asked.items() if predicts == "token"]
        if copied and not self.replacement.hides:
            raise ValueError(
                f"objective {copied[0]!r} asks for the selected tokens, which replacement {self.replacement.kind!r} as "
                "set leaves as they are, to be copied: keep fewer of them (replacement.keep)"
            )
        if self.replacement.hides and set(asked.values()) == {"sequence"}:
            raise ValueError(
                f"masking {self.masking.kind!r} hides {100 * self.masking.rate:g} % of the tokens, and none of the "
                f"objectives {list(asked)} asks for any: add 'mlm', or hide nothing: set "
                "replacement={kind: mask_random_keep, mask: 0, random: 0, keep: 1}"
            )
        return self

    @property
    def provides(self) -> frozenset[str]:
        """All facts that objectives can ask for in their `needs`."""
        towers = {name for name in ("generator", "teacher") if getattr(self, name) is not None}
        # A masked-token head on the encoder itself; a generator has it instead.
        heads = {"mlm"} & {objective.kind for objective in self.objectives} if self.generator is None else set()
        return self.format.provides | self.masking.provides | towers | heads


_LEVEL_FIELDS = {"phrase": "phrases", "entity": "entities"}


def _remedies(missing: frozenset[str], recipe: Recipe) -> str:
    """Say in words what is missing and which choice would bring it."""
    told = {
        "next_sentence_label": f"pairs labeled next or random, which format {recipe.format.kind!r} as set does not "
        "make: set format={kind: segment_pair, second: next_or_random}",
        "order_label": f"pairs labeled in order or swapped, which format {recipe.format.kind!r} as set does not make: "
        "set format={kind: segment_pair, second: next_or_swapped}",
        "dialogue_label": "dialogues labeled real or false: set format=dialogue",
        "contiguous_units": f"units of neighbouring tokens with boundaries, which masking {recipe.masking.kind!r} does "
        "not select: set masking=span or masking=whole_word",
        "generator": "a generator that replaces tokens: set generator={}",
        "teacher": "a teacher to learn from: set teacher.model to a run or model folder",
        "mlm": "a masked-token head on the encoder: add objective 'mlm' and set generator=null",
    }
    return "; and ".join(told.get(fact, fact) for fact in sorted(missing))
