"""The command itself: fast help, errors in one line with suggestions, tracebacks only on request."""

import errno
import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from maskwright.cli import output
from maskwright.cli.main import SUBCOMMANDS, load, main
from maskwright.core.errors import DataError


@pytest.fixture
def verb(monkeypatch):
    """Replace what the verb `show` does."""

    def replace(action):
        def command() -> None:
            action()

        module = type(sys)("maskwright.cli.inspection.show")
        module.command = command
        monkeypatch.setitem(sys.modules, "maskwright.cli.inspection.show", module)

    return replace


def test_help_names_every_verb(run):
    code, out, _ = run("--help")
    assert code == 0
    assert all(name in out for name in SUBCOMMANDS)
    _, out, err = run()
    assert "quickstart" in out + err


@pytest.mark.parametrize("name", sorted(SUBCOMMANDS))
def test_every_verb_has_help(run, name):
    assert load(name).name == name
    code, out, _ = run(name, "--help")
    assert code == 0
    assert f"Usage: maskwright {name}" in out


def test_the_version_is_printed_also_by_the_module_which_imports_nothing_from_the_current_directory(tmp_path):
    # Not importlib, warnings, collections and others, which Python itself imports before maskwright.
    for name in ("pickle", "signal", "random", "typing", "re", "enum", "copyreg"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the current directory')")
    for arguments, begin in (("--version",), "maskwright "), (("recipes",), ""):
        command = [sys.executable, "-m", "maskwright", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stdout.startswith(begin)


@pytest.mark.parametrize(
    ("words", "expected", "unexpected"),
    [
        ("pretrian", "Did you mean 'pretrain'", ""),
        ("pretrain x --model bert/base", "Possible options: --recipe", "--help)"),
        ("fill-mask --model runs/mine x", "model is an argument without a name: maskwright fill-mask MODEL", "--help)"),
        ("embed m x --poling mean", "Possible options: --pooling", "--set"),
        ("pretrain x --lr 1e-4", "Use --set training.learning_rate=VALUE", "--help)"),
        ("pretrain x --dropout 0", "Use --set encoder.hidden_dropout=VALUE", "--out"),
        ("finetune m --task sst-2 --learning-rat 1e-4", "Use --set learning_rate=VALUE", "Possible"),
        ("finetune m --task sst-2 --tets x", "--test", "--set"),
        ("finetune m --zzzzzz x", "No such option: --zzzzzz", "--set"),
        # Not an unknown option, but one without its value.
        ("finetune m --seed", "Option '--seed' requires an argument", "--set"),
        ("embed m x --precision int9", "'int9' is not one of 'auto', 'fp32', 'bf16', 'int8'", "Value error"),
    ],
)
def test_unknown_commands_and_options_get_suggestions(run, monkeypatch, words, expected, unexpected):
    monkeypatch.setenv("COLUMNS", "160")
    code, _, err = run(*words.split())
    message = err.split("Error", 1)[-1]
    assert code == 2
    assert expected in message
    assert not unexpected or unexpected not in message


_RUN = """
import sys
from maskwright.cli.main import main
for words, code, heavy in {commands!r}:
    try:
        main(words.split())
    except SystemExit as stop:
        assert (stop.code or 0) == code, (words, stop.code)
    assert not heavy & set(sys.modules), (words, heavy & set(sys.modules))
"""
HEAVY = {"torch", "transformers", "datasets"}
GOOD = """
recipes
recipes show bert/base
recipes diff bert/base distilbert/base
recipes size electra/base
show ernie/base --help
pretrain --help
compare --help
finetune --help
"""
WRONG = """
recpies
recipes shwo bert/base
recipes show bret/base
recipes show bert/base --set masking.rat=0.2
show bret/base --text abc
pretrain x --out /nowhere/run --recipe bret/base
compare x --out /nowhere/study --recipes bret/base --flops 1
pretrain x --ouy /nowhere/run
pretrain x --lr 3
fill-mask ./nowhere abc
embed ./nowhere abc
detect ./nowhere abc
predict ./nowhere abc
evaluate ./nowhere
finetune ./nowhere --task sst-2 --out /nowhere/tuned
"""


def test_commands_that_train_nothing_do_not_import_torch_and_help_imports_nothing_heavy() -> None:
    commands = [("--help", 0, HEAVY | {"numpy", "pydantic", "tokenizers", "yaml", "pyarrow"})]
    for code, lines in ((0, GOOD), (2, WRONG)):
        commands += [(words, code, HEAVY) for words in lines.strip().splitlines()]
    script = _RUN.format(commands=commands)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr


def test_errors_of_users_are_one_line_and_exit_code_2(run, verb, monkeypatch):
    def fail():
        raise DataError("the corpus 'x.txt' has no documents", hint="Look at [it]")

    monkeypatch.delenv("MASKWRIGHT_DEBUG", raising=False)
    verb(fail)
    assert run("show") == (2, "", "error: the corpus 'x.txt' has no documents. Look at [it].\n")
    monkeypatch.setenv("MASKWRIGHT_DEBUG", "1")
    with pytest.raises(DataError):
        main(["show"])


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (MemoryError(), "not enough memory (MemoryError)"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"), "not enough memory"),
        (ImportError("libtorch.so: failed to map segment from shared object"), "not enough memory"),
        (RuntimeError("std::bad_alloc"), "not enough memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 5000), "(5,000 characters)': File name too long"),
        (PermissionError(errno.EACCES, "Permission denied", b"a\xff"), "Permission denied"),
        (EOFError("No data left in file"), "No data left in file"),  # Which click takes for an abort.
    ],
)
def test_errors_of_the_system_are_one_line(run, verb, monkeypatch, error, part):
    def fail():
        raise error

    monkeypatch.delenv("MASKWRIGHT_DEBUG", raising=False)
    verb(fail)
    code, out, err = run("show")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert part in err
    assert "Aborted" not in err
    assert len(err) < 400
    assert err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["recipes"], ["recipes", "--json"]])
