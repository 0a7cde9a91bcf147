"""Commands that train nothing, and misspelled names, answer without importing PyTorch, which takes seconds."""

import subprocess
import sys

import pytest

_RUN = """
import sys
from maskwright.cli.main import main
for words in {commands!r}:
    try:
        main(words.split())
    except SystemExit as stop:
        assert (stop.code or 0) == {code}, (words, stop.code)
    heavy = {{"torch", "transformers", "datasets"}} & set(sys.modules)
    assert not heavy, (words, heavy)
"""


@pytest.mark.parametrize(
    ("code", "commands"),
    [
        (
            0,
            (
                "--help",
                "recipes",
                "recipes show bert/base",
                "recipes diff bert/base distilbert/base",
                "recipes size electra/base",
                "show ernie/base --help",
                "pretrain --help",
                "finetune --help",
            ),
        ),
        (
            2,
            (
                "recpies",
                "recipes shwo bert/base",
                "recipes show bret/base",
                "recipes show bert/base --set masking.rat=0.2",
                "show bret/base --text abc",
                "pretrain x --out /nowhere/run --recipe bret/base",
                "pretrain x --ouy /nowhere/run",
                "fill-mask ./nowhere abc",
                "embed ./nowhere abc",
                "detect ./nowhere abc",
                "predict ./nowhere abc",
                "evaluate ./nowhere",
                "finetune ./nowhere --task sst-2 --out /nowhere/tuned",
            ),
        ),
    ],
)
def test_commands_that_train_nothing_do_not_import_torch(code: int, commands: tuple[str, ...]) -> None:
    script = _RUN.format(commands=commands, code=code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
