"""Faults of runs of several processes under torchrun: killed processes, other numbers of them, a network that is cut.

`python -m benchmarks.elastic OUT PAUSE` is one of the processes.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.recording import record_steps, samples_learned, steps_recorded, whole_epochs
from benchmarks.runner import ROOT, Settings
from benchmarks.table import Table, number
from maskwright.reporting.metrics import read_rows
from maskwright.reporting.reporter import Reporter
from maskwright.training.pretrain import pretrain

_STEPS, _LIMIT = 100, 300.0
"""Steps of a run; seconds until the benchmark stops waiting for processes."""
_TOY = (
    *("encoder.hidden_size=32", "encoder.num_heads=2", "encoder.num_layers=2", "encoder.intermediate_size=64"),
    *("encoder.hidden_dropout=0", "encoder.attention_dropout=0", "tokenizer.vocab_size=300"),
    *("training.batch_sequences=12", "training.learning_rate=0.001", "training.phases=[{share: 1, max_length: 32}]"),
)
_RENDEZVOUS = "read_timeout=10,last_call_timeout=3,keep_alive_interval=2,keep_alive_max_attempt=3"
_VARIABLES = ("GLOO_SOCKET_IFNAME=eth0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
"""Without the second, an agent that is started again times out waiting for the address of rank 0 (PyTorch 2.13)."""
_NEEDS = "not tried: needs root and `ip`"
_RETRIES = 5
"""Retransmissions of a packet by the kernel: a lost connection fails after about 13 seconds, by default 15 minutes."""
_PAUSE = 0.3
"""Seconds that a step takes longer in runs of two nodes, so that they do not end before the lost one is back."""
_started: list["subprocess.Popen[bytes]"] = []


def elastic(settings: Settings) -> Iterator[Table]:
    """Disturb runs of several processes; compare them with an undisturbed one of one process, all without dropout."""
    draw, expected, rows = random.Random(0), settings.scratch / "one-process", list[Sequence[str]]()
    chosen = [name for name in CASES if settings.wants(name) or "elastic" in settings.cases]
    try:
        if chosen:
            assert not _launch(expected, "--standalone", "--nproc-per-node=1").wait(_LIMIT)
        for name in chosen:
            seconds = (_QUICK if settings.quick else CASES)[name](settings.scratch / name, draw)
            rows.append((name, *(_row(settings.scratch / name, expected, seconds) if seconds else [_NEEDS, *[""] * 8])))
    finally:
        for process in _started:
            process.terminate()
    columns = ("processes", "faults", "steps lost", "samples", "samples lost", "samples repeated", "whole epochs")
    if rows:
        yield Table("torchrun", ("case", *columns, "seconds to recover", "largest difference of the loss"), rows)


def _row(out: Path, expected: Path, seconds: list[float]) -> list[str]:
    learned, wanted, lines = samples_learned(out), samples_learned(expected), steps_recorded(out)
    computed = {(line["session"], line["step"]) for line in lines}
    rows = zip(*(read_rows(each / "metrics.jsonl") for each in (out, expected)), strict=True)
    differences = [abs(one["loss"] - other["loss"]) / other["loss"] for one, other in rows if "loss" in one]
    counts = (wanted.total(), (wanted - learned).total(), (learned - wanted).total(), whole_epochs(learned))
    ranks = ", ".join(str(ranks) for _, ranks in sorted({(line["session"], line["ranks"]) for line in lines}))
    numbers = map(str, (len(seconds), len(computed) - _STEPS, *counts))
    return [ranks, *numbers, ", ".join(f"{each:.0f}" for each in seconds), number(max(differences))]


def _restarts(out: Path, draw: random.Random) -> list[float]:
    """Kill a random one of two processes three times; torchrun restarts both."""
    launch, killed = _launch(out, "--standalone", "--nproc-per-node=2", "--max-restarts=3"), [0.0]
    for third in range(3):
        killed.append(_kill(out, 25 * third + draw.randint(5, 20), draw, killed[-1]))
    assert not launch.wait(_LIMIT), out
    return [_first_line(out, since)["time"] - since for since in killed[1:]]


def _launches(out: Path, draw: random.Random, *, numbers: Sequence[int] = (4, 2, 3, 2)) -> list[float]:
    """Kill a random process of each launch but the last; the next launch has another number of processes."""
    begun = []
    for place, processes in enumerate(numbers):
        begun.append(time.monotonic())
        launch, is_last = _launch(out, "--standalone", f"--nproc-per-node={processes}"), place == len(numbers) - 1
        if not is_last:
            _kill(out, 25 * place + draw.randint(5, 20), draw, begun[-1])
        assert bool(launch.wait(_LIMIT)) != is_last, out
    return [_first_line(out, since)["time"] - since for since in begun[1:]]


def _cut_off(out: Path, draw: random.Random, *, lost: int) -> list[float]:
    """Cut one of two nodes off at the switch; the other, with torchrun's store, continues alone until it is back."""
    if os.geteuid() or not shutil.which("ip"):
        return []
    with _network() as names:
        options: tuple[str, ...] = (
            "--nnodes=1:2",
            "--nproc-per-node=2",
            "--max-restarts=20",
            "--rdzv-backend=c10d",
            "--rdzv-id=faults",
        )
        options = (*options, f"--rdzv-endpoint=10.77.0.{3 - lost}:29400")

        def start(node: int) -> "subprocess.Popen[bytes]":
            rendezvous = (f"--local-addr=10.77.0.{node}", f"--rdzv-conf=is_host={node != lost:d},{_RENDEZVOUS}")
            inside = ("ip", "netns", "exec", names[node], "env", *_VARIABLES)
            return _launch(out, *options, *rendezvous, inside=inside)

        others = [start(3 - lost), start(lost)]
        _first_line(out, 0.0, draw.randint(5, 15))
        _ip(f"-n {names[0]} link set port{lost} nomaster")
        cut = time.monotonic()
        alone = _first_line(out, cut)
        assert others.pop().wait(_LIMIT), "torchrun on the lost node stops"
        _ip(f"-n {names[0]} link set port{lost} master switch")
        back = time.monotonic()
        others.append(start(lost))
        together = _first_line(out, back)
        assert (alone["ranks"], together["ranks"]) == (2, 4)
        assert [each.wait(_LIMIT) for each in others] == [0, 0], out
    return [alone["time"] - cut, together["time"] - back]


