"""The HTTP API gives the results of the library, and refuses what it should, and still answers."""

import asyncio
import base64
import json
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import maskwright
from maskwright.checkpoints import checkpoint, weight_files
from maskwright.core.errors import MaskwrightError
from maskwright.finetuning.predictions import plain
from maskwright.machine import threads
from maskwright.serving.batcher import Limits
from maskwright.serving.served import Result, ServedModel, load_served
from maskwright.serving.server import named_models
from tests.finetuning.tiny_tuned import LABELS, TEXTS
from tests.serving.servers import TASKS, running

pytest.importorskip("fastapi")
pytest.importorskip("transformers")
import uvicorn
from starlette.testclient import TestClient

from maskwright.serving import protocol
from maskwright.serving.app import build_app

MASKED = [text.replace("cat", "[MASK]").replace("Anna", "[MASK]") for text in (TEXTS[0], TEXTS[3])]
INPUTS: dict[str, Any] = {
    "classes": list(TEXTS),
    "tags": [TEXTS[3]],
    "answers": [{"question": "Who sat?", "context": TEXTS[0]}],
    "choices": [{"context": TEXTS[0], "question": "Who sat?", "options": ["the cat", "the mat"]}],
    "scores": [(TEXTS[0], TEXTS[1])],
}


@pytest.fixture(scope="module")
def served(folders: dict[str, Path]) -> dict[str, ServedModel]:
    return {name: load_served(name, folder, device="cpu", precision="fp32") for name, folder in folders.items()}


@pytest.fixture(scope="module")
def client(served: dict[str, ServedModel]) -> Iterator[TestClient]:
    with TestClient(build_app(served, limits=Limits(max_body=100_000))) as client:
        yield client


