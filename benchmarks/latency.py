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
import tempfile
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
BATCH = [(SENTENCE * 5)[:length] for length in range(20, 404, 6)]
"""64 texts."""
LOADS = {
    "quiet": "",
    "busy": "while True: sum(i * i for i in range(100000))",
    "training": (
        "import torch\nmodel = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))\n"
        "while True: model(torch.randn(512, 512)).sum().backward()"
    ),
}


def ours(model: Path, folder: Path, precision: str) -> Callable[[Sequence[str]], Any]:
    """Return maskwright's embedding function."""
    import maskwright

    return maskwright.load(model, device="cpu", precision=precision).embed  # type: ignore[arg-type]


def sentence_transformers(model: Path, folder: Path, backend: str, precision: str) -> Callable[[Sequence[str]], Any]:
    """Return sentence-transformers' embedding function, with PyTorch or with ONNX Runtime on a graph in a folder."""
    from sentence_transformers import SentenceTransformer

    if backend == "torch":
        encode: Callable[[Sequence[str]], Any] = SentenceTransformer(str(model), device="cpu").encode
        return encode
    import onnxruntime
    from tokenizers import Tokenizer

    import maskwright

    folder /= precision
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


def serve(connection: Connection, name: str, model: Path, folder: Path) -> None:
    """Time calls in a process of its own: receives (texts, seconds), sends seconds per call."""
    make, arguments = CONTENDERS[name]
    call = make(model, folder, *arguments)
    for texts in (SHORT, BATCH) * 3:
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
def running(code: str) -> Iterator[None]:
    """Run Python code in another process while the block runs."""
    if not code:
        yield
        return
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True) as process:
        try:
            time.sleep(4)
            yield
        finally:
            process.kill()


def measure(model: Path, folder: Path, loads: Sequence[str], seconds_each: float) -> list[list[str]]:
    """Return the rows of the table; exported graphs are written into the folder."""
    context, servers = multiprocessing.get_context("spawn"), dict[str, Any]()
    for name in CONTENDERS:
        if "ONNX" in name and not find_spec("onnxruntime"):
            continue
        servers[name], server_end = context.Pipe()
        context.Process(target=serve, args=(server_end, name, model, folder), daemon=True).start()
        server_end.close()  # Else the end of the process is not noticed.
        servers[name].recv()
    rows = []
    for load in loads:
        with running(LOADS[load]):
            for kind, texts in (("1 short text", SHORT), ("64 texts of 20 to 400 characters", BATCH)):
                times: dict[str, list[float]] = {name: [] for name in servers}
                for _ in range(3):
                    for name, server in servers.items():
                        server.send((texts, seconds_each / 3))
                        times[name] += server.recv()
                for name, seconds in times.items():
                    median, most, worst = (1000 * np.percentile(seconds, share) for share in (50, 99, 100))
                    rows.append([load, kind, name, f"{median:.1f}", f"{most:.1f}", f"{worst:.1f}", str(len(seconds))])
    return rows


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each contender, in three turns")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cases", default=",".join(LOADS))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options.model, Path(folder), options.cases.split(","), options.seconds)
    columns = ("load", "texts", "contender", "median, ms", "99th percentile, ms", "worst, ms", "calls")
    print(Table("latency of embedding", columns, rows, words=3).markdown())


if __name__ == "__main__":
    main()
