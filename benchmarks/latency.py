"""Latency of embedding calls, quiet and beside other work: median and 99th percentile of each contender.

    python -m benchmarks.latency MODEL [--seconds 10] [--threads 2]

MODEL is a folder of sentence-transformers. Contenders are measured in turns, each in a process of its own, which is
asleep while another is measured. "Busy" is one single-threaded process that computes all the time, "training" a
training of PyTorch with a thread for each core.
"""

import argparse
import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Table

SHORT = ["A man with a hard hat is dancing in the street."]
SENTENCE = "The contract between both parties ends in the third month after a written notice of one of them. "
NATURAL = [(SENTENCE * 4)[: 20 + 6 * place] for place in range(64)]
BESIDE = {
    "quiet": "",
    "busy": "while True: sum(i * i for i in range(100000))",
    "training": (
        "import torch\nmodel = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))\n"
        "while True: model(torch.randn(512, 512)).sum().backward()"
    ),
}


def ours(model: Path, precision: str) -> Callable[[Sequence[str]], Any]:
    """Return maskwright's embedding function."""
    import maskwright

    return maskwright.load(model, device="cpu", precision=precision).embed  # type: ignore[arg-type]


def sentence_transformers(model: Path, backend: str, precision: str) -> Callable[[Sequence[str]], Any]:
    """Return sentence-transformers' embedding function, with PyTorch or with ONNX Runtime on an int8 graph."""
    from sentence_transformers import SentenceTransformer

    if backend == "torch":
        encode: Callable[[Sequence[str]], Any] = SentenceTransformer(str(model), device="cpu").encode
        return encode
    import onnxruntime
    from tokenizers import Tokenizer

    import maskwright

    folder = model.parent / f"onnx-{precision}"
    if not folder.exists():
        maskwright.export(model, to="onnx", precision=precision, out=folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    file = next(path for path in sorted(folder.rglob("*.onnx")) if ("quantized" in path.name) == (precision == "int8"))
    session = onnxruntime.InferenceSession(str(file), options)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_padding()
    names = [each.name for each in session.get_inputs()]

    def embed(texts: Sequence[str]) -> Any:
        encoded = tokenizer.encode_batch(list(texts))
        columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        return session.run(None, {name: np.array([getattr(e, columns[name]) for e in encoded]) for name in names})

    return embed


CONTENDERS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "maskwright fp32": (ours, ("fp32",)),
    "maskwright int8": (ours, ("int8",)),
    "sentence-transformers": (sentence_transformers, ("torch", "fp32")),
    "ONNX Runtime fp32": (sentence_transformers, ("onnx", "fp32")),
    "ONNX Runtime int8": (sentence_transformers, ("onnx", "int8")),
}


def serve(connection: Connection, name: str, model: Path) -> None:
    """Time calls in a process of its own: receives (texts, seconds), sends seconds per call."""
    make, arguments = CONTENDERS[name]
    call = make(model, *arguments)
    for texts in (SHORT, NATURAL) * 3:
        call(texts)
    connection.send("ready")
    while True:
        texts, seconds = connection.recv()
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 5:
            start = time.perf_counter()
            call(texts)
            times.append(time.perf_counter() - start)
        connection.send(times)


@contextlib.contextmanager
def beside(code: str) -> Iterator[None]:
    """Run Python code in another process while the block runs."""
    if not code:
        yield
        return
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True) as process:
        time.sleep(4)
        yield
        process.kill()


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each contender, in three turns")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cases", default=",".join(BESIDE))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    context, servers = multiprocessing.get_context("spawn"), {}
    names = [name for name in CONTENDERS if "ONNX" not in name or find_spec("onnxruntime")]
    for name in names:
        here, there = context.Pipe()
        context.Process(target=serve, args=(there, name, options.model), daemon=True).start()
        here.recv()
        servers[name] = here
    rows = []
    for case in options.cases.split(","):
        with beside(BESIDE[case]):
            for kind, texts in (("1 short", SHORT), ("64 natural", NATURAL)):
                times: dict[str, list[float]] = {name: [] for name in names}
                for _ in range(3):
                    for name in names:
                        servers[name].send((texts, options.seconds / 3))
                        times[name] += servers[name].recv()
                for name, found in times.items():
                    median, most, worst = (1000 * np.percentile(found, share) for share in (50, 99, 100))
                    rows.append([case, kind, name, f"{median:.1f}", f"{most:.1f}", f"{worst:.1f}", str(len(found))])
    columns = ("beside", "texts", "contender", "median, ms", "99th percentile, ms", "worst, ms", "calls")
    print(Table("latency of embedding", columns, rows, words=3).markdown())


if __name__ == "__main__":
    main()