def results(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()["results"]


def close(one: Any, other: Any) -> bool:
    """Whether two results are equal, numbers within rounding: another thread may add in another order."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) < 1e-5
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(close, one, other))
    return bool(one == other)


def test_the_api_gives_the_results_of_the_library(client: TestClient, folders: dict[str, Path]) -> None:
    bert, electra = maskwright.load(folders["bert"]), maskwright.load(folders["electra"])
    texts = list(TEXTS)
    assert np.allclose(results(client, "/embed", texts=texts), bert.embed(texts), atol=1e-5)
    normalized = results(client, "/embed", texts=texts, model="electra", pooling="first", normalize=True)
    assert np.allclose(normalized, electra.embed(texts, pooling="first", normalize=True), atol=1e-5)
    expected = [[list(map(asdict, mask)) for mask in masks] for masks in bert.fill_mask(MASKED, top_k=3)]
    assert close(results(client, "/fill-mask", texts=MASKED, top_k=3), expected)
    detected = [list(map(asdict, each.tokens)) for each in electra.detect(texts)]
    assert close(results(client, "/detect", texts=texts), detected)
    for name, inputs in INPUTS.items():
        ours = [plain(each) for each in maskwright.predict(folders[name], inputs)]
        theirs = results(client, "/predict", inputs=inputs, model=name)
        assert close(theirs, [{key: each[key] for key in each if key != "key"} for each in ours])


def test_openai_clients_get_their_shape(client: TestClient, folders: dict[str, Path]) -> None:
    expected = maskwright.load(folders["bert"]).embed(TEXTS, normalize=True)
    body: dict[str, Any] = {"model": "bert", "input": list(TEXTS), "user": "ignored"}
    content = client.post("/v1/embeddings", json=body).json()
    assert [each["index"] for each in content["data"]] == list(range(len(TEXTS)))
    assert np.allclose([each["embedding"] for each in content["data"]], expected, atol=1e-5)
    assert content["usage"]["total_tokens"] > len(TEXTS)
    coded = client.post("/v1/embeddings", json={**body, "encoding_format": "base64", "input": TEXTS[0]}).json()
    actual = np.frombuffer(base64.b64decode(coded["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(actual, expected[0], atol=1e-5)
    assert client.post("/v1/embeddings", json={**body, "dimensions": expected.shape[1] + 1}).status_code == 400
    first = client.post("/v1/embeddings", json={"input": list(TEXTS)}).json()
    assert (first["model"], first["data"]) == (content["model"], content["data"])
    for ids in ([[1, 2]], [1, 2]):
        refused = client.post("/v1/embeddings", json={**body, "input": ids})
        assert refused.status_code == 422
        assert "send texts" in refused.text
    assert client.get("/v1/models/bert").json()["id"] == "bert"
    assert client.get("/v1/models/brt").status_code == 404
    listed = {each["id"]: each for each in client.get("/v1/models").json()["data"]}
    assert listed["bert"]["tasks"] == ["fill-mask", "embed"]
    assert listed["electra"]["tasks"] == ["detect", "embed"]
    assert (listed["classes"]["kind"], listed["classes"]["labels"]) == ("classification", list(LABELS))


def test_embeddings_are_those_of_a_sentence_transformers_folder(folders: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    maskwright.export(folders["bert"], to="sentence-transformers", out=tmp_path / "first", pooling="first")
    served = {"first": load_served("first", tmp_path / "first", device="cpu", precision="fp32")}
    model = maskwright.load(folders["bert"])
    with TestClient(build_app(served)) as client:
        expected = model.embed(TEXTS, pooling="first")
        assert np.allclose(results(client, "/embed", texts=list(TEXTS)), expected, atol=1e-5)
        assert np.allclose(results(client, "/embed", texts=list(TEXTS), pooling="mean"), model.embed(TEXTS), atol=1e-5)
        content = client.post("/v1/embeddings", json={"model": "first", "input": TEXTS[0]}).json()
        expected = model.embed(TEXTS[0], pooling="first", normalize=True)
        assert np.allclose(content["data"][0]["embedding"], expected[0], atol=1e-5)


def test_embeddings_of_fewer_dimensions_have_length_one_and_a_warning_unless_trained(client, folders, tmp_path):
    body = {"model": "bert", "input": list(TEXTS), "dimensions": 4}
    content = client.post("/v1/embeddings", json=body).json()
    first = maskwright.load(folders["bert"]).embed(TEXTS)[:, :4]
    expected = first / np.linalg.norm(first, axis=1, keepdims=True)
    assert np.allclose([each["embedding"] for each in content["data"]], expected, atol=1e-5)
    assert "matryoshka_dimensions" in content["warnings"][0]
    assert np.allclose(results(client, "/embed", texts=list(TEXTS), dimensions=4), first, atol=1e-5)
    trained = tmp_path / "bert"
    maskwright.export(folders["bert"], to="sentence-transformers", out=trained)
    config = json.loads((trained / "config.json").read_text())
    (trained / "config.json").write_text(json.dumps({**config, "matryoshka_dimensions": [4]}))
    served = {"bert": load_served("bert", trained, device="cpu", precision="fp32")}
    with TestClient(build_app(served)) as client:
        assert client.post("/v1/embeddings", json=body).json()["warnings"] == []
        assert client.get("/v1/models/bert").json()["trained_dimensions"] == [4]


def test_documents_are_ranked_in_the_format_of_the_requested_api(client: TestClient) -> None:
    query, documents = TEXTS[0], list(TEXTS)
    pairs = [[query, each] for each in documents]
    scores = [each["value"] for each in results(client, "/predict", model="scores", inputs=pairs)]
    order = np.argsort(scores)[::-1][:2].tolist()
    for path in ("/rerank", "/v1/rerank"):
        cohere = client.post(path, json={"query": query, "documents": documents, "top_n": 2}).json()
        assert cohere["model"] == "scores"
        assert [each["index"] for each in cohere["results"]] == order
        assert close([each["relevance_score"] for each in cohere["results"]], [scores[number] for number in order])
    tei = client.post(
        "/rerank", json={"query": query, "texts": documents, "return_text": True, "truncate": True}
    ).json()
    assert [each["text"] for each in tei[:2]] == [documents[number] for number in order]
    assert close([each["score"] for each in tei], sorted(scores, reverse=True))
    for body, status in (({}, 422), ({"texts": documents, "documents": documents}, 422), ({"texts": []}, 422)):
        refused = client.post("/rerank", json={"query": query, **body})
        assert (refused.status_code, "Value error" in refused.text) == (status, False)
    assert client.post("/rerank", json={"query": query, "texts": documents, "model": "classes"}).status_code == 404


def test_texts_that_are_read_many_times_are_limited(client: TestClient) -> None:
    refused = client.post("/rerank", json={"query": "a" * 50_000, "documents": ["a"] * 81})
    assert (refused.status_code, "4,000,000" in refused.json()["error"]["message"]) == (400, True)
    for question, count in (("a" * 50_000, 81), ("", 1025)):
        inputs = [{"question": question, "options": ["a"] * count}]
        assert client.post("/predict", json={"model": "choices", "inputs": inputs}).status_code == 400
    assert client.post("/rerank", json={"query": "a " * 2000, "documents": ["a"] * 81}).status_code == 200


@pytest.mark.parametrize("activation", [torch.nn.Sigmoid(), torch.nn.Identity()])
def test_scores_are_those_of_a_cross_encoder(activation: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
    model = cross_encoder(str(folders["scores"]), device="cpu", activation_fn=activation)
    model.save_pretrained(str(tmp_path / "saved"))
    pairs = [(TEXTS[0], each) for each in TEXTS]
    results = load_served("saved", tmp_path / "saved", device="cpu", precision="fp32").run("rerank", pairs, {})
    expected = model.predict(pairs, show_progress_bar=False)
    np.testing.assert_allclose([each.value for each in results], expected, atol=1e-5)


def test_a_request_asks_for_windows(client: TestClient) -> None:
    long = ["cat dog " * 200]
    content = client.post("/embed", json={"texts": long, "windows": True}).json()
    assert content["truncated"] == []
    assert not np.allclose(content["results"], results(client, "/embed", texts=long), atol=1e-5)
    for windows in (True, False):
        body = {"inputs": long, "model": "classes", "windows": windows}
        assert client.post("/predict", json=body).json()["truncated"] == [0] * (not windows)
        body = {"query": "cat", "documents": ["dog", *long], "windows": windows}
        assert client.post("/rerank", json=body).json()["truncated"] == [1] * (not windows)
        body = {"model": "bert", "input": long, "windows": windows}
        content = client.post("/v1/embeddings", json=body).json()
        assert content["truncated"] == [0] * (not windows)
        assert (content["usage"]["total_tokens"] > 400) == windows
    body = {"model": "choices", "inputs": INPUTS["choices"], "windows": True}
    assert client.post("/predict", json=body).status_code == 400


def test_progress_can_end_a_computation(served: dict[str, ServedModel]) -> None:
    def stop(*_: Any) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        served["bert"].run("embed", ["cat dog " * 1000], {"windows": True}, stop)
    for name, inputs in INPUTS.items():
        with pytest.raises(TimeoutError):
            served[name].run("predict", inputs, {}, stop)


def test_a_short_text_is_computed_and_scored_by_one_thread(served, monkeypatch):
    before, used = torch.get_num_threads(), list[int]()
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(threads, "_quota_threads", lambda: 2)
    monkeypatch.setattr(threads._load, "cores", lambda: 0.0)
    count = lambda *_: used.append(torch.get_num_threads())  # noqa: E731
    hook = torch.nn.modules.module.register_module_forward_pre_hook(count)
    try:
        torch.set_num_threads(2)
        served["bert"].run("fill-mask", MASKED[:1], {})
        served["electra"].run("detect", TEXTS[:1], {})
        served["bert"].run("embed", TEXTS[:1], {})
        for name in ("classes", "tags"):
            served[name].run("predict", TEXTS[:1], {})
    finally:
        torch.set_num_threads(before)
        hook.remove()
    assert set(used) == {1}


def test_truncated_texts_are_named(client: TestClient) -> None:
    content = client.post("/embed", json={"texts": ["short", "the cat sat " * 40, "short"]}).json()
    assert content["truncated"] == [1]
    body = {"model": "bert", "input": ["short", "cat " * 1000]}
    assert client.post("/v1/embeddings", json=body).json()["truncated"] == [1]
    content = client.post("/predict", json={"model": "classes", "inputs": ["short", "cat " * 1000]}).json()
    assert content["truncated"] == [1]
    assert [each["truncated"] for each in content["results"]] == [False, True]
    ranked = client.post("/rerank", json={"query": "cat", "texts": ["short", "cat " * 1000]}).json()
    assert {each["index"]: each["truncated"] for each in ranked} == {0: False, 1: True}


def test_a_server_reads_long_texts_in_windows(folders: dict[str, Path]) -> None:
    load = partial(load_served, device="cpu", precision="fp32", windows=True, max_length=16)
    models = {name: load(name, folders[name]) for name in ("bert", "classes")}
    long = ["cat dog " * 1000]
    with TestClient(build_app(models)) as client:
        content = client.post("/embed", json={"texts": long}).json()
        assert content["truncated"] == []
        expected = maskwright.embed(folders["bert"], long, max_length=16, windows=True, device="cpu")
        assert np.allclose(content["results"], expected, atol=1e-5)
        assert client.post("/predict", json={"inputs": long}).json()["truncated"] == []
        usage = client.post("/v1/embeddings", json={"model": "bert", "input": long}).json()["usage"]
        assert usage["total_tokens"] > 2000
        assert client.get("/v1/models/bert").json()["max_length"] == 16
    with pytest.raises(MaskwrightError, match="multiple choice"):
        load("choices", folders["choices"])


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/embed", b"", 422, ""),
        ("/embed", b"{", 422, ""),
        ("/embed", b'{"texts":"a" 1}', 422, "character 13: Expecting ',' delimiter"),
        ("/embed", b'{"texts": ["\xff"]}', 400, "0xff"),
        ("/embed", b'{"texts": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", 400, ""),
        ("/embed", b'{"texts": []}', 422, ""),
        ("/embed", b'{"texts": "one"}', 422, ""),
        ("/embed", b'{"texts": ["a"], "pool": "mean"}', 422, ""),
        ("/embed", b'{"texts": ["a"], "pooling": "max"}', 422, ""),
        ("/embed", json.dumps({"texts": ["\ud800"]}).encode(), 400, ""),
        ("/embed", b'{"texts": ["' + b"a" * 100_000 + b'"]}', 413, ""),
        ("/embed", b'{"texts": ["a"], "model": "brt"}', 404, "bert"),
        ("/detect", b'{"texts": ["a"], "model": "bert"}', 404, ""),
        ("/detect", b'{"texts": ["a"], "threshold": NaN}', 422, ""),
        ("/fill-mask", b'{"texts": ["no mask"]}', 400, ""),
        ("/fill-mask", b'{"texts": ["[MASK]"], "top_k": 100000}', 422, ""),
        ("/fill-mask", json.dumps({"texts": ["[MASK] " * 20], "top_k": 110}).encode(), 400, ""),
        ("/predict", b'{"inputs": [7]}', 422, ""),
        ("/predict", b'{"inputs": [["one", "two", "three"]]}', 422, ""),
        ("/predict", b'{"inputs": [{"text": "fine"}, {"text": ""}], "model": "classes"}', 400, "texts"),
        ("/predict", b'{"inputs": [["one", "two"]], "model": "answers"}', 400, ""),
        ("/predict", b'{"inputs": [{"question": "no context"}], "model": "answers"}', 400, ""),
        ("/predict", b'{"inputs": [""], "model": "tags"}', 400, ""),
        ("/nothing", b"{}", 404, ""),
    ],
)
def test_bad_requests_get_a_4xx_with_the_reason(client, path, body, status, reason):
    response = client.post(path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == status, response.text
    assert reason in response.json()["error"]["message"] != ""
    assert client.get("/health").json()["status"] == "ok"


def test_head_is_answered_and_other_methods_get_405(client: TestClient) -> None:
    for path in ("/", "/health", "/metrics"):
        assert client.head(path).status_code == 200
    for method, path, allowed in (("PUT", "/embed", "POST"), ("BREW", "/health", "GET"), ("HEAD", "/embed", "POST")):
        response = client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)


def test_other_hosts_and_missing_tokens_are_refused(served: dict[str, ServedModel]) -> None:
    app = build_app({"bert": served["bert"]}, token="s3cret", hosts=frozenset({"localhost"}))
    with TestClient(app, base_url="http://localhost:8000") as client:
        assert client.get("/health").status_code == 200
        assert client.get("/").status_code == 200
        assert client.get("/v1/models").status_code == 401
        assert client.get("/metrics", headers={"authorization": "Bearer other"}).status_code == 401
        allowed = {"authorization": "Bearer s3cret"}
        assert client.get("/v1/models", headers=allowed).status_code == 200
        for host in ("evil.example", "[", "localhost.evil.example"):
            refused = client.get("/health", headers={"host": host})
            assert refused.status_code == 400
            assert "--allow-host" in refused.json()["error"]["message"]
    with TestClient(build_app({"bert": served["bert"]}, hosts=frozenset({"*.Example.com", "::1"}))) as client:
        for host, status in (("a.example.com:80", 200), ("[::1]:8000", 200), ("example.com", 400), ("", 400)):
            assert client.get("/health", headers={"host": host}).status_code == status
    for pattern in ("a*b", "*b.example"):
        with pytest.raises(MaskwrightError, match="--allow-host"):
            maskwright.serve("runs/none", allow_host=[pattern])


def test_faults_of_the_server_are_500s_in_the_same_shape(served, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(ServedModel, "run", fail)
    with TestClient(build_app({"bert": served["bert"]}), raise_server_exceptions=False) as client:
        response = client.post("/embed", json={"texts": ["a"]})
        assert (response.status_code, response.json()["error"]["type"]) == (500, "server")
        assert client.get("/health").status_code == 200


def test_a_timeout_says_what_to_do(served: dict[str, ServedModel]) -> None:
    with TestClient(build_app({"bert": served["bert"]}, limits=Limits(timeout=0.001))) as client:
        response = client.post("/embed", json={"texts": ["cat dog " * 5000], "windows": True})
        assert (response.status_code, response.json()["error"]["message"]) == (
            504,
            "no result within 0.001 s; send less text, or start the server with a longer --timeout",
        )


async def ask(app: Any, receive: Callable[[], Awaitable[Any]]) -> list[int]:
    """Post what a client sends to /embed; return the status of the response, if there is one."""
    statuses = list[int]()

    async def send(message: Any) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/embed", "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    return statuses


def test_a_request_whose_client_has_gone_is_not_computed() -> None:
    computed, release = list[str](), threading.Event()

    class Slow:
        name, tasks = "slow", ("embed",)

        def run(self, task: str, inputs: list[str], options: dict[str, Any], progress: Any) -> list[Any]:
            computed.extend(inputs)
            release.wait(10)
            return [Result(value=np.zeros(2)) for _ in inputs]

    async def send_two() -> list[int]:
        app = build_app({"slow": cast(Any, Slow())})

        async def request(text: str, gone: asyncio.Event) -> list[int]:
            messages = [{"type": "http.request", "body": json.dumps({"texts": [text]}).encode()}]

            async def receive() -> Any:
                if messages:
                    return messages.pop()
                await gone.wait()
                return {"type": "http.disconnect"}

            return await ask(app, receive)

        async with app.router.lifespan_context(app):
            stays, leaves = asyncio.Event(), asyncio.Event()
            first = asyncio.create_task(request("first", stays))
            while not computed:
                await asyncio.sleep(0.01)
            second = asyncio.create_task(request("second", leaves))
            leaves.set()
            statuses = await second
            release.set()
            return [*statuses, *await first, *await request("third", stays)]

    assert asyncio.run(send_two()) == [200, 200]
    assert computed == ["first", "third"]


def test_a_client_that_disconnects_during_its_upload_is_counted(served: dict[str, ServedModel]) -> None:
    app = build_app({"bert": served["bert"]})
    messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b'{"texts"', "more_body": True}]

    async def receive() -> Any:
        return messages.pop()

    asyncio.run(ask(app, receive))
    labels = {"path": "/embed", "status": "499"}
    assert app.state.service.registry.get_sample_value("maskwright_requests_total", labels) == 1


def test_a_connection_whose_result_is_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "UNREAD_SECONDS", 0.05)
    payload = b"x" * 50_000_000

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": payload})

    async def unread(port: int) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        with closing(writer):
            writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            await reader.readexactly(10)
            await asyncio.sleep(0.5)
            with suppress(ConnectionError):
                return len(await reader.read()) < len(payload)
            return True

    assert asyncio.run(with_protocol(application, unread))


async def with_protocol(application: Any, use: Callable[[int], Awaitable[Any]]) -> Any:
    """Return the result of a use of an application that is served on a port, with the settings of `serve`."""
    config = protocol.configure(application, 1)
    running = uvicorn.Server(config)
    config.load()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(running.serve(sockets=[listening]))
        try:
            return await use(listening.getsockname()[1])
        finally:
            running.should_exit = True
            await task


async def answer_to(port: int, request: bytes, *, idle: int = 0) -> tuple[int, dict[bytes, bytes], bytes]:
    """Return status, headers and body of the response to the bytes of a request, with idle connections beside it."""
    others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(idle)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    for _, each in [*others, (reader, writer)]:
        each.close()
    status, *lines = head.lower().split(b"\r\n")
    return int(status.split()[1]), dict(line.split(b": ", 1) for line in lines), body


def test_a_request_of_two_lengths_is_refused_and_its_connection_closed(served: dict[str, ServedModel]) -> None:
    request = (
        b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 5\r\n"
        b"transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    )
    status, headers, content = asyncio.run(with_protocol(build_app(served), lambda port: answer_to(port, request)))
    assert status == 400
    assert headers[b"connection"] == b"close"
    assert b"Transfer-Encoding" in content


def test_too_many_connections_are_a_503(served: dict[str, ServedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 3)
    request, app = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", build_app(served)
    for idle, expected in ((1, 200), (2, 503)):
        status, _, _ = asyncio.run(with_protocol(app, partial(answer_to, request=request, idle=idle)))
        assert status == expected


def test_metrics_count_requests_by_path_and_status(client: TestClient) -> None:
    client.post("/embed", json={"texts": ["a"]})
    client.get("/no/such/path")
    lines = client.get("/metrics").text.splitlines()
    assert any(line.startswith('maskwright_requests_total{path="/embed",status="200"}') for line in lines)
    assert any(line.startswith('maskwright_requests_total{path="other",status="404"}') for line in lines)
    assert any(line.startswith("process_resident_memory_bytes") for line in lines)


def test_json_of_another_content_type_is_explained(client: TestClient) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}  # Curl's, without -H.
    response = client.post("/embed", content=b'{"texts": ["a"]}', headers=headers)
    assert response.status_code == 422
    assert "send the header `content-type: application/json`" in response.json()["error"]["message"]
    response = client.post("/embed", content=b"[]", headers={"content-type": "Application/JSON"})
    assert response.status_code == 422
    assert "content-type" not in response.json()["error"]["message"]


def test_models_are_named_by_their_folder_unless_named(tmp_path: Path) -> None:
    assert named_models(["runs/one", "two=runs/one"]) == {"one": "runs/one", "two": "runs/one"}
    (tmp_path / "latest").symlink_to(tmp_path / "run-7")
    assert list(named_models([tmp_path / "latest"])) == ["latest"]
    with pytest.raises(MaskwrightError, match="two models are called"):
        named_models(["runs/one", "other/one"])
    for empty in ("=runs/one", "="):
        with pytest.raises(MaskwrightError, match="empty"):
            named_models([empty])


def floats(value: Any) -> list[float]:
    if isinstance(value, dict | list):
        return [number for each in (value.values() if isinstance(value, dict) else value) for number in floats(each)]
    return [value] if isinstance(value, float) else []


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_fine_tuned_model_is_served_in_int8(name, folders, served):
    rounded = load_served(name, folders[name], device="cpu", precision="int8")
    assert rounded.describe()["precision"] == "int8"
    inputs = INPUTS[name]
    results, exact = rounded.run("predict", inputs, {}), served[name].run("predict", inputs, {})
    near, far = ([number for each in actual for number in floats(each.value)] for actual in (results, exact))
    np.testing.assert_allclose(near, far, atol=0.02)  # Measured: at most 0.011.
    assert near != far


@pytest.mark.slow
def test_a_server_serves_beside_slow_clients_and_many_connections_and_stops_gracefully(folders, tmp_path):
    with running([folders["bert"]], tmp_path / "log") as (server, port):
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as slow:
            slow.sendall(b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
            request, headers = json.dumps({"texts": ["The cat sat."]}).encode(), {"content-type": "application/json"}
            http_request = urllib.request.Request(f"http://127.0.0.1:{port}/embed", request, headers)
            with urllib.request.urlopen(http_request, timeout=60) as response:
                assert len(json.load(response)["results"]) == 1
            assert slow.recv(1000).startswith(b"HTTP/1.1 408")
        with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as half:
            half.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert half.recv(1000).startswith(b"HTTP/1.1 200")
            half.sendall(b"G")  # Of a second request, which never comes.
            while half.recv(1000):
                pass
        for each in idle:
            with each:
                each.settimeout(30)
                assert each.recv(1) == b"", "an idle connection is closed"
        long = {"texts": [" ".join(TEXTS)] * 1000}
        with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as last:
            body = json.dumps(long).encode()
            last.sendall(b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
            last.sendall(b"content-length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.2)
            server.send_signal(signal.SIGTERM)
            assert last.recv(1000).startswith(b"HTTP/1.1 200"), "a request that has arrived is answered"
        assert server.wait(30) in (0, -signal.SIGTERM)


@pytest.mark.parametrize("name", ["bert", "classes"])
def test_a_folder_is_read_once_to_serve_it(name, folders, monkeypatch):
    read = list[Path]()

    def read_weights(folder: Path) -> Any:
        read.append(folder)
        return weight_files.read_weights(folder)

    monkeypatch.setattr(checkpoint, "read_weights", read_weights)
    load_served(name, folders[name], device="cpu", precision="fp32")
    assert read == [folders[name]]
