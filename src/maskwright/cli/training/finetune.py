"""`maskwright finetune`: fine-tune a pretrained model on labeled examples and evaluate it."""

import os
import sys
from pathlib import Path

from maskwright.checkpoints.location import check_folder
from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of


@arguments_of("finetune", commas=["dimensions", "report_to"])
def command(arguments: Arguments, json: Json = False) -> None:
    """Fine-tune a model on labeled examples and evaluate it. Ctrl-C saves; the same command again resumes."""
    if "RANK" not in os.environ and not Path(arguments["out"]).expanduser().exists():  # a finished run needs no model
        check_folder(arguments["model"])
    from maskwright.finetuning.finetune import finetune
    from maskwright.training.ranks.distributed import process_group, rank

    with process_group():  # An error of all processes of torchrun is printed once, and only rank 0 prints the result.
        done = finetune(**arguments)
        if rank():
            sys.exit(0 if done.finished else 130)
        if json:
            output.print_json(done.to_json())
        elif done.results is not None:
            results = done.results
            output.show_split(results.table(), title=results.title)
            if results.trials:
                output.show(results.search_table(), title="search")
            for note in (*results.notes, *results.advice):
                output.note(note)
            kept = "The best seed's model" if len(results.rows) > 1 else "The model"
            output.note(f"{kept} and the results are in {done.folder}. Try:")
            output.note(f"  maskwright {'embed' if results.kind == 'embedding' else 'predict'} {done.folder} ...")
        if not done.finished:
            output.note(f"stopped by {done.stopped_by}, checkpoint saved; the same command again resumes")
            sys.exit(130)
