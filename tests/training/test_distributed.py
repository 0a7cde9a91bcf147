"""Runs of several processes: the same curves as of one, every sample once, and an end when a process ends."""

import json
import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from test_batches import step
from test_every_recipe import RECIPES, model_of, teacher_of, toy
from toy_runs import CLEAN, TOY, write_corpus

from damage import without_times
from maskwright.cli.main import main
from maskwright.core.errors import DeviceError, TrainingError
from maskwright.core.storage.files import read_json
from maskwright.reporting.metrics import read_rows
from maskwright.training.ranks import distributed
from maskwright.training.steps.transfer import map_tensors

STEPS = 50
STOPS = {1: 7, 2: 15, 3: 22}
"""After which step the run of so many processes is stopped; one process ends it."""
TIMEOUT = 600.0
"""Seconds until a test stops waiting for processes."""
RECIPES_TRAINED = ("bert/tiny", "electra/tiny", "distilbert/tiny")
SETTINGS = tuple(setting for setting in TOY if "learning_rate" not in setting)
NO_DROPOUT = ("encoder.hidden_dropout=0", "encoder.attention_dropout=0")
SOURCE = Path(distributed.__file__).parents[2]

Job = dict[str, Any]


def job(call: str, ranks: int, *, stop_after: int = 0, log: str = "", **arguments: Any) -> Job:
    """Return a job of `rank_process.py`."""
    return {"call": call, "ranks": ranks, "arguments": arguments, "stop_after": stop_after, "log": log}


def environment(**changes: str) -> dict[str, str]:
    paths = [str(SOURCE), *map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **changes}


def _server() -> socket.socket:
    """Listen at a free port below 32768, from where on Linux gives ports to the connections of other tests."""
    while True:
        with suppress(OSError):
            return socket.create_server(("127.0.0.1", 20_000 + secrets.randbelow(12_000)))


def do(jobs: Sequence[Job], folder: Path) -> None:
    """Do jobs in as many processes as the largest needs."""
    file = folder / "jobs.json"
    with ExitStack() as reserved:  # A process may wait for its next job while others still do another.
        ports = [reserved.enter_context(_server()).getsockname()[1] for _ in jobs]
    jobs = [{**job, "port": str(port)} for job, port in zip(jobs, ports, strict=True)]
    file.write_text(json.dumps(jobs), encoding="utf-8")
    with ExitStack() as at_end:
        processes = []
        for rank in range(max(job["ranks"] for job in jobs)):
            command = [sys.executable, Path(__file__).with_name("rank_process.py"), file]
            variables = environment(RANK=str(rank), MASTER_ADDR="127.0.0.1")
            processes.append(at_end.enter_context(subprocess.Popen(command, env=variables)))
            at_end.callback(processes[-1].kill)
        assert [process.wait(timeout=TIMEOUT) for process in processes] == [0] * len(processes)


class Workplace:
    """A folder with a corpus, where jobs are made for the processes of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.corpus = folder, write_corpus(folder / "corpus.txt")

    def job(self, recipe: str, ranks: int, *, out: str = "", log: str = "", stop_after: int = 0, **more: Any) -> Job:
        name = f"{recipe.partition('/')[0]}-{ranks}"
        settings = [each for each in SETTINGS if recipe != "distilbert/tiny" or "vocab_size" not in each]
        arguments: dict[str, Any] = {
            "corpus": str(self.corpus),
            "out": str(self.folder / (out or name)),
            "recipe": recipe,
            "steps": STEPS,
            "set": [*settings, "training.learning_rate=0.001"],
            "clean": CLEAN,
            "workers": 1,
            "cache": str(self.folder / "cache"),
            **({"teacher": str(self.folder / "bert-1")} if recipe == "distilbert/tiny" else {}),
            **more,
        }
        return job("pretrain", ranks, stop_after=stop_after, log=str(self.folder / f"keys-{log or name}"), **arguments)

    def samples(self, log: str) -> list[tuple[int, int, int, int]]:
        """Return step, rank, epoch and number of each sample that was trained on."""
        lines = [line for file in self.folder.glob(f"keys-{log}-*") for line in file.read_text("utf-8").splitlines()]
        return [(each["step"], each["rank"], *sample) for each in map(json.loads, lines) for sample in each["samples"]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Each recipe by one, two and four processes, and one run by one, two, three and one."""
    workplace = Workplace(tmp_path_factory.mktemp("ranks"))
    jobs = [workplace.job(recipe, ranks) for ranks in (1, 2, 4) for recipe in RECIPES_TRAINED]
    resumed = partial(workplace.job, "electra/tiny", out="resumed")
    jobs.append(workplace.job("bert/tiny", 2, out="bf16", log="bf16", gradient_precision="bf16"))
    jobs += [
        resumed(ranks, log=f"resumed-{ranks}", stop_after=after, checkpoint_minutes=each)
        for (ranks, after), each in zip(STOPS.items(), (1.0, 0.0, 1.0), strict=True)  # 0: after every step
    ]
    jobs.append(resumed(1, log="resumed-last"))
    do(jobs, workplace.folder)
    return workplace


