"""`maskwright serve`: an HTTP API and a playground page for models."""

import warnings
from typing import Annotated

import typer

from maskwright.cli import options, output
from maskwright.cli.texts import check_model
from maskwright.serving.batcher import LIMITS


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Run directories, fine-tuned models, Hugging Face directories or hub names; `NAME=PATH` names one."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for a free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="MASKWRIGHT_TOKEN", help="Clients must send `Authorization: Bearer TOKEN`.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Accepted Host header; repeatable. Default: this machine's names on a loopback address, else any."
        ),
    ] = None,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "fp32",
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Requests in the queue; further ones get status 429.")
    ] = LIMITS.max_waiting,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = LIMITS.max_body,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds from a request to its answer.")] = LIMITS.timeout,
) -> None:
    """Answer HTTP requests (fill-mask, embed, detect, predict, OpenAI's embeddings) and show a playground page."""
    from maskwright.serving.server import named_models, serve

    for path in named_models(models).values():
        check_model(str(path))
    from maskwright.training.allocator import keep_freed_memory

    keep_freed_memory()
    token = token or None  # A variable that is set to nothing, as in a compose file.

    warnings.showwarning = lambda message, *_, **__: output.warn(str(message))
    serve(
        models,
        host=host,
        port=port,
        token=token,
        allow_host=allow_host or (),
        device=device,
        precision=precision,
        max_waiting=max_waiting,
        max_body=max_body,
        timeout=timeout,
    )
