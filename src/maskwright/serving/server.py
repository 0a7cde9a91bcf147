"""`maskwright.serve`: an HTTP API with dynamic batching, metrics and a playground page.

One process and one thread run the models. `RequestGuard` refuses requests that are too large, too slow or not allowed
before they are parsed; FastAPI checks the rest.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path

from maskwright.core.errors import MaskwrightError
from maskwright.core.extras import require
from maskwright.inference.precision import Precision
from maskwright.reporting.console import ConsoleReporter
from maskwright.reporting.reporter import Reporter
from maskwright.serving.batcher import MAX_BODY, MAX_WAITING, TIMEOUT, Limits
from maskwright.serving.served import load_served


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
        allow_host: Accepted Host header, against DNS rebinding; `*.example.com` for subdomains. Default: this
            machine's names on a loopback address, else any.
        device, precision: As for `load`.
        max_length: Maximum tokens of a sequence in `/embed`, `/v1/embeddings`, `/predict` and `/rerank`. Default: that
            of the model.
        windows: Read longer texts in overlapping windows there, instead of truncating them.
        max_waiting: Requests in the queue; further ones get status 429.
        max_body: Bytes of a request.
        timeout: Seconds from a request to its answer.
        reporter: Where messages go; None for standard error.

    Raises:
        MaskwrightError: If a model cannot be loaded, a library is missing, the port is taken, or a name of
            `allow_host` has a `*` that is not its first part.
    """
    require("`serve`", "serve", "fastapi", "uvicorn", "prometheus_client")
    import uvicorn

    from maskwright.serving.app import build_app
    from maskwright.serving.protocol import configure

    for each in allow_host:
        if "*" in each.removeprefix("*.") and each != "*":
            allowed = "a host name, `*.example.com` for its subdomains, or `*` for any"
            raise MaskwrightError(f"--allow-host is {each!r}", allowed=allowed)
    paths = named_models(models)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise MaskwrightError(f"cannot listen on {host}:{port}: {error}", hint="Choose another --port.") from None
    # asyncio sets this only for sockets whose protocol number is given; without it, answers wait 40 ms for an ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with listening:
        loaded = {
            name: load_served(name, path, device=device, precision=precision, max_length=max_length, windows=windows)
            for name, path in paths.items()
        }
        limits = Limits(max_waiting=max_waiting, max_body=max_body, timeout=timeout)
        app = build_app(loaded, token=token, limits=limits, hosts=frozenset(allow_host) or _local_names(host))
        with reporter or ConsoleReporter() as reporter:
            for name, model in loaded.items():
                reporter.message(name, ", ".join(model.tasks))
            if token is None and _local_names(host) is None:
                reporter.message("warning", "this server is open to the network; set a token with --token")
            address = f"[{host}]" if ":" in host else host
            reporter.message(
                "serving", f"http://{address}:{listening.getsockname()[1]} (playground and API); Ctrl-C stops"
            )
        uvicorn.Server(configure(app, timeout)).run(sockets=[listening])


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
        name = front if is_named else os.path.basename(os.path.abspath(Path(each).expanduser()))
        if not name:
            raise MaskwrightError(f"the name of the model in {str(each)!r} is empty", hint="Write `NAME=PATH`.")
        if name in named:
            raise MaskwrightError(f"two models are called {name!r}", hint=f"Name them: `first={named[name]}`.")
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