def test_a_full_disk_under_standard_output_is_one_line(monkeypatch, capsys, arguments):
    monkeypatch.delenv("MASKWRIGHT_DEBUG", raising=False)
    with capsys.disabled(), pytest.MonkeyPatch.context() as patch, open("/dev/full", "w") as full:
        patch.setattr(sys, "stderr", errors := io.StringIO())
        patch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        with open(os.devnull, "w") as null:  # What is left of the output fails again.
            os.dup2(null.fileno(), full.fileno())
    assert caught.value.code == 2
    assert errors.getvalue() == "error: cannot read or write: No space left on device. Check where the output goes.\n"


def test_other_errors_are_not_hidden_and_an_interrupt_ends_with_130(run, verb):
    def fail(error):
        raise error

    verb(lambda: fail(ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        main(["show"])
    verb(lambda: fail(KeyboardInterrupt))
    code, _, err = run("show")
    assert code == 130
    assert "Traceback" not in err


def test_closed_pipe_is_quiet():
    command = [sys.executable, "-m", "maskwright", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""


def _pipe(monkeypatch, encoding):
    """Make standard output a pipe with an encoding."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    return written


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii", "gbk"])
def test_json_is_utf_8_on_any_pipe(monkeypatch, encoding):
    written = _pipe(monkeypatch, encoding)
    value = {"token": "\u0120the \u5b57 \U0001f600", "file": "caf\udce9.txt"}
    print("before", flush=False)
    output.print_json(value)
    first, _, rest = written.getvalue().partition(b"\n")
    assert first == b"before"
    assert json.loads(rest.decode("utf-8")) == value
    assert "\u5b57" in rest.decode("utf-8")


def test_json_is_printed_on_streams_without_bytes_with_null_for_what_is_not_a_number(monkeypatch):
    caught = io.StringIO()
    monkeypatch.setattr(sys, "stdout", caught)
    output.print_json(["\u5b57", float("nan"), float("-inf"), 0.5])
    assert caught.getvalue() == '[\n  "\u5b57",\n  null,\n  null,\n  0.5\n]\n'


def test_tables_escape_characters_that_a_code_page_lacks(monkeypatch):
    written = _pipe(monkeypatch, "cp1252")
    output.table(("token", "text"), [("\u0120the", "caf\u00e9 \u5b57")])
    sys.stdout.flush()
    assert "\\u0120the" in written.getvalue().decode("cp1252")
    assert "caf\u00e9 \\u5b57" in written.getvalue().decode("cp1252")


def test_a_warning_is_one_line_without_code(run, verb):
    verb(lambda: warnings.warn("prepared data is damaged", stacklevel=1))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = run("show")
    assert (code, err) == (0, "warning: prepared data is damaged\n")
