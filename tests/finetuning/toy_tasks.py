"""Small labeled files in the words of the tiny models of `conftest`, for each kind of task, and a reporter."""

import json
from pathlib import Path

_FELINE, _CANINE = ("cat", "cats"), ("dog", "dogs")
_DOES = ("sat on the mat", "ran to the tree", "and we love the tree", "sat", "ran on", "ran , and sat !")
PEOPLE = "我你他"
QUICK = ("learning_rate=5e-3", "batch_size=8", "epochs=2", "max_length=32")


def texts(folder: Path, name: str = "texts.csv", *, offset: int = 0, rows: int = 48, labeled: bool = True) -> Path:
    """A CSV of texts about cats (label "feline") and dogs ("canine")."""
    lines = ["text,label" if labeled else "text"]
    for number in range(offset, offset + rows):
        words, label = ((_FELINE, "feline"), (_CANINE, "canine"))[number % 2]
        text = f"the {words[number // 2 % 2]} {_DOES[number // 4 % len(_DOES)]}"
        lines.append(f'"{text}",{label}' if labeled else f'"{text}"')
    return _write(folder / name, lines)


def numbers(folder: Path, rows: int = 48) -> Path:
    """A TSV of pairs with a number: how many cats there are."""
    lines = ["a\tb\tscore"]
    for number in range(rows):
        first, second = number % 2, number // 2 % 2
        lines.append(f"the {('dog', 'cat')[first]} sat\tthe {('dog', 'cat')[second]} ran\t{first + second}")
    return _write(folder / "numbers.tsv", lines)


def several(folder: Path, rows: int = 48) -> Path:
    """A JSONL of texts with any number of classes."""
    lines = []
    for number in range(rows):
        cat, tree = number % 2 == 0, number // 2 % 2 == 0
        words = ["the", *(["cat"] if cat else ["dog"]), "ran", *(["to", "the", "tree"] if tree else [])]
        labels = [name for name, holds in (("animal", cat), ("plant", tree)) if holds]
        lines.append(json.dumps({"text": " ".join(words), "labels": labels}))
    return _write(folder / "several.jsonl", lines)


def tagged(folder: Path, rows: int = 36) -> Path:
    """CoNLL columns: Chinese characters, "北京" is a place and 我, 你, 他 are people."""
    lines = []
    for number in range(rows):
        person = PEOPLE[number % 3]
        lines += [f"{person}\tB-PER", "爱\tO"]
        lines += ["北\tB-LOC", "京\tI-LOC", ""] if number % 2 else ["安\tO", "门\tO", ""]
    return _write(folder / "tagged.conll", lines)


def questions(folder: Path, rows: int = 24, *, impossible: bool = False) -> Path:
    """SQuAD JSON: who sat? The answer is the animal before "sat"."""
    paragraphs = []
    for number in range(rows):
        animal = ("cat", "dog")[number % 2]
        context = f"we ran to the tree and the {animal} sat on the mat"
        none = impossible and number % 3 == 2
        answers = [] if none else [{"text": animal, "answer_start": context.index(animal)}]
        question = {"id": f"q{number}", "question": "we love" if none else "the cat or dog", "answers": answers}
        if impossible:
            question["is_impossible"] = none
        paragraphs.append({"context": context, "qas": [question]})
    path = folder / "questions.json"
    path.write_text(json.dumps({"data": [{"title": "x", "paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def choices(folder: Path, rows: int = 24) -> Path:
    """RACE records: which animal was there?"""
    lines = []
    for number in range(rows):
        animal, other = (("cat", "dog"), ("dog", "cat"))[number % 2]
        options = [animal, other] if number // 2 % 2 else [other, animal]
        record = {
            "id": f"c{number}",
            "article": f"the {animal} sat on the mat",
            "questions": ["the"],
            "options": [options],
            "answers": ["AB"[options.index(animal)]],
        }
        lines.append(json.dumps(record))
    return _write(folder / "choices.jsonl", lines)


def again(file: Path) -> Path:
    """The same examples in a file of other bytes: as development examples, they tell whether a model learns at all."""
    return _write(file.with_stem(file.stem + "-again"), [file.read_text(encoding="utf-8")])


def _write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
