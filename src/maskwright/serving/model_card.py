"""Model cards (README.md) of exported models: data, recipe, budget, scores and limits, as the run recorded them."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from maskwright.checkpoints.card_facts import read_card_facts
from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.checkpoints.sentence_folder import MODULES
from maskwright.core.storage.files import read_if_exists, records_of
from maskwright.core.text.amounts import pluralize, short_count
from maskwright.data.cleaning.data_card import sources_table
from maskwright.recipes.catalog import resolve
from maskwright.recipes.table import Row, rows
from maskwright.reporting.markdown import code, escape
from maskwright.reporting.table import Table
from maskwright.serving.onnx_graph import HEADS, OPSET
from maskwright.serving.parity import Parity
from maskwright.training.runs.report import held_out_table

_DOES = {
    "mlm": "predicts masked tokens",
    "rtd": "detects replaced tokens",
    "encoder": "computes vectors of texts and their tokens",
}


def text(
    name: str,
    loaded: Checkpoint,
    head: str,
    to: str,
    parities: Sequence[Parity],
    *,
    license: str,
    language: str | None,
) -> str:
    """Return the card of a model exported as `to`; that of a fine-tuned model continues the card of `finetune`.

    License (""), language (None), tags and base model are those of the folder's card, or of the model that a run began
    with.

    Raises DataError if files of the folder are not what `pretrain` and `finetune` write.
    """
    with records_of(loaded.folder, "README.md, run.json, recipe.json, data_card.json"):
        written = loaded.folder / "README.md"
        body, library, pipeline = "", "transformers", HEADS[head].pipeline
        compares = (loaded.folder / MODULES).is_file()
        if (loaded.task is not None or compares) and written.is_file():
            _, _, body = written.read_text(encoding="utf-8").removeprefix("---\n").partition("\n---\n")
            body = body.partition("\n## Limits\n")[0]  # of an earlier export
        if to in ("onnx", "openvino"):
            library = "transformers.js" if to == "onnx" else "openvino"
        elif to == "sentence-transformers" or compares:
            library, pipeline = "sentence-transformers", "sentence-similarity"
        tags = ("maskwright", loaded.family, *([to] if to != "hub" else []))
        facts = read_card_facts(loaded.folder)
        license = license or facts.license or "unknown"
        front = facts.front_matter(library, pipeline, license=license, language=language or "", tags=tags)
        lines = body.strip().splitlines() or list(_pretrained(name, loaded, head))
        return "\n".join([*front, *lines, *_limits(loaded), *_exported(name, head, to, parities, compares)]) + "\n"


def _pretrained(name: str, loaded: Checkpoint, head: str) -> Iterator[str]:
    config, folder = loaded.config, loaded.folder
    yield from (f"# {escape(name)}", "")
    yield (
        f"This model {_DOES.get(head, 'has a head for labeled examples')}. It is of transformers' family "
        f"`{loaded.family}`, with {config.num_layers} layers, hidden size {config.hidden_size}, a vocabulary of "
        f"{loaded.vocab_size:,} and inputs of up to {loaded.max_length} tokens."
    )
    if card := read_if_exists(folder / "data_card.json"):
        yield from _data(card)
    run = read_if_exists(folder / "run.json")
    if "recipe" in run.get("request", {}):
        yield from _training(run, folder / "recipe.json")


def _limits(loaded: Checkpoint) -> Iterator[str]:
    yield from ("", "## Limits", "")
    yield f"- Inputs longer than {loaded.max_length} tokens are truncated."
    if card := read_if_exists(loaded.folder / "data_card.json"):
        shares = card["total"]["scripts"].items()
        scripts = ", ".join(f"{name} ({share:.0%})" for name, share in shares if share >= 0.005)
        yield f"- The training text is written in {escape(scripts)}. Text in other scripts was not tested."
    yield "- Predictions repeat the errors and biases of the training text. Nothing was measured about them."
    yield "- Held-out text and examples are from the same sources as those of training, unless other files are named."
    if loaded.task is None and not (loaded.folder / MODULES).is_file():
        yield "- The model was not trained to compare texts, and the similarities of its embeddings were not measured."


def _data(card: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", "## Training data", "")
    yield from sources_table([{"name": Path(each["name"]).name, **each["kept"]} for each in card["sources"]]).markdown()
    yield from ("", f"Counted after cleaning and deduplication; fingerprint {escape(card['fingerprint'])}.")


def _training(run: Mapping[str, Any], recipe_file: Path) -> Iterator[str]:
    request, result = run["request"], run.get("result", {})
    stated = request["recipe"]
    yield from ("", "## Training", "")
    recipe = f"{code(stated['name'])} ({escape(stated['paper'])})"
    yield f"Recipe {recipe}, fitted to the budget, with seed {request['seed']}."
    for key, meaning in (("begun_with", "Initialized from"), ("teacher", "Distilled from")):
        if run.get(key):
            yield f"{meaning} {escape(Path(run[key]['model']).name)}."
    budget = [f"{value:g} {unit}" for unit, value in request["budget"].items() if value is not None]
    if result:
        budget += [pluralize(result["steps"], "step"), f"{short_count(result['tokens'])} tokens"]
        budget += [f"{result['epochs']:.3g} epochs", f"{result['flops']:.3g} FLOPs"]
    table = [["budget and what was spent", "; ".join(budget)]]
    for axis, of_axis in itertools.groupby(rows(resolve(str(recipe_file))), key=lambda row: row.axis):
        shown = (
            _without_folders(row) if row.label == "kind" else f"{row.label}: {_without_folders(row)}"
            for row in of_axis
            if row.value not in ("none", "as set by sharing")
        )
        table.append([f"{axis} (planned)" if axis == "training" else axis, "; ".join(shown)])
    yield from ("", *Table(("setting", "this run"), table).markdown())
    if result.get("held_out"):
        held_out = held_out_table(result, by_generator=stated.get("generator") is not None)
        yield from ("", "## Scores", "", "On held-out text:", "", *held_out.markdown())


def _without_folders(row: Row) -> str:
    """Return a row's value with only the base names of files: of the teacher, dictionaries and lexicons."""
    may_name_files = row.path == "teacher.model" or row.path.startswith("words.")
    return ", ".join(Path(each).name for each in row.value.split(", ")) if may_name_files else row.value