def assert_same_curve(one: Path, other: Path) -> None:
    expected, actual = (read_rows(folder / "metrics.jsonl") for folder in (one, other))
    assert expected[-1]["step"] == STEPS
    assert [row["step"] for row in actual] == [row["step"] for row in expected]
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            tolerance = 1e-3 if name == "gradient_norm" else 1e-5
            assert ours[name] == pytest.approx(value, rel=tolerance), (name, theirs["step"])


@pytest.mark.slow
def test_a_slow_process_is_named(tmp_path: Path) -> None:
    job, messages = Workplace(tmp_path).job("bert/tiny", 2, steps=60), tmp_path / "messages.json"
    do([{**job, "slow": 1, "messages": str(messages)}], tmp_path)
    (line,) = [text for topic, text in json.loads(messages.read_text(encoding="utf-8")) if topic == "slow"]
    assert line.startswith(f"rank 1 on {platform.node()} takes ")


@pytest.mark.slow
def test_the_other_processes_wait_for_an_upload_that_takes_longer_than_their_timeout(tmp_path: Path) -> None:
    mirror = f"file://{tmp_path / 'mirror'}"
    job = Workplace(tmp_path).job("bert/tiny", 2, steps=2, mirror=mirror, checkpoint_minutes=0.0)
    do([{**job, "timeout": 4, "upload": 6}], tmp_path)
    assert read_json(tmp_path / "mirror/latest.json")["copy"] == "step-000000002"


def write_labeled(folder: Path) -> tuple[Path, Path]:
    """Write texts with two labels; the last batch of an epoch, of 8 texts, has one."""
    rows = [f"the {'old' if n % 2 else 'new'} captain {'sees ships ' * (n % 5)}{n}\t{n % 2}" for n in range(61)]
    files = {"train.tsv": rows[:33], "dev.tsv": rows[33:]}
    for name, part in files.items():
        (folder / name).write_text("\n".join(("text\tlabel", *part)) + "\n", encoding="utf-8")
    return folder / "train.tsv", folder / "dev.tsv"


FINE_TUNING = (
    "batch_size=8",
    "learning_rate=0.001",
    *(f"{name}_dropout=0" for name in ("hidden", "attention", "head")),
)


def assert_same_fine_tuning(one: Path, other: Path) -> None:
    assert without_times(one / "results.json") == without_times(other / "results.json")
    for seed in ("seed-0", "seed-1"):
        expected, actual = (read_rows(folder / "runs" / seed / "metrics.jsonl") for folder in (one, other))
        assert len(expected) > 20
        assert [row.keys() for row in actual] == [row.keys() for row in expected]
        for ours, theirs in zip(actual, expected, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-5)
        models = [load_file(folder / "runs" / seed / "model" / "model.safetensors") for folder in (one, other)]
        # Together: a key's bias is only rounding errors, since its gradient is zero.
        weights = [torch.cat([model[name].flatten() for name in models[0]]) for model in models]
        assert float((weights[0] - weights[1]).norm()) <= 1e-5 * float(weights[0].norm())
    files = [{path.relative_to(folder) for path in folder.rglob("*")} for folder in (one, other)]
    assert files[0] == files[1]


