"""`maskwright.serve`: an HTTP API with dynamic batching, metrics and a playground page.

One process and one thread run the models; FastAPI checks requests, and `RequestGuard` refuses what is too large, too
slow or not allowed before it is parsed.
"""

import asyncio
import base64
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from maskwright.checkpoints.sentence_folder import Pooling
from maskwright.core.errors import DataError, MaskwrightError, unknown_name
from maskwright.core.extras import require
from maskwright.core.text.amounts import pluralize
from maskwright.inference.detect import THRESHOLD
from maskwright.inference.precision import Precision
from maskwright.reporting.console import OnConsole
from maskwright.reporting.reporter import Reporter
from maskwright.serving.batcher import (
    MAX_BODY,
    MAX_INPUTS,
    MAX_WAITING,
    TIMEOUT,
    Batcher,
    Call,
    Limits,
    QueueFullError,
)
from maskwright.serving.served import Result, ServedModel, TaskName, load_served

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.responses import Response

HEADER_SECONDS = 10.0
"""Time for a client to send the headers of a request."""
BODY_SECONDS = 10.0
UNREAD_SECONDS = 60.0
"""Time for a client to read the rest of a result that fills the socket's buffer."""
MAX_CONNECTIONS = 1000
CLIENT_GONE = 499
"""nginx's status, in the metrics only, of a request whose client disconnected before the result."""
MAX_FILLED = 2000
"""Predictions for masks of one request, masks x top_k: each holds a text."""
_PAGE = Path(__file__).parent / "playground"
_FILES = {"/": "index.html", "/playground.js": "playground.js", "/playground.css": "playground.css"}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_PUBLIC = {*_FILES, "/health", "/openapi.json"}
"""Paths that need no token: they hold no data."""
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

