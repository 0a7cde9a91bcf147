"""`maskwright serve`: an HTTP API and a playground page for models."""

from maskwright.checkpoints.location import check_folder
from maskwright.cli.options import Arguments, arguments_of


@arguments_of(
    "serve",
    port={"min": 0, "max": 65535},
    token={"envvar": "MASKWRIGHT_TOKEN"},
    max_waiting={"min": 1},
    max_body={"min": 1},
    timeout={"min": 0.001},
)
def command(arguments: Arguments) -> None:
    """Answer HTTP requests (fill-mask, embed, detect, predict, rerank, OpenAI's embeddings), with a playground page."""
    from maskwright.serving.server import named_models, serve

    for path in named_models(arguments["models"]).values():
        check_folder(path)
    from maskwright.training.ranks.allocator import keep_freed_memory

    keep_freed_memory()
    # A variable that is set to nothing, as in a compose file, is no token.
    serve(**arguments | {"token": arguments["token"] or None})
