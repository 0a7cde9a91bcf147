"""The pages of the documentation, and the command lines in them."""

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Command(NamedTuple):
    """A command line of a page: the words of `maskwright VERB ...`."""

    verb: str
    words: tuple[str, ...]

    @property
    def recipe(self) -> str:
        """The recipe that `pretrain` and `show` are given."""
        return self.words[self.words.index("--recipe") + 1] if "--recipe" in self.words else self.words[0]

    @property
    def settings(self) -> tuple[str, ...]:
        """The values of all `--set`."""
        return tuple(after for word, after in pairwise(self.words) if word == "--set")


def page(name: str) -> str:
    """Return the text of a page."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """Return the text under a heading of the second level."""
    _, separator, rest = text.partition(f"\n## {title}\n")
    assert separator, f"no section {title!r}"
    return rest.partition("\n## ")[0]


def commands(text: str) -> list[Command]:
    """Return the command lines in a text's blocks, those that go over a line's end joined."""
    blocks = "\n".join(re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    lines = [line.removeprefix("$ ") for line in blocks.split("\n")]
    split = [shlex.split(line, comments=True) for line in lines if line.startswith("maskwright ")]
    return [Command(verb, tuple(words)) for _, verb, *words in split]