def _exported(name: str, head: str, to: str, parities: Sequence[Parity], compares: bool) -> Iterator[str]:
    quoted = json.dumps(name)
    if to == "hub" and not compares:
        if head in _DOES:
            yield from ("", "## Use", "", "```python", f"from transformers import AutoTokenizer, {HEADS[head][0]}", "")
            yield f"model = {HEADS[head].auto_class}.from_pretrained({quoted})"
            yield from (f"tokenizer = AutoTokenizer.from_pretrained({quoted})", "```")
        return
    if to in ("onnx", "openvino"):
        yield from ("", "## ONNX" if to == "onnx" else "## OpenVINO", "")
        version = f"Opset {OPSET}; any" if to == "onnx" else "Any"
        yield f"{version} batch size and length; outputs {', '.join(HEADS[head].outputs)}."
    else:
        yield from ("", "## sentence-transformers", "", "```python")
        yield from ("from sentence_transformers import SentenceTransformer", "")
        yield from (f'SentenceTransformer({quoted}).encode(["A text."])', "```")
    if not parities:
        return
    yield from ("", "Compared with the source model:", "")
    table = [
        [each.precision, str(each.texts), f"{each.difference:.2g}", f"{each.agreement:.2%}", each.measure]
        for each in parities
    ]
    columns = ("precision", "texts", "largest difference", "agreement", "")
    yield from Table(columns, table, right=(1, 2, 3)).markdown()
