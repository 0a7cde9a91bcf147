"""The README.md of a fine-tuned model: what it is, from which data, with which settings, how good, how to use it."""

from collections.abc import Mapping
from pathlib import Path

from maskwright.core.files import write_text
from maskwright.core.types import HeadKind
from maskwright.finetuning.benchmarks import BENCHMARKS
from maskwright.finetuning.fine_tuned import FineTunedModel
from maskwright.finetuning.readers import ReadAs
from maskwright.finetuning.readers.options import as_names
from maskwright.finetuning.results import Results, data_table, markdown_table, settings_table
from maskwright.huggingface.families import family_named

_PIPELINES: dict[HeadKind, str] = {"sequence": "text-classification", "token": "token-classification"}
_TAGS: dict[HeadKind, str] = {
    "sequence": "text-classification",
    "token": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
}
_TITLES = {
    "classification": "puts a text, or a pair of texts, into one of its classes",
    "regression": "gives a text, or a pair of texts, a number",
    "multi_label": "says which of its classes hold for a text",
    "tagging": "gives each word of a sentence a tag",
    "question_answering": "answers a question with a part of a text",
    "multiple_choice": "chooses one of several options",
}
_EXAMPLES: Mapping[HeadKind, str] = {
    "sequence": '"A text."',
    "token": '"A sentence."',
    "span": 'questions.jsonl   # {"question": ..., "context": ...} a line',
    "choice": 'questions.jsonl   # {"article": ..., "questions": ..., "options": ...} a line',
}
_LABELS_SHOWN = 30


def write_model_card(folder: Path, model: FineTunedModel, results: Results, read_as: ReadAs) -> None:
    """Write README.md into a model's folder.

    Args:
        folder: The folder.
        model: What lies there.
        results: What was measured.
        read_as: How the training file was read.

    Raises:
        DeviceError: If it cannot be written.
    """
    write_text(folder / "README.md", model_card(folder.name, model, results, read_as))


def model_card(name: str, model: FineTunedModel, results: Results, read_as: ReadAs) -> str:
    """Return the card's text."""
    task, best = model.task, results.best
    row = family_named(model.family).tasks[task.head]
    config = model.encoder.config
    benchmark = BENCHMARKS.get(results.task)
    lines = [
        "---",
        *([] if benchmark is None else [f"language: {benchmark.language}"]),
        "library_name: transformers",
        f"pipeline_tag: {_TAGS[task.head]}",
        "tags:",
        "- maskwright",
        f"- {results.task}",
        "---",
        "",
        f"# {name}",
        "",
        f"This model {_TITLES[task.kind]}. It is {_made_of(results)}: a {row.architecture} of {config.num_layers} "
        f"layers and width {config.hidden_size} that reads up to {model.max_length} tokens.",
    ]
    if task.labels:
        more = f" and {len(task.labels) - _LABELS_SHOWN} more" if len(task.labels) > _LABELS_SHOWN else ""
        lines += ["", "Labels: " + ", ".join(f"`{label}`" for label in task.labels[:_LABELS_SHOWN]) + more + "."]
    columns, body = results.table()
    lines += [
        "",
        "## Scores",
        "",
        f"These weights are seed {best.seed}'s after epoch {best.best_epoch:g}, chosen by {results.main_metric} on "
        "the development examples (dev); the scores there are therefore a little too good. Nothing was chosen on the "
        "test examples.",
        "",
        *markdown_table(columns, body),
        *(f"\n{note}" for note in results.notes),
        "",
        "## Data",
        "",
        *data_table(results.data),
        "",
        "## Settings",
        "",
        *settings_table(results.all_settings),
        "",
        "## Use",
        "",
        "```",
        f"maskwright predict {name} {_pairs_file(results, read_as) if results.pairs else _EXAMPLES[task.head]}",
        "```",
        "",
        "```python",
        *_with_transformers(name, task.head, row.architecture, results.pairs),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _made_of(results: Results) -> str:
    if results.from_scratch:
        return f"of the shape and the tokenizer of {results.model}, trained for {results.task} from scratch"
    return f"{results.model}, fine-tuned for {results.task}"


def _pairs_file(results: Results, read_as: ReadAs) -> str:
    """Name a file written as the training file, and its columns as they are called there."""
    suffix = Path(str(results.data["train"]["name"]).removesuffix(".gz").removesuffix(".zst")).suffix
    first, second = (as_names(read_as.get(role, ()))[:1] for role in ("text", "text2"))
    if not first or not second:
        return f"pairs{suffix}   # with the columns of the files that it learnt from"
    if first[0].isdecimal():
        return f"pairs{suffix}   # the texts in columns {first[0]} and {second[0]}, and no line of names"
    return f"pairs{suffix}   # with the columns {first[0]!r} and {second[0]!r}"


def _with_transformers(name: str, head: HeadKind, architecture: str, pairs: bool) -> list[str]:
    if head in _PIPELINES:
        given = '{"text": "A text.", "text_pair": "Another text."}' if pairs else '"A text."'
        return [
            "from transformers import pipeline",
            "",
            f'pipeline("{_PIPELINES[head]}", model="{name}")({given})',
        ]
    return [
        f"from transformers import AutoTokenizer, {architecture}",
        "",
        f'model = {architecture}.from_pretrained("{name}")',
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
    ]
