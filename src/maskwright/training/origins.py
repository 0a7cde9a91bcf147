"""The models that a run begins with and learns from: opened and compared with the recipe before any work is done."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from maskwright.core.errors import RecipeError
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.tokenizers.extension import Extension, extend_vocabulary, frequent_words, tokens_per_word
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.vocabulary import DEFAULT_SAMPLE_BYTES
from maskwright.data.words.lexicon import read_words
from maskwright.recipes.recipe import Recipe
from maskwright.training.existing import ExistingModel, open_existing
from maskwright.training.reporting import Reporter
from maskwright.training.run_folder import GENERATOR
from maskwright.training.starting import KEPT, Start, like_the_model, like_the_teacher, start_from, start_from_teacher
from maskwright.training.teacher import check_teacher

_WORDS_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """The existing models of a run; all None where it begins at random and learns from text alone.

    Attributes:
        init: The model to go on from.
        generator: Its generator, if it has one.
        teacher: The model to learn from.
        gives_layers: Whether the student begins with layers of the teacher.
        words_to_find: How many words of the corpus are to be added to the vocabulary.
        given_words: The vocabulary with the words of a list added; None without one.
    """

    init: ExistingModel | None = None
    generator: ExistingModel | None = None
    teacher: ExistingModel | None = None
    gives_layers: bool = False
    words_to_find: int = 0
    given_words: Extension | None = None

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer that comes with them."""
        model = self.init or self.teacher
        return None if model is None else model.tokenizer

    @property
    def adds_words(self) -> bool:
        """Whether the vocabulary is to be extended."""
        return bool(self.words_to_find) or self.given_words is not None

    @property
    def bringer(self) -> str:
        """What brought the tokenizer."""
        if self.init is not None:
            return "--init"
        return "--tokenizer" if self.teacher is None else "the teacher"

    @property
    def kept(self) -> frozenset[str]:
        """Fields that are not to be fitted to the budget."""
        if self.init is not None:
            return KEPT
        return KEPT - {"training.learning_rate"} if self.gives_layers else frozenset()

    def fit(self, recipe: Recipe, fixed: Collection[str]) -> Recipe:
        """Return the recipe as it goes with the models.

        Args:
            recipe: With the user's settings.
            fixed: Dotted fields the user set; they stay.

        Raises:
            RecipeError: If a model's weights do not fit, or its answers cannot be learnt from.
        """
        if self.teacher is not None:
            check_teacher(recipe, self.teacher)
            if self.gives_layers:
                recipe = like_the_teacher(recipe, self.teacher, fixed)
        return recipe if self.init is None else like_the_model(recipe, self.init, fixed)

    def extended(self, cleaned: CleanCorpus, seed: int, talk: Reporter) -> "Origins":
        """Add words to the vocabulary of the model that the run goes on from, as `open_origins` was asked to.

        Args:
            cleaned: The corpus.
            seed: Which sample of it.
            talk: Where to report.

        Raises:
            DataError: If the corpus has no word to add.
        """
        assert self.init is not None
        old = self.init.tokenizer
        sample = list(cleaned.sample(DEFAULT_SAMPLE_BYTES, seed))
        extension = self.given_words or extend_vocabulary(old, frequent_words(old, sample), self.words_to_find)
        before, after = (tokens_per_word(each, sample, like=old) for each in (old, extension.tokenizer))
        shown = ", ".join(extension.words[:_WORDS_SHOWN]) + (", ..." if len(extension.words) > _WORDS_SHOWN else "")
        few = len(extension.pieces) < self.words_to_find
        talk.say(
            "vocabulary",
            f"{len(extension.pieces):,} entries added to {old.special_tokens.vocab_size:,}"
            f"{f' (the corpus has no more of the {self.words_to_find:,} asked for)' if few else ''}: {shown}; "
            f"{before:.3f} tokens a word before, {after:.3f} now",
        )
        generator = None if self.generator is None else self.generator.extended(extension)
        return replace(self, init=self.init.extended(extension), generator=generator)

    def start(self, recipe: Recipe) -> Start | None:
        """Return the weights to begin with; None where all are drawn.

        Args:
            recipe: As it is trained.
        """
        if self.init is not None:
            return start_from(recipe, self.init, self.generator)
        if self.teacher is not None and self.gives_layers:
            return start_from_teacher(recipe, self.teacher)
        return None


