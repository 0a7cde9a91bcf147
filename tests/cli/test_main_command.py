"""The command itself: help at once, errors in one line, no traceback but on request."""

import resource
import subprocess
import sys

import pytest

from maskwright.cli import main as command_line
from maskwright.cli.main import VERBS, load, main
from maskwright.core.errors import DataError


@pytest.fixture
def run(capsys):
    """Run the command line; return (exit code, standard output, standard error)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        captured = capsys.readouterr()
        return exit.value.code, captured.out, captured.err

    return run


@pytest.fixture
def verb(monkeypatch):
    """Let the verb `show` do something else."""

    def replace(action):
        def command() -> None:
            action()

        module = type(sys)("maskwright.cli.show")
        module.command = command
        monkeypatch.setitem(sys.modules, "maskwright.cli.show", module)

    return replace


def test_help_names_every_verb(run):
    code, out, _ = run("--help")
    assert code == 0
    for name in VERBS:
        assert name in out


def test_no_arguments_is_help(run):
    _, out, err = run()
    assert "quickstart" in out + err


def test_version_is_printed(run):
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("maskwright ")


def test_misspelt_verb_is_answered_with_the_nearest(run):
    code, _, err = run("pretrian")
    assert code == 2
    assert "pretrain" in err.split("Did you mean", 1)[1]


def test_help_imports_nothing_heavy():
    script = (
        "import sys\n"
        "from maskwright.cli.main import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        "    heavy = {'torch', 'numpy', 'pydantic', 'tokenizers', 'yaml', 'pyarrow'} & set(sys.modules)\n"
        "    sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_answers_at_once():
    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "maskwright", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Time of the processor, not of the clock: the promise is for a machine that is not busy with other tests.
    assert min(seconds() for _ in range(3)) < 0.3


@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_verb_loads_and_explains_itself(run, name):
    assert load(name).name == name
    code, out, _ = run(name, "--help")
    assert code == 0
    assert f"Usage: maskwright {name}" in out


def test_errors_of_users_are_one_line_and_exit_code_2(run, verb, monkeypatch):
    def fail():
        raise DataError("the corpus 'x.txt' has no documents", todo="Look at [it]")

    monkeypatch.delenv("MASKWRIGHT_DEBUG", raising=False)
    verb(fail)
    code, out, err = run("show")
    assert (code, out) == (2, "")
    assert err == "error: the corpus 'x.txt' has no documents. Look at [it].\n"


def test_debug_raises(verb, monkeypatch):
    def fail():
        raise DataError("x")

    verb(fail)
    monkeypatch.setenv("MASKWRIGHT_DEBUG", "1")
    with pytest.raises(DataError):
        main(["show"])


def test_mistakes_of_ours_are_not_hidden(verb):
    def fail():
        raise ZeroDivisionError("x")

    verb(fail)
    with pytest.raises(ZeroDivisionError):
        main(["show"])


def test_interrupt_ends_with_130(run, verb):
    def fail():
        raise KeyboardInterrupt

    verb(fail)
    code, _, err = run("show")
    assert code == 130
    assert "Traceback" not in err


def test_closed_pipe_is_quiet():
    command = [sys.executable, "-m", "maskwright", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""


def test_module_runs_as_a_program():
    done = subprocess.run([sys.executable, "-m", "maskwright", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("maskwright ")


def test_table_of_verbs_is_read_only():
    with pytest.raises(TypeError):
        command_line.VERBS["x"] = None
