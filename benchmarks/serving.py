"""Serving: `maskwright serve` and transformers behind FastAPI, asked for embeddings by 1, 8 and 64 clients at once.

Clients share the machine with the server. Each keeps a connection and sends its next request when the last one is
answered: one text of natural length (`texts.natural_lengths`).
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import texts
from benchmarks.runner import ROOT, Settings
from benchmarks.table import Table, number

CLIENTS = (1, 8, 64)
REQUESTS = 10_000
"""Of each server, over all numbers of clients."""


_HEAD = b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@dataclass(frozen=True, slots=True)
class Load:
    """Answers per second, latencies in ms, and how many requests failed."""

    rate: float
    median: float
    p99: float
    errors: int


def measure_serving(folder: Path, vocabulary: int, settings: Settings) -> Iterator[Table]:
    """Measure servers of the model in `folder`, whose tokenizer has so many words."""
    requests = 60 if settings.quick else REQUESTS
    lengths = texts.natural_lengths(512)
    ids = texts.sample_ids(int(lengths.sum()), vocabulary)
    inputs = [" ".join(map(texts.word, part)) for part in np.split(ids, np.cumsum(lengths)[:-1])]
    ours = [sys.executable, "-m", "maskwright", "serve", str(folder), "--port"]
    contenders = {
        "maskwright": [*ours, "0"],
        "maskwright int8": [*ours, "0", "--precision", "int8"],
        "transformers behind FastAPI": [sys.executable, "-m", "benchmarks.serving", str(folder)],
    }
    rows = []
    for name, command in contenders.items():
        if not settings.wants(name):
            continue
        with _running(command, settings.scratch / "log") as (process, port):
            asyncio.run(_load(port, inputs[:64], 8, 64 if settings.quick else 500))
            before = _memory(process)
            for clients in CLIENTS:
                load = asyncio.run(_load(port, inputs, clients, requests // len(CLIENTS)))
                cells = (number(load.rate), number(load.median), number(load.p99), str(load.errors))
                rows.append((name, str(clients), *cells, f"{before} to {_memory(process)}"))
    columns = ("server", "clients", "texts/s", "median, ms", "p99, ms", "errors", "MB")
    yield Table(f"{requests:,} requests of one text to /embed", columns, rows)


async def _load(port: int, inputs: Sequence[str], clients: int, requests: int) -> Load:
    """Send requests from so many clients."""
    numbers = iter(range(requests))
    latencies, errors = list[float](), 0

    async def client() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for place in numbers:
            body = json.dumps({"texts": [inputs[place % len(inputs)]]}).encode()
            begun = time.perf_counter()
            writer.write(_HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answer.partition(b"content-length:")[2].split(b"\r\n")[0])
            content = json.loads(await reader.readexactly(length))
            latencies.append(1000 * (time.perf_counter() - begun))
            errors += not (answer.startswith(b"http/1.1 200") and len(content["results"]) == 1)
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    rate = requests / (time.perf_counter() - begun)
    return Load(rate, float(np.median(latencies)), float(np.quantile(latencies, 0.99)), errors)


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT)
    try:
        while "http://127.0.0.1:" not in (text := log.read_text()):
            if process.poll() is not None:
                raise RuntimeError(text)
            time.sleep(0.1)
        yield process, int(text.rpartition("http://127.0.0.1:")[2].split()[0])
    finally:
        process.terminate()
        process.wait()


def _memory(process: "subprocess.Popen[bytes]") -> int:
    """Return the resident set of a process in MB."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * 4096 // 1_000_000


def _serve_transformers(folder: str) -> None:
    """Serve mean-pooled embeddings as a user would write it: one padded call per request, in FastAPI's thread pool."""
    import socket

    import torch
    import uvicorn
    from fastapi import Body, FastAPI
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    app = FastAPI()

    @app.post("/embed")
    def embed(texts: list[str] = Body(embed=True)) -> Any:
        batch = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return {"results": ((hidden * mask).sum(1) / mask.sum(1)).tolist()}

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as uvicorn's own sockets
        print(f"http://127.0.0.1:{listening.getsockname()[1]} ", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    _serve_transformers(sys.argv[1])
