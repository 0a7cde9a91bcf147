"""`maskwright push`: upload an exported model to the model hub."""

from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import output
from maskwright.cli.options import Arguments, arguments_of


@arguments_of("push")
def command(
    arguments: Arguments, yes: Annotated[bool, typer.Option("--yes", help="Upload without asking.")] = False
) -> None:
    """Upload an exported model to the model hub, after showing what and asking."""
    from maskwright.core.text.amounts import pluralize, size_in_bytes
    from maskwright.serving.push import files_to_push, push

    folder, repo = Path(arguments["folder"]).expanduser(), arguments["repo"]
    files = files_to_push(folder)
    sizes = [path.stat().st_size for path in files]
    output.table(
        ("file", "size"),
        [(path.relative_to(folder).as_posix(), size_in_bytes(size)) for path, size in zip(files, sizes, strict=True)],
        right=(1,),
    )
    visibility = "private" if arguments["private"] else "public"
    what = f"{pluralize(len(files), 'file')} ({size_in_bytes(sum(sizes))}) to {repo} ({visibility} if new)"
    if not yes:
        typer.confirm(f"Upload {what}?", abort=True)
    output.note(f"uploading {what}")
    output.note(push(**arguments))
