"""The ASGI application of `maskwright serve`: checks and metrics around the routes, and errors in one shape.

Only the 503 for too many connections is uvicorn's, as plain text.
"""

import asyncio
import json
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Histogram, PlatformCollector, ProcessCollector
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskwright.core.errors import MaskwrightError
from maskwright.serving.batcher import Limits
from maskwright.serving.routes import PAGE, Service, router
from maskwright.serving.served import ServedModel

BODY_SECONDS = 10.0
CLIENT_GONE = 499
"""nginx's status, in the metrics only, of a request whose client disconnected before the result."""
_PUBLIC = {*PAGE, "/health", "/openapi.json"}
"""Paths that need no token: they hold no data."""
_HEADERS = {429: {"retry-after": "1"}, 503: {"retry-after": "1"}, 401: {"www-authenticate": "Bearer"}}


def build_app(
    models: Mapping[str, ServedModel],
    *,
    token: str | None = None,
    limits: Limits = Limits(),
    hosts: frozenset[str] | None = None,
) -> FastAPI:
    """Return the ASGI application for models by name; `hosts` are the accepted Host headers, None for any.

    `*.example.com` accepts the subdomains of a host, `*` any.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    service = Service(models, limits, registry)
    handlers: dict[Any, Any] = {
        MaskwrightError: lambda _, error: error_response(400, str(error)),
        RequestValidationError: _explain_invalid,
        StarletteHTTPException: _describe_http_error,
        Exception: lambda _, error: error_response(500, f"{type(error).__name__}; the server's log has the details"),
    }
    app = FastAPI(
        title="maskwright", lifespan=service.lifespan, docs_url=None, redoc_url=None, exception_handlers=handlers
    )
    app.state.service = service
    app.include_router(router)
    app.add_middleware(RequestGuard, token=token, hosts=hosts, max_body=limits.max_body, registry=registry)
    return app


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error in the shape of OpenAI's API."""
    content = json.dumps({"error": {"message": message, "type": "invalid_request" if status < 500 else "server"}})
    return Response(content, status, {**_HEADERS.get(status, {}), **(headers or {})}, "application/json")


async def _explain_invalid(request: Request, error: Any) -> Response:
    problems = []
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    is_json = re.fullmatch(r"application/(.+\+)?json", content_type.lower())  # As FastAPI decides.
    for each in error.errors()[:3]:
        field = ".".join(map(str, each["loc"][1:])) or "body"
        if each["type"] == "json_invalid":
            field, each["msg"] = "body", f"not JSON (character {field}: {each['ctx']['error']})"
        elif each["loc"] == ("body",) and not is_json and each["type"] != "missing":
            each["msg"] = f"content-type {content_type!r} is not read; send the header `content-type: application/json`"
        problems.append(f"{field}: {each['msg'].removeprefix('Value error, ')}")
    return error_response(422, "; ".join(problems))


async def _describe_http_error(_: Request, error: Any) -> Response:
    reason = f" ({error.__cause__})" if error.__cause__ else ""
    return error_response(error.status_code, f"{error.detail}{reason}", error.headers)


class RequestGuard:
    """ASGI middleware: host, token, size and time of a body before it is parsed, and metrics.

    Starlette's `RequestBodyLimitMiddleware` limits the size only, and answers in plain text.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        hosts: frozenset[str] | None,
        max_body: int,
        registry: CollectorRegistry,
    ) -> None:
        self._app, self._token, self._max_body = app, token, max_body
        self._hosts = None if hosts is None else {each.lower() for each in hosts}
        self._requests = Counter("maskwright_requests", "Requests", ("path", "status"), registry=registry)
        self._seconds = Histogram("maskwright_request_seconds", "Time to answer", ("path",), registry=registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        if scope["method"] == "HEAD":  # Answered as GET; uvicorn leaves out the body.
            scope = {**scope, "method": "GET"}

        async def send_noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            headers = Headers(scope=scope)
            answer = self._refusal(scope["path"], headers) or self._app
            await answer(scope, self._limited(receive, headers), send_noted)
        except ClientDisconnect:
            status = CLIENT_GONE
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._requests.labels(route, status).inc()
            self._seconds.labels(route).observe(time.perf_counter() - began)

    def _refusal(self, path: str, headers: Headers) -> Response | None:
        """Return the response to a request of two lengths, for another host or without the token; None if it may pass.

        A proxy that goes by the other of the two lengths would take the rest of this request for the next one.
        """
        if "transfer-encoding" in headers and "content-length" in headers:
            message = "the request has both Content-Length and Transfer-Encoding"
            return error_response(400, message, {"connection": "close"})
        host = headers.get("host", "")
        if not self._accepts(host):
            return error_response(400, f"this server does not answer for the host {host!r}; start it with --allow-host")
        credentials = headers.get("authorization", "").encode()
        if (
            self._token is None
            or path in _PUBLIC
            or secrets.compare_digest(credentials, f"Bearer {self._token}".encode())
        ):
            return None
        return error_response(401, "this server needs a token: send `Authorization: Bearer TOKEN`")

    def _accepts(self, host: str) -> bool:
        if self._hosts is None:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return any(name == each or (each[:1] == "*" and name.endswith(each[1:])) for each in self._hosts)

    def _limited(self, receive: Receive, headers: Headers) -> Receive:
        """Return a `receive` that raises HTTPException if the body is too large or arrives too slowly."""
        length = headers.get("content-length", "")
        declared, received, is_complete = int(length) if length.isdigit() else 0, 0, False
        deadline = asyncio.get_running_loop().time() + BODY_SECONDS

        async def receive_limited() -> Message:
            nonlocal received, is_complete
            if is_complete:
                return await receive()
            message: Message = {"type": "http.request", "more_body": True}
            try:
                if declared <= self._max_body:
                    async with asyncio.timeout_at(deadline):
                        message = await receive()
            except TimeoutError:
                problem = f"the body did not arrive within {BODY_SECONDS:g} seconds"
                raise HTTPException(408, problem, {"connection": "close"}) from None
            if message["type"] == "http.disconnect":  # FastAPI makes a 400 of any other exception.
                raise HTTPException(CLIENT_GONE, "the client disconnected")
            received += len(message.get("body", b""))
            if max(declared, received) > self._max_body:
                raise HTTPException(413, f"the body is larger than {self._max_body:,} bytes")
            is_complete = not message.get("more_body")
            return message

        return receive_limited