@contextmanager
def _network() -> Iterator[list[str]]:
    """Make network namespaces while the block runs: a switch and two nodes, 10.77.0.1 and 10.77.0.2."""
    names = [f"maskwright-{os.getpid()}-{part}" for part in ("switch", "1", "2")]
    with ExitStack() as at_end:
        for place, name in enumerate(names):
            _ip(f"netns add {name}")
            at_end.callback(_ip, f"netns delete {name}")
            _ip(f"-n {name} link set lo up")
            if not place:
                _ip(f"-n {name} link add switch type bridge")
                _ip(f"-n {name} link set switch up")
                continue
            _ip(f"-n {names[0]} link add port{place} type veth peer name eth0 netns {name}")
            _ip(f"-n {names[0]} link set port{place} master switch up")
            _ip(f"-n {name} address add 10.77.0.{place}/24 dev eth0")
            _ip(f"-n {name} link set eth0 up")
            _ip(f"netns exec {name} sysctl -qw net.ipv4.tcp_retries2={_RETRIES}")
        yield names


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def _launch(out: Path, *options: str, inside: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
    command = (sys.executable, "-m", "torch.distributed.run", *options, "-m", "benchmarks.elastic", str(out))
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    variables = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MASKWRIGHT_CACHE": str(out.parent / "cache")}
    with open(out.with_suffix(".log"), "ab") as log:
        arguments = [*inside, *command, str(_PAUSE if inside else 0)]
        _started.append(subprocess.Popen(arguments, env={**os.environ, **variables}, stdout=log, stderr=log))
    return _started[-1]


def _kill(out: Path, step: int, draw: random.Random, since: float) -> float:
    """Kill a random process up to 0.2 s after a step of a session that began after `since`; return when."""
    session = _first_line(out, since, step)["session"]
    time.sleep(0.2 * draw.random())
    processes = {line["process"] for line in steps_recorded(out) if line["session"] == session}
    os.kill(draw.choice(sorted(processes)), signal.SIGKILL)
    return time.monotonic()


def _first_line(out: Path, since: float, step: int = 0) -> dict[str, Any]:
    """Wait for a step of a session that began after `since`; return its record."""
    until = time.monotonic() + _LIMIT
    while not (lines := [each for each in steps_recorded(out) if each["session"] > since and each["step"] >= step]):
        assert time.monotonic() < until, f"nothing happened: {out.with_suffix('.log').read_text()[-2000:]}"
        time.sleep(0.05)
    return min(lines, key=lambda line: line["time"])


CASES: dict[str, Callable[[Path, random.Random], list[float]]] = {
    "restarts": _restarts,
    "launches": _launches,
    "cut-node": partial(_cut_off, lost=2),
    "cut-rank-0": partial(_cut_off, lost=1),
}
_QUICK = CASES | {"launches": partial(_launches, numbers=(2, 1))}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    record_steps(folder.with_suffix(f".steps-{os.environ['RANK']}"), pause=float(sys.argv[2]))
    settings: dict[str, Any] = {
        "clean": ["min_document_bytes=1"],
        "workers": 1,
        "checkpoint_minutes": 0.001,
        "reporter": Reporter(),
    }
    pretrain(folder.parent / "corpus.txt", out=folder, recipe="bert/tiny", steps=_STEPS, set=_TOY, **settings)
