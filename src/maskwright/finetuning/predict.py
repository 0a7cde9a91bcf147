"""`maskwright.predict`: predictions of a fine-tuned model for texts, questions or files without labels."""

import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeGuard

from maskwright.core.errors import DataError
from maskwright.data.tables import records_of
from maskwright.finetuning.evaluate import (
    choose_layout,
    model_to_score,
    name_of,
    predict_examples,
    read_file,
    refuse_other_texts,
)
from maskwright.finetuning.examples import (
    ChoiceExample,
    Example,
    ExampleFile,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from maskwright.finetuning.model.fine_tuned import FineTunedModel
from maskwright.finetuning.predictions import Predictions
from maskwright.finetuning.readers import Data, as_one, sources_of
from maskwright.finetuning.readers.options import TEXT_KINDS, Kind, ReadAs, ReadOptions, with_overrides
from maskwright.finetuning.readers.tables import as_text
from maskwright.finetuning.readers.tagged import cut_into_words
from maskwright.inference.long_texts import IGNORED, WINDOWS_HINT, warn_truncated
from maskwright.inference.model import Model
from maskwright.inference.precision import Precision
from maskwright.reporting.reporter import Reporter, no_progress

Input = str | tuple[str, str] | Mapping[str, Any]
"""A text, a pair of texts, or {"question", "context"}, or {"context", "question", "options"}."""

OBJECT_KINDS: tuple[Kind, ...] = ("question_answering", "multiple_choice")
"""Kinds of tasks whose inputs are dictionaries."""
_FILE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt", ".gz", ".zst")
_LONG = 200
"""Number of examples above which progress is shown on the console."""


def predict(
    model: str | Path | Model,
    inputs: Input | Sequence[Input] | Data = (),
    *,
    file: Data | None = None,
    text: str | None = None,
    text2: str | None = None,
    read: Sequence[str] = (),
    max_length: int | None = None,
    windows: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
    reporter: Reporter | None = None,
) -> Predictions:
    """Predict with a fine-tuned model.

    Args:
        model, text, text2, max_length, windows, device, precision, reporter: As for `evaluate`.
        inputs: One or a list of: texts; (text, text) pairs; {"question": ..., "context": ...} for question answering;
            {"context": ..., "question": ..., "options": [...]} for multiple choice. A tuple of two texts is one pair if
            the task takes pairs. A table in memory (DataFrame, Hugging Face Dataset, list of dictionaries) is read like
            a file.
        file: A file, read as by `finetune`, without labels; `-` for standard input. In Python: if keys of inputs and
            files clash, they become "input:1" and "texts.csv:1".
        read: As for `finetune`.

    Returns:
        One prediction per input, then one per example of the file, as a list with `to_pandas()`. `truncated` says
        whether only a part of the input was read, which a `TruncationWarning` sums up. `details` holds the
        probabilities of all classes, entities with character offsets (for files of words: in the joined words), or
        further answers.

    Raises:
        MaskwrightError: If the model cannot be loaded, or does not take such inputs (single texts for a model trained
            on pairs, or the reverse).

    Example:
        >>> maskwright.predict("runs/reviews", ["Ganz wunderbar! 🙂"])[0].value
        'good'
    """
    if isinstance(inputs, str) and inputs.lower().endswith(_FILE_SUFFIXES) and _is_file(inputs):
        raise DataError(
            f"the input {inputs!r} is the name of a file",
            hint=f"Read the file with `file={inputs!r}`, or predict the name itself in a list, `[{inputs!r}]`.",
        )
    options = with_overrides(ReadOptions(labels="ignored"), {"text": text, "text2": text2}, read)
    on_console = reporter is None
    with model_to_score(model, device, precision, reporter) as (loaded, encoder, reporter):
        kind, trained = loaded.task.kind, loaded.read_as
        # Lists of dictionaries are also inputs of these kinds, with errors that name the input.
        is_list = isinstance(inputs, list | tuple) and kind in OBJECT_KINDS
        table = None if is_list else records_of(inputs, "inputs")
        each: list[Any] = [inputs]
        if table is not None:
            each = []
        elif isinstance(inputs, Iterable) and not _is_one(inputs, kind):
            each = list(inputs)
        direct = [to_example(one, str(n), f"input {n}", kind, trained) for n, one in enumerate(each, start=1)]
        files: list[ExampleFile[Any]] = [ExampleFile(name="input", examples=tuple(direct))]
        with tempfile.TemporaryDirectory() as folder:
            for source in (*([] if table is None else [table]), *(() if file is None else sources_of(file, "file"))):
                if source == Path("-"):
                    source = Path(folder, "standard input")
                    source.write_bytes(sys.stdin.buffer.read())
                files.append(read_file([source], loaded, options, reporter))
        examples = as_one(files).examples
        if not examples:
            raise DataError("nothing was given to predict", hint="Give texts, or a file.")
        is_short = on_console and not windows and len(examples) <= _LONG
        progress = no_progress if is_short else reporter.stage
        layout = choose_layout(loaded, max_length, windows, name_of(model))
        predictions = predict_examples(loaded, encoder, examples, progress, layout)
        shown = getattr(loaded.task, "text_of", attrgetter("shown"))
    truncated = [number for number, each in enumerate(predictions) if each.truncated]
    hint = "" if windows or kind not in TEXT_KINDS else WINDOWS_HINT
    warn_truncated(truncated, len(predictions), loaded.task.limit(layout), IGNORED, hint=hint, stacklevel=2)
    pairs = zip(predictions, examples, strict=True)
    return Predictions(replace(made, input_text=shown(example)) for made, example in pairs)


def split_inputs(words: Sequence[str], files: Sequence[str | Path]) -> tuple[list[str], list[Path]]:
    """Split command-line arguments into texts and files: files if each exists or is called like one."""
    paths = [Path(path).expanduser() for path in files]
    named_files = [word for word in words if (" " not in word and word.endswith(_FILE_SUFFIXES)) or _is_file(word)]
    if named_files and len(named_files) < len(words):
        raise DataError(
            f"{named_files[0]!r} is a file, other arguments are not",
            hint="Give files with `--file FILE`, texts as arguments.",
        )
    return ([], [*map(Path, named_files), *paths]) if named_files else (list(words), paths)


def _is_file(word: str) -> bool:
    try:
        # A folder (RACE's) must be written as a path: a single word is a text even if a folder has that name.
        return Path(word).is_file() or ("/" in word and Path(word).is_dir())
    except (OSError, ValueError):  # too long for a name
        return False


def _is_one(inputs: object, kind: Kind) -> TypeGuard[Input]:
    if isinstance(inputs, tuple) and len(inputs) == 2 and kind in TEXT_KINDS:
        return all(isinstance(text, str) for text in inputs)
    return isinstance(inputs, str | Mapping)


_ALLOWED_INPUTS = {
    "tagging": "a text",
    "question_answering": '{"question": ..., "context": ...}, or a file of such questions',
    "multiple_choice": '{"context": ..., "question": ..., "options": [..., ...]}, or a file of such questions',
}


def sample_input(model: FineTunedModel, texts: Sequence[str]) -> Input:
    """Make an input for a model out of three texts."""
    match model.task.kind:
        case "question_answering":
            return {"question": texts[0], "context": texts[1]}
        case "multiple_choice":
            return {"context": texts[0], "options": list(texts[1:])}
    return (texts[0], texts[1]) if model.read_as.get("text2") else texts[0]


def to_example(one: Input, key: str, source: str, kind: Kind, trained: ReadAs) -> Any:
    """Return an input as an example; `source` names it in errors, `trained` is how the training file was read."""
    example: Example
    match kind, one:
        case "tagging", str():
            example = TaggedExample(key=key, words=cut_into_words(one), tags=None, text=one)
            parts: list[Any] = [one]
        case _, (str() | (str(), str())) if kind in TEXT_KINDS:
            parts = [one] if isinstance(one, str) else list(one)
            example = TextExample(key=key, texts=tuple(parts), label=None)
        case "question_answering", {"question": str() as question, "context": str() as context}:
            example = QuestionExample(key=key, question=question, context=context, answers=())
            parts = [question, context]
        case "multiple_choice", {"options": [str(), str(), *_] as options, **rest}:
            context, question = str(rest.get("context", "")), str(rest.get("question", ""))
            example = ChoiceExample(key=key, context=context, question=question, options=tuple(options), label=None)
            parts = [context, question, *options]
        case _:
            allowed = _ALLOWED_INPUTS.get(kind, "a text, or a pair of texts")
            raise DataError(f"{source} is not what a model for {kind} takes", allowed=allowed)
    try:
        for part in parts:
            as_text(part)
    except ValueError as error:
        raise DataError(f"{source}: {error}", hint="Give whole characters, as UTF-8.") from None
    if isinstance(example, TaggedExample) and not example.words:
        raise DataError(f"{source} holds no word")
    refuse_other_texts([example], trained, source)
    return example
