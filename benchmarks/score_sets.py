"""The labelled sets that `benchmarks.scores` measures on, and stated parts of them, written as files of the same form.

A set's files lie in the data folder under the names they are published with (`glue/SST-2/train.tsv`). A part is taken
at even distances over the file, whole texts with their questions, the same every time.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from maskwright.core.errors import MaskwrightError, unknown_name
from maskwright.core.files import read_json, write_json, write_text
from maskwright.finetuning.benchmarks import SPLITS, Split

Language = Literal["en", "zh"]
Form = Literal["table", "headless table", "sentences", "articles", "records"]
"""How a file is cut: lines under a heading; lines; blocks between empty lines (CoNLL); SQuAD's JSON; JSON lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSet:
    """One set.

    Attributes:
        name: As `--only` takes it.
        title: As the table calls it.
        task: The benchmark by whose files' layout, metrics and settings it is read, scored and learnt.
        language: Which of the two models reads it.
        form: How its files are cut.
        files: Files by part, below the data folder. Without a labelled test part the development examples are scored.
        weight: Its share of `--max-examples`, so that a pass costs about the same: more where texts are short, less
            where a question is several sequences (windows, options).
        shown: Metrics in the table.
        settings: Settings on both sides that differ from the fitted ones.
        later: Texts from which on the last development file is scored; those before are learnt from. 0: none are.
    """

    name: str
    title: str
    task: str
    language: Language
    form: Form
    files: Mapping[Split, tuple[str, ...]]
    weight: float = 1.0
    shown: tuple[str, ...]
    settings: tuple[str, ...] = ()
    later: int = 0


def _of(folder: str, ending: str = "tsv", parts: Sequence[Split] = SPLITS[:2]) -> dict[Split, tuple[str, ...]]:
    return {part: (f"{folder}/{part}.{ending}",) for part in parts}


def _named(folder: str, *names: str) -> dict[Split, tuple[str, ...]]:
    return {part: (f"{folder}/{name}",) for part, name in zip(SPLITS, names, strict=False)}


# Windows of a long text overlap by half: at the published share a text costs three to four times its length.
_HALF = ("task.doc_stride=64",)

# Name, title (its folder, too), form, weight, metrics shown. The benchmarks are called the same.
_GLUE: tuple[tuple[str, str, Form, float, tuple[str, ...]], ...] = (
    ("sst-2", "SST-2", "table", 4, ("accuracy",)),
    ("mrpc", "MRPC", "table", 1, ("f1", "accuracy")),
    ("cola", "CoLA", "headless table", 4, ("matthews", "accuracy")),
    ("sts-b", "STS-B", "table", 2, ("spearman", "pearson")),
    ("rte", "RTE", "table", 1, ("accuracy",)),
)

