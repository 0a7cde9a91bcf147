from collections.abc import Callable

import pytest

from maskwright.cli.main import main

Run = Callable[..., tuple[int, str, str]]


def exit_code(*arguments: object) -> int:
    """Run the command line."""
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    return int(exit.value.code or 0)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line; return (exit code, standard output, standard error)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = exit_code(*arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