@pytest.mark.slow
class TestTrained:
    """Tests of the fixture `trained`, half a minute of work: with `--dist loadscope` one worker runs all of them."""

    @pytest.mark.parametrize("recipe", RECIPES_TRAINED)
    @pytest.mark.parametrize("ranks", [2, 4])
    def test_several_processes_learn_as_one_does(self, recipe: str, ranks: int, trained: Workplace) -> None:
        name = recipe.partition("/")[0]
        assert_same_curve(trained.folder / f"{name}-1", trained.folder / f"{name}-{ranks}")
        samples = trained.samples(f"{name}-{ranks}")
        shares = Counter(rank for _, rank, *_ in samples)
        assert set(shares) == set(range(ranks))
        # A cut at equal tokens gives the last rank the fewest sequences: of 8, one to each of four at least.
        assert min(shares.values()) > {2: 0.4, 4: 0.1}[ranks] * len(samples)

    def test_bf16_gradients_change_little(self, trained: Workplace) -> None:
        exact, rounded = (
            np.array([row["loss"] for row in read_rows(trained.folder / run / "metrics.jsonl") if "loss" in row])
            for run in ("bert-2", "bf16")
        )
        assert len(rounded) == len(exact)
        assert rounded[0] == exact[0]
        assert 1e-6 < np.abs(rounded / exact - 1).max() < 0.01

    def test_a_run_continues_with_any_number_of_processes_and_trains_on_each_sample_once(
        self, trained: Workplace
    ) -> None:
        sessions = {log: trained.samples(f"resumed-{log}") for log in ("1", "2", "3", "last")}
        assert [len({rank for _, rank, *_ in samples}) for samples in sessions.values()] == [1, 2, 3, 1]
        steps = [sorted({step for step, *_ in samples}) for samples in sessions.values()]
        assert [step for session in steps for step in session] == list(range(STEPS))
        samples = [(epoch, number) for session in sessions.values() for _, _, epoch, number in session]
        assert len(set(samples)) == len(samples) == STEPS * 8
        assert max(epoch for epoch, _ in samples) >= 2
        assert set(samples) == {(epoch, number) for _, _, epoch, number in trained.samples("electra-1")}
        assert_same_curve(trained.folder / "electra-1", trained.folder / "resumed")
        files = [{path.name for path in trained.folder.glob(f"{run}/**/step-*/*")} for run in ("electra-1", "resumed")]
        assert files[0] == files[1] == {"copies", "optimizer.safetensors", "state.json", "weights.safetensors"}

    def test_fine_tuning_by_any_number_of_processes_gives_what_one_gives(self, trained: Workplace) -> None:
        folder, (train, dev) = trained.folder, write_labeled(trained.folder)

        def tune(ranks: int, out: str, stop_after: int = 0) -> Job:
            arguments = {
                "model": str(folder / "bert-1"),
                "task": "classification",
                "train": str(train),
                "dev": str(dev),
                "test": str(dev),
                "out": str(folder / out / "tuned"),
                "seeds": 2,
                "set": [*FINE_TUNING, "epochs=4"],
            }
            return job("finetune", ranks, stop_after=stop_after, **arguments)

        stopped = [tune(ranks, "tuned-stopped", after) for ranks, after in ((1, 3), (2, 9), (3, 16))]
        do([tune(1, "tuned-1"), tune(2, "tuned-2"), *stopped, tune(2, "tuned-stopped")], folder)
        assert_same_fine_tuning(folder / "tuned-1/tuned", folder / "tuned-2/tuned")
        assert_same_fine_tuning(folder / "tuned-1/tuned", folder / "tuned-stopped/tuned")

    def test_a_study_by_two_processes_finds_what_one_finds(self, trained: Workplace) -> None:
        folder, (train, _) = trained.folder, write_labeled(trained.folder)

        def study(ranks: int, out: str, stop_after: int = 0) -> Job:
            arguments = {
                "corpus": str(trained.corpus),
                "recipes": {"bert": "bert/tiny", "words": "bert/tiny"},
                "out": str(folder / out),
                "tokens": 5e3,
                "seeds": 1,
                "tasks": ["masked", f"ages:classification={train}"],
                "set": [*SETTINGS, *NO_DROPOUT, "words:masking=whole_word"],
                "clean": CLEAN,
                "finetune_set": [*FINE_TUNING, "epochs=1"],
                "workers": 1,
                "cache": str(folder / "cache"),
            }
            return job("compare", ranks, stop_after=stop_after, **arguments)

        do([study(1, "study-1"), study(2, "study-2", 4), study(2, "study-2")], folder)
        one, two = (read_json(folder / out / "report.json")["metrics"] for out in ("study-1", "study-2"))
        assert one.keys() == two.keys()
        for name, metric in one.items():
            for label, row in metric["rows"].items():
                assert two[name]["rows"][label]["values"] == pytest.approx(row["values"], rel=1e-5), (name, label)


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.01)