def open_origins(
    recipe: Recipe, init: str | None, tokenizer: Tokenizer | None, new_words: int | str | None = None
) -> Origins:
    """Open the models that a run begins with and learns from.

    Args:
        recipe: With the user's settings.
        init: The model to go on from, if any.
        tokenizer: What `--tokenizer` gave, if anything; it must be the models' own.
        new_words: How many words of the corpus to add to the vocabulary of `init`, or a file of words; None for none.

    Raises:
        RecipeError: If the recipe wants a teacher and none is named, or two things are wanted that exclude each other.
        ConversionError: If a model cannot be read.
        DataError: If the list of words cannot be read, or holds nothing to add.
    """
    if new_words is not None and recipe.teacher is not None:
        raise RecipeError(
            "--extend-vocabulary would give the student words that its teacher has no scores for",
            todo="Extend the teacher's vocabulary and train it first; then let the student learn from it.",
        )
    gives_layers = recipe.teacher is not None and recipe.teacher.initialise == "layers"
    if init is not None and gives_layers:
        raise RecipeError(
            "--init and the recipe's teacher both say which weights to begin with",
            todo="Leave --init out, or let the teacher only teach: `--set teacher.initialise=none`.",
        )
    teacher = None if recipe.teacher is None else open_existing(_teacher_named(recipe))
    model = None if init is None else open_existing(init)
    generator = None
    if model is not None and recipe.generator is not None and (model.folder / GENERATOR / "config.json").exists():
        generator = open_existing(str(model.folder / GENERATOR))
    _one_tokenizer({"--init": model, "the teacher": teacher, "the generator": generator}, tokenizer)
    given_words = None
    if isinstance(new_words, str) and model is not None:
        given_words = extend_vocabulary(model.tokenizer, read_words(Path(new_words).expanduser()))
    return Origins(
        init=model,
        generator=generator,
        teacher=teacher,
        gives_layers=gives_layers,
        words_to_find=new_words if isinstance(new_words, int) else 0,
        given_words=given_words,
    )


def same_teacher(recipe: Recipe, recorded: Mapping[str, str], folder: Path) -> ExistingModel:
    """Open the teacher of a run that is resumed.

    Raises:
        RecipeError: If it is no longer the model that the run began with.
    """
    teacher = open_existing(_teacher_named(recipe))
    if teacher.fingerprint != recorded["fingerprint"]:
        raise RecipeError(
            f"the teacher {teacher.name} has changed since the run in {folder} began",
            todo="Restore the old one to resume it, or choose another --out.",
        )
    return teacher


def _teacher_named(recipe: Recipe) -> str:
    assert recipe.teacher is not None
    if not recipe.teacher.model:
        raise RecipeError(
            f"recipe {recipe.name!r} learns from a teacher, and none is given",
            allowed="a run's folder, a Hugging Face folder or a hub name",
            todo="Give it: `--teacher DIR_OR_HUB_NAME`",
        )
    return recipe.teacher.model


def _one_tokenizer(models: Mapping[str, ExistingModel | None], given: Tokenizer | None) -> None:
    brought = [] if given is None else [("--tokenizer", given)]
    brought += [(source, model.tokenizer) for source, model in models.items() if model is not None]
    for source, other in brought[1:]:
        first, tokenizer = brought[0]
        if not _equal(tokenizer, other):
            raise RecipeError(
                f"{first} and {source} bring different tokenizers ({tokenizer.special_tokens.vocab_size:,} and "
                f"{other.special_tokens.vocab_size:,} entries)",
                todo="Leave --tokenizer out: weights need the tokenizer they were trained with."
                if given is not None
                else "Choose models of one vocabulary.",
            )


def _equal(first: Tokenizer, second: Tokenizer) -> bool:
    return first.fingerprint == second.fingerprint or (
        first.kind == second.kind
        and first.special_tokens == second.special_tokens
        and first.backend.get_vocab() == second.backend.get_vocab()
    )