SETS: tuple[ScoredSet, ...] = (
    *(
        ScoredSet(
            name=name,
            title=title,
            task=name,
            language="en",
            form=form,
            files=_of(f"glue/{title}"),
            weight=weight,
            shown=shown,
        )
        for name, title, form, weight, shown in _GLUE
    ),
    ScoredSet(
        name="squad",
        title="SQuAD 1.1",
        task="squad-1.1",
        language="en",
        form="articles",
        files={
            "train": ("squad/train-v1.1-part1.json", "squad/train-v1.1-part2.json"),
            "dev": ("squad/dev-v1.1.json",),
        },
        weight=0.5,
        shown=("f1", "exact_match"),
        settings=_HALF,
    ),
    ScoredSet(
        name="wnut17",
        title="WNUT-17",
        task="wnut17",
        language="en",
        form="sentences",
        files=_named("wnut17_ner", "wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        weight=2,
        shown=("f1",),
    ),
    ScoredSet(
        name="dream",
        title="DREAM (RACE's layout)",
        task="race",
        language="en",
        form="records",
        files=_of("dream_mc/race_style", "jsonl", SPLITS),
        weight=0.25,
        shown=("accuracy",),
    ),
    ScoredSet(
        name="cmrc2018",
        title="CMRC 2018",
        task="cmrc2018",
        language="zh",
        form="articles",
        files=_named("cmrc2018", "cmrc2018_trial.json", "cmrc2018_dev.json"),
        weight=0.25,
        shown=("f1", "exact_match"),
        settings=_HALF,
        later=424,
    ),
    ScoredSet(
        name="chnsenticorp",
        title="ChnSentiCorp",
        task="chnsenticorp",
        language="zh",
        form="table",
        files=_of("chnsenticorp", parts=SPLITS),
        shown=("accuracy",),
    ),
    ScoredSet(
        name="weibo-ner",
        title="Weibo NER",
        task="weibo-ner",
        language="zh",
        form="sentences",
        files=_named("weibo_ner", *(f"weiboNER_2nd_conll.{part}" for part in SPLITS)),
        shown=("f1",),
    ),
)


def chosen_sets(names: Sequence[str]) -> list[ScoredSet]:
    """Return the sets of these names, all of them without one.

    Raises:
        MaskwrightError: If there is no such set; the nearest name is suggested.
    """
    known = {each.name: each for each in SETS}
    for name in names:
        if name not in known:
            problem, allowed, todo = unknown_name("set", name, known)
            raise MaskwrightError(problem, allowed=allowed, todo=todo)
    return [known[name] for name in names] or list(SETS)


def write_parts(
    chosen: ScoredSet, data: Path, folder: Path, most: Mapping[Split, int | None]
) -> dict[Split, list[Path]]:
    """Write the parts of a set that are learnt from and scored, unless they are there already.

    Args:
        chosen: The set.
        data: The data folder.
        folder: Where to write.
        most: Examples of each part at most (of questions, about so many: a text keeps all of its own); None: all.

    Returns:
        Files by part.

    Raises:
        MaskwrightError: If a file is missing.
    """
    found = {part: [data / name for name in names] for part, names in chosen.files.items()}
    for path in (path for paths in found.values() for path in paths):
        if not path.is_file():
            raise MaskwrightError(
                f"{path}, of the set {chosen.title}, is not there", todo="Put it there, or leave the set out: --only."
            )
    form = _FORMS[chosen.form]
    held = {part: [form.read(path) for path in paths] for part, paths in found.items()}
    if chosen.later:
        # There is no training file of a size worth the name: the first texts of the development file are learnt from.
        *_, last = held["dev"]
        held["train"].append(last[: chosen.later])
        held["dev"][-1] = last[chosen.later :]
    return {part: [_written(form, part, pieces, folder, most.get(part))] for part, pieces in held.items()}


@dataclass(frozen=True, slots=True)
class _Form:
    """How files of a form are taken apart and put together.

    Attributes:
        read: Gives the pieces of a file; a heading is the first of them.
        write: Makes a file of pieces.
        examples: Counts the examples in a piece.
        ending: The file's ending.
        headings: Pieces at the beginning that every part keeps.
    """

    read: Callable[[Path], list[Any]]
    write: Callable[[Path, Sequence[Any]], None]
    examples: Callable[[Any], int]
    ending: str
    headings: int = 0


def _written(form: _Form, part: Split, files: Sequence[Sequence[Any]], folder: Path, most: int | None) -> Path:
    heading = list(files[0][: form.headings])
    pieces = [piece for file in files for piece in file[form.headings :]]
    path = folder / f"{part}{form.ending}"
    form.write(path, heading + _spread(pieces, [form.examples(piece) for piece in pieces], most))
    return path


def _spread(pieces: Sequence[Any], sizes: Sequence[int], most: int | None) -> list[Any]:
    """Choose pieces at even distances that hold about so many examples."""
    total = sum(sizes)
    if most is None or total <= most:
        return list(pieces)
    count = max(1, round(len(pieces) * most / total))
    return [pieces[int((number + 0.5) * len(pieces) / count)] for number in range(count)]


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]


def _blocks(path: Path) -> list[str]:
    blocks, lines = list[str](), list[str]()
    for line in [*path.read_text(encoding="utf-8-sig").splitlines(), ""]:
        if line.strip():
            lines.append(line)
        elif lines:
            blocks.append("\n".join(lines) + "\n")
            lines = []
    return blocks


def _paragraphs(path: Path) -> list[dict[str, Any]]:
    return [paragraph for article in read_json(path)["data"] for paragraph in article["paragraphs"]]


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))


_FORMS: Mapping[Form, _Form] = {
    "table": _Form(_lines, _write_lines, lambda _: 1, ".tsv", 1),
    "headless table": _Form(_lines, _write_lines, lambda _: 1, ".tsv"),
    "sentences": _Form(_blocks, _write_lines, lambda _: 1, ".conll"),
    "articles": _Form(
        _paragraphs,
        lambda path, paragraphs: write_json(path, {"data": [{"title": "", "paragraphs": list(paragraphs)}]}),
        lambda paragraph: len(paragraph["qas"]),
        ".json",
    ),
    "records": _Form(_lines, _write_lines, lambda line: len(json.loads(line)["questions"]), ".jsonl"),
}