def start_two(command: Sequence[str], folder: Path) -> "subprocess.Popen[str]":
    """Start two processes by torchrun, which starts them again once."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    return subprocess.Popen(
        [sys.executable, *torchrun, *command],
        env=environment(MASKWRIGHT_CACHE=str(folder / "cache")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_one_after(step: int, run: Path, process: "subprocess.Popen[str]") -> None:
    def is_reached() -> bool:
        assert process.poll() is None
        rows = read_rows(run / "metrics.jsonl")
        return bool(rows) and rows[-1]["step"] >= step and any(run.glob("checkpoints/step-*"))

    wait_for(is_reached)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    os.kill(int(children[-1]), signal.SIGKILL)


@pytest.mark.slow
def test_torchrun_resumes_fine_tuning_after_a_kill(bert_folder: Path, tmp_path: Path) -> None:
    train, dev = write_labeled(tmp_path)
    command = ["-m", "maskwright", "finetune", str(bert_folder), "--task=classification", f"--train={train}"]
    command += [f"--dev={dev}", f"--test={dev}", "--checkpoint-minutes=0.001", "--json", "--set=epochs=40"]
    command += ["--set=max_length=40", "--set=batch_size=8", "--set=learning_rate=0.0001", "--set=patience=0"]
    outs = [tmp_path / name / "tuned" for name in ("undisturbed", "disturbed")]
    for out in outs:
        process = start_two([*command, f"--out={out}"], tmp_path)
        if out == outs[1]:
            kill_one_after(20, out / "runs/seed-0", process)
        printed, problems = process.communicate(timeout=300)
        assert process.returncode == 0, problems
        assert json.loads(printed)["finished"], "only the first process prints"
    assert read_json(outs[1] / "run.json")["ranks"] == 2
    for name in ("runs/seed-0/metrics.jsonl", "model.safetensors", "results.json", "runs/seed-0/test.json"):
        assert without_times(outs[0] / name) == without_times(outs[1] / name), name


@pytest.mark.slow  # Processes start seven times.
def test_a_killed_process_stops_the_others_and_torchrun_resumes(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    steps, settings = 120, [*SETTINGS, "training.learning_rate=0.001", "training.batch_sequences=16"]
    do([workplace.job("bert/tiny", 2, out="undisturbed", steps=steps, set=settings)], tmp_path)
    out = tmp_path / "disturbed"
    options = [f"--out={out}", "--recipe=bert/tiny", f"--steps={steps}", "--workers=1", f"--clean={CLEAN[0]}"]
    command = ["-m", "maskwright", "pretrain", str(workplace.corpus), *options, "--checkpoint-minutes=0.001"]
    command += [f"--set={setting}" for setting in settings]
    process = start_two(command, tmp_path)
    kill_one_after(10, out, process)
    wait_for(lambda: read_rows(out / "metrics.jsonl")[-1]["step"] >= 30)  # torchrun has started them again.
    kill_one_after(30, out, process)
    _, problems = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: another process of this run ended" in problems
    process = start_two(command, tmp_path)
    _, problems = process.communicate(timeout=120)
    assert process.returncode == 0, problems
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes(), name


@pytest.mark.parametrize("name", RECIPES)
def test_a_micro_batch_without_targets_has_gradients_for_the_same_parameters(name: str) -> None:
    # The ranks add up lists of gradients: they must be of the same parameters.
    recipe = toy(name)
    model = model_of(recipe, teacher_of(recipe, 0)).train()
    batch = step(recipe, tokens_per_microbatch=4096, count=8)
    (micro,) = batch.micro_batches
    reached = []
    for targets in (micro.targets, map_tensors(micro.targets, lambda each: each[:0])):
        terms = model.losses(type(micro)(micro.batch, targets))
        torch.autograd.backward(torch.stack([term.total for term in terms.values()]).sum())
        reached.append({key for key, parameter in model.named_parameters() if parameter.grad is not None})
        model.zero_grad(set_to_none=True)
    assert reached[0] == reached[1]


def test_each_process_gets_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    assert distributed.own_device(cuda) == cuda
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert distributed.own_device(cuda) == torch.device("cuda:1")
    assert distributed.own_device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(DeviceError, match="each process needs a GPU of its own"):
        distributed.own_device(torch.device("cuda:0"))
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(DeviceError, match="this machine has 2"):
        distributed.own_device(cuda)


def test_other_commands_refuse_several_processes(monkeypatch, capsys):
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main(["plan", "corpus.txt"])
    assert "torchrun started 2 processes, and `plan` uses one" in capsys.readouterr().err


def test_an_error_is_reported_although_the_store_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(torch.distributed.HashStore):
        def add(self, key: str, amount: int) -> int:
            raise RuntimeError("Connection timed out")

    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setattr(distributed, "_new_store", lambda: (Lost(), 0, 1))
    try:
        with pytest.raises(TrainingError, match="cannot be reached"), distributed.process_group():
            raise TrainingError("another process cannot be reached")
    finally:
        torch.distributed.destroy_process_group()


def test_a_variable_of_torchrun_alone_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with distributed.process_group():
        assert distributed.world_size() == 1
    with pytest.raises(SystemExit) as exit:
        main(["recipes"])
    assert exit.value.code == 0