Texts = Annotated[list[str], Field(min_length=1, max_length=MAX_INPUTS)]
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
ModelName = Annotated[str | None, Field(description="Name of a served model; default: the first that has the task.")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: ModelName = None


class FillMaskBody(_Body):
    """Texts with `[MASK]` or `<mask>`."""

    texts: Texts
    top_k: Annotated[int, Field(ge=1, le=MAX_FILLED)] = 5


class DetectBody(_Body):
    """Texts, and the probability from which a token counts as replaced."""

    texts: Texts
    threshold: Annotated[float, Field(ge=0, le=1)] = THRESHOLD


class EmbedBody(_Body):
    """Texts, and how their embeddings are made: null: as a folder of sentence-transformers does, else plain means."""

    texts: Texts
    pooling: Pooling | None = None
    normalize: bool | None = None


class PredictBody(_Body):
    """Inputs of a fine-tuned model: texts, pairs of texts, questions or choices (as for `maskwright.predict`)."""

    inputs: Annotated[list[str | Pair | dict[str, Any]], Field(min_length=1, max_length=MAX_INPUTS)]


class OpenAIBody(BaseModel):
    """The body of OpenAI's `POST /v1/embeddings`; other fields are ignored. Token ids are not accepted as input."""

    model: str
    input: str | Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None

    @field_validator("input", mode="before")
    @classmethod
    def _refuse_token_ids(cls, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(each, int | list) for each in value):
            raise ValueError("token ids are not accepted, since they depend on the model: send texts")
        return value


def serve(
    models: str | Path | Sequence[str | Path] | Mapping[str, str | Path],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    allow_host: Sequence[str] = (),
    device: str = "auto",
    precision: Precision = "fp32",
    max_length: int | None = None,
    windows: bool = False,
    max_waiting: int = MAX_WAITING,
    max_body: int = MAX_BODY,
    timeout: float = TIMEOUT,
    reporter: Reporter | None = None,
) -> None:
    """Answer HTTP requests until SIGINT or SIGTERM; requests that have arrived are answered first.

    Args:
        models: Run directories, fine-tuned models, Hugging Face directories or hub names; `NAME=PATH` names one
            yourself. In Python also paths by name.
        host: Address to listen on; 0.0.0.0 for all.
        port: Port to listen on; 0 for a free one.
        token: Clients must send `Authorization: Bearer TOKEN`.
        allow_host: Accepted Host header, against DNS rebinding. Default: this machine's names on a loopback address,
            else any.
        device, precision: As for `load`.
        max_length: Maximum tokens of a sequence in `/embed` and `/predict`. Default: that of the model.
        windows: Read longer texts in overlapping windows there, instead of truncating them.
        max_waiting: Requests in the queue; further ones get status 429.
        max_body: Bytes of a request.
        timeout: Seconds from a request to its answer.
        reporter: Where messages go; None for standard error.

    Raises:
        MaskwrightError: If a model cannot be loaded, a library is missing, or the port is taken.
    """
    require("`serve`", "serve", "fastapi", "uvicorn", "prometheus_client")
    import uvicorn

    paths = named_models(models)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise MaskwrightError(f"cannot listen on {host}:{port}: {error}", todo="Choose another --port.") from None
    # asyncio sets this only for sockets whose protocol number is given; without it, answers wait 40 ms for an ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with listening:
        loaded = {
            name: load_served(name, path, device=device, precision=precision, max_length=max_length, windows=windows)
            for name, path in paths.items()
        }
        limits = Limits(max_waiting=max_waiting, max_body=max_body, timeout=timeout)
        app = build_app(loaded, token=token, limits=limits, hosts=frozenset(allow_host) or _local_names(host))
        config = uvicorn.Config(
            app,
            http=_protocol(),
            ws="none",
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=round(timeout) + 5,
        )
        with reporter or OnConsole() as reporter:
            for name, model in loaded.items():
                reporter.message(name, ", ".join(model.tasks))
            if token is None and _local_names(host) is None:
                reporter.message("warning", "this server is open to the network; set a token with --token")
            address = f"[{host}]" if ":" in host else host
            reporter.message(
                "serving", f"http://{address}:{listening.getsockname()[1]} (playground and API); Ctrl-C stops"
            )
        uvicorn.Server(config).run(sockets=[listening])


def named_models(models: str | Path | Sequence[str | Path] | Mapping[str, str | Path]) -> dict[str, str | Path]:
    """Return the paths of models by name: the last part of the path, unless given.

    Raises MaskwrightError if two have the same name, one's is empty, or there are none.
    """
    if isinstance(models, Mapping):
        return dict(models)
    named: dict[str, str | Path] = {}
    for each in [models] if isinstance(models, str | Path) else models:
        front, equals, path = str(each).partition("=")
        is_named = bool(equals) and "/" not in front
        name = front if is_named else Path(each).expanduser().resolve().name
        if not name:
            raise MaskwrightError(f"the name of the model in {str(each)!r} is empty", todo="Write `NAME=PATH`.")
        if name in named:
            raise MaskwrightError(f"two models are called {name!r}", todo=f"Name them: `first={named[name]}`.")
        named[name] = path if is_named else each
    if not named:
        raise MaskwrightError("no model was given")
    return named


def _local_names(host: str) -> frozenset[str] | None:
    """Return the names of this machine if `host` is a loopback address; None if it is not."""
    try:
        is_local = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    return frozenset({host, "localhost", "127.0.0.1", "::1"}) if is_local else None


def _protocol() -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with time limits for headers and for results that the client does not read."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    busy = _error(503, f"the server has {MAX_CONNECTIONS:,} connections; try again")

    class Protocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def handle_events(self) -> None:
            self.app = busy if len(self.connections) > MAX_CONNECTIONS else self.config.loaded_app
            super().handle_events()

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            request: Any = self.cycle
            if request is not None and not request.response_complete:
                self._cancel()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

        def on_response_complete(self) -> None:
            if self.transport.get_write_buffer_size():
                self.loop.call_later(UNREAD_SECONDS, self._drop_unread)
            super().on_response_complete()

        def _drop_unread(self) -> None:
            if self.transport.get_write_buffer_size():
                self.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            super().connection_lost(exc)

        def _cancel(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = None

    return Protocol


def build_app(
    models: Mapping[str, ServedModel],
    *,
    token: str | None = None,
    limits: Limits = Limits(),
    hosts: frozenset[str] | None = None,
) -> "FastAPI":
    """Return the ASGI application for models by name; `hosts` are the accepted Host headers, None for any."""
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from prometheus_client import CollectorRegistry, Gauge, Histogram, PlatformCollector, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    from starlette.exceptions import HTTPException
    from starlette.responses import FileResponse

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    sizes = Histogram(
        "maskwright_batch_inputs", "Inputs of a batch", ("task",), registry=registry, buckets=[2**n for n in range(11)]
    )
    waiting = Gauge("maskwright_waiting_requests", "Requests in the queue", registry=registry)

    def run(call: Call, inputs: list[Any]) -> list[Result]:
        sizes.labels(call.task).observe(len(inputs))
        return models[call.model].run(call.task, inputs, dict(call.options))

    batcher = Batcher(run, max_waiting=limits.max_waiting)
    waiting.set_function(lambda: len(batcher))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.working = asyncio.create_task(batcher.work())
        yield
        app.state.working.cancel()

    app = FastAPI(title="maskwright", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(RequestGuard, token=token, limits=limits, hosts=hosts, registry=registry)

    async def answer(task: TaskName, name: str | None, inputs: Sequence[Any], **options: Any) -> dict[str, Any]:
        model = chosen(models, name, task)
        results = await batcher.submit(Call(model.name, task, tuple(options.items())), inputs, timeout=limits.timeout)
        truncated = [number for number, each in enumerate(results) if each.truncated]
        return {"model": model.name, "results": [each.value for each in results], "truncated": truncated}

    @app.post("/fill-mask")
    async def fill_mask(body: FillMaskBody) -> Any:
        """Predict the tokens at each mask: per text, per mask, the best tokens with their scores."""
        masks = sum(text.count("[MASK]") + text.count("<mask>") for text in body.texts)
        if masks * body.top_k > MAX_FILLED:
            raise DataError(f"{masks} masks x top_k {body.top_k}", allowed=f"at most {MAX_FILLED:,} in a request")
        return await answer("fill-mask", body.model, body.texts, top_k=body.top_k)

    @app.post("/detect")
    async def detect(body: DetectBody) -> Any:
        """Return each text's tokens with the probability that they were replaced (ELECTRA)."""
        return await answer("detect", body.model, body.texts, threshold=body.threshold)

    @app.post("/embed")
    async def embed(body: EmbedBody) -> Any:
        """Return one embedding per text."""
        content = await answer("embed", body.model, body.texts, pooling=body.pooling, normalize=body.normalize)
        return {**content, "results": [vector.tolist() for vector in content["results"]]}

    @app.post("/predict")
    async def predict(body: PredictBody) -> Any:
        """Return a fine-tuned model's class, number, entities, answer or choice per input."""
        return await answer("predict", body.model, body.inputs)

    @app.post("/v1/embeddings")
    async def openai_embeddings(body: OpenAIBody) -> Any:
        """Answer as OpenAI's API: the embeddings of `/embed`, normalized."""
        texts = [body.input] if isinstance(body.input, str) else body.input
        model = chosen(models, body.model, "embed")
        size = model.describe()["dimensions"]
        if body.dimensions not in (None, size):
            raise DataError(f"dimensions is {body.dimensions}", allowed=f"{size}, or none")
        content = await answer("embed", body.model, texts, pooling=None, normalize=True)
        vectors = content["results"]
        coded = [
            base64.b64encode(np.ascontiguousarray(each, "<f4").tobytes()).decode() for each in vectors
        ] if body.encoding_format == "base64" else [each.tolist() for each in vectors]  # fmt: skip
        tokens = await asyncio.to_thread(model.tokens, texts)
        return {
            "object": "list",
            "model": model.name,
            "data": [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(coded)],
            "truncated": content["truncated"],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }

    def described(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "owned_by": "maskwright", **models[name].describe()}

    @app.get("/v1/models")
    async def list_models() -> Any:
        """List the models, with what each can do."""
        return {"object": "list", "data": [described(name) for name in models]}

    @app.get("/v1/models/{name}")
    async def describe_model(name: str) -> Any:
        """Say what a model can do."""
        if name not in models:
            raise _unknown(name, models)
        return described(name)

    @app.get("/health")
    async def health() -> Any:
        """Say whether the server works, and how many requests wait."""
        if app.state.working.done():
            return _error(503, "the models have stopped; restart the server")
        return {"status": "ok", "waiting": len(batcher)}

    @app.get("/metrics")
    async def metrics() -> Any:
        """Return metrics in the format of Prometheus."""
        from starlette.responses import Response

        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def page(file: str) -> Callable[[], Awaitable[Any]]:
        async def send() -> Any:
            return FileResponse(_PAGE / file, media_type=_TYPES[Path(file).suffix], headers=_HEADERS)

        return send

    for path, file in _FILES.items():
        app.get(path, include_in_schema=False)(page(file))

    @app.exception_handler(MaskwrightError)
    async def refused(_: Any, error: MaskwrightError) -> "Response":
        return _error(404 if isinstance(error, UnknownModelError) else 400, str(error))

    @app.exception_handler(QueueFullError)
    async def full(_: Any, error: QueueFullError) -> "Response":
        return _error(429, f"the queue is full ({pluralize(limits.max_waiting, 'request')}); try again")

    @app.exception_handler(TimeoutError)
    async def late(_: Any, error: TimeoutError) -> "Response":
        return _error(504, f"no result within {limits.timeout:g} seconds")

    @app.exception_handler(Exception)
    async def failed(_: Any, error: Exception) -> "Response":
        return _error(500, f"{type(error).__name__}; the server's log has the details")

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Any, error: RequestValidationError) -> "Response":
        problems = []
        for each in error.errors()[:3]:
            place = ".".join(map(str, each["loc"][1:])) or "body"
            if each["type"] == "json_invalid":
                place, each["msg"] = "body", f"not JSON (character {place}: {each['ctx']['error']})"
            problems.append(f"{place}: {each['msg']}")
        return _error(422, "; ".join(problems))

    @app.exception_handler(HTTPException)
    async def http_error(_: Any, error: HTTPException) -> "Response":
        reason = f" ({error.__cause__})" if error.__cause__ else ""
        response = _error(error.status_code, f"{error.detail}{reason}")
        response.headers.update(error.headers or {})
        return response

    return app


class UnknownModelError(MaskwrightError):
    """No model of that name, or none for the task."""


def chosen(models: Mapping[str, ServedModel], name: str | None, task: TaskName) -> ServedModel:
    """Return the model of that name, or the first one for the task; raises UnknownModelError if there is none."""
    if name is not None and name not in models:
        raise _unknown(name, models)
    asked = list(models.values()) if name is None else [models[name]]
    for each in asked:
        if task in each.tasks:
            return each
    raise UnknownModelError(
        f"no model here can {task}" if name is None else f"the model {name} cannot {task}",
        allowed=", ".join(sorted({able for each in asked for able in each.tasks})),
    )


def _unknown(name: str, models: Mapping[str, ServedModel]) -> UnknownModelError:
    problem, allowed, todo = unknown_name("model", name, list(models))
    return UnknownModelError(problem, allowed=allowed, todo=todo)


def _error(status: int, message: str, *, close: bool = False) -> "Response":
    """Return an error in the shape of OpenAI's API; `close`: the connection is closed after it."""
    from starlette.responses import Response

    headers = {429: {"retry-after": "1"}, 503: {"retry-after": "1"}, 401: {"www-authenticate": "Bearer"}}.get(
        status, {}
    )
    if close:
        headers["connection"] = "close"
    content = json.dumps({"error": {"message": message, "type": "invalid_request" if status < 500 else "server"}})
    return Response(content, status, headers, "application/json")


class RequestGuard:
    """ASGI middleware: host, token, size and time of a request's body, and metrics in prometheus_client's registry."""

    def __init__(
        self, app: Any, *, token: str | None, limits: Limits, hosts: frozenset[str] | None, registry: Any
    ) -> None:
        from prometheus_client import Counter, Histogram

        self._app, self._token, self._limits, self._hosts = app, token, limits, hosts
        self._requests = Counter("maskwright_requests", "Requests", ("path", "status"), registry=registry)
        self._seconds = Histogram("maskwright_request_seconds", "Time to answer", ("path",), registry=registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        if scope["method"] == "HEAD":  # Answered as GET; uvicorn leaves out the body.
            scope = {**scope, "method": "GET"}

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            headers = dict(scope["headers"])
            body = self._refusal(scope["path"], headers) or await self._body(headers, receive)
            if not isinstance(body, bytes):
                await body(scope, receive, noted)
                return
            gone = asyncio.create_task(_disconnect(receive))
            answering = asyncio.create_task(self._app(scope, _replay(body, gone), noted))
            try:
                await asyncio.wait({gone, answering}, return_when=asyncio.FIRST_COMPLETED)
                if status or answering.done():
                    await answering
                else:  # The client has gone: what still waits leaves the queue.
                    status = CLIENT_GONE
            finally:
                gone.cancel()
                answering.cancel()
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._requests.labels(route, status or 500).inc()
            self._seconds.labels(route).observe(time.perf_counter() - began)

    def _refusal(self, path: str, headers: Mapping[bytes, bytes]) -> Any:
        """Return the response to a request from a wrong host, without the token or of two lengths; None if it may pass.

        A proxy that goes by the other of the two lengths would take the rest of this request for the next one.
        """
        if b"transfer-encoding" in headers and b"content-length" in headers:
            return _error(400, "the request has both Content-Length and Transfer-Encoding", close=True)
        if self._hosts is not None:
            try:
                host = urlsplit(f"//{headers.get(b'host', b'').decode('latin-1')}").hostname
            except ValueError:
                host = None
            if host not in self._hosts:
                return _error(400, f"the Host header names {host!r}. Allowed: {', '.join(sorted(self._hosts))}.")
        given = headers.get(b"authorization", b"")
        if self._token is None or path in _PUBLIC or secrets.compare_digest(given, f"Bearer {self._token}".encode()):
            return None
        return _error(401, "this server needs a token: send `Authorization: Bearer TOKEN`")

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> Any:
        """Return the body, or the response that refuses it."""
        too_large = _error(413, f"the body is larger than {self._limits.max_body:,} bytes")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._limits.max_body:
            return too_large
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > self._limits.max_body:
                        return too_large
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            return _error(408, f"the body did not arrive within {BODY_SECONDS:g} seconds", close=True)
        return bytes(body)


async def _disconnect(receive: Receive) -> Message:
    while (message := await receive())["type"] == "http.request":
        pass
    return message


def _replay(body: bytes, gone: Awaitable[Message]) -> Receive:
    """Return a `receive` that gives the body, then waits for the client to disconnect."""
    unread = [body]

    async def again() -> Message:
        return {"type": "http.request", "body": unread.pop(), "more_body": False} if unread else await gone

    return again
