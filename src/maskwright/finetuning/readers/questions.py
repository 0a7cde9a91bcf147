"""Questions about texts, in any format."""

import contextlib
import json
from pathlib import Path

from maskwright.finetuning.examples import ExampleFile, QuestionExample
from maskwright.finetuning.readers import column_names
from maskwright.finetuning.readers.formats import format_of
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.roles import check_named_once, find_column, key_column, need_column
from maskwright.finetuning.readers.rows import Row, Table
from maskwright.finetuning.readers.skips import Skips
from maskwright.finetuning.readers.squad import WrittenQuestion, placed_questions, read_squad, written_answers
from maskwright.finetuning.readers.tables import read_table
from maskwright.finetuning.readers.texts import as_text


def read_questions(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[QuestionExample]:
    """Read questions with the texts that answer them.

    Args:
        path: SQuAD's JSON; or JSONL, CSV, TSV or Parquet with columns of question, context and answers (as `datasets`
            writes them, a list of texts, or one text).
        options: How to read it: `text` is the question, `text2` the context, `label` the answers.

    Raises:
        DataError: If the file cannot be read, columns cannot be found, or most questions are bad.
    """
    format = format_of(path, "question_answering", options)
    if format == "squad":
        return read_squad(path, options)
    skips = Skips(str(path), options.bad_rows)
    table = read_table(path, format, options, skips)
    if not table.rows:
        skips.finished(0)
    question = need_column(table, options.text or column_names.QUESTIONS, "the question", "text")
    context = need_column(table, options.text2 or column_names.CONTEXTS, "the context", "text2")
    answers = None
    if options.labels == "needed":
        answers = need_column(table, options.label or column_names.ANSWERS, "the answers", "label")
    elif options.labels == "if_there":
        answers = find_column(table, options.label or column_names.ANSWERS)
    key = key_column(table, options, taken=[name for name in (question, context, answers) if name])
    check_named_once(table, options, (question, context, answers, key))
    written = []
    for row in table.rows:
        try:
            written.append(_question(table, row, question, context, answers, key))
        except ValueError as error:
            skips.add(table.place(row), str(error))
    examples, notes = placed_questions(written, options, skips)
    skipped = skips.finished(len(examples))
    read_as = {**table.read_as, "text": question, "text2": context} | ({"label": answers} if answers else {})
    return ExampleFile(
        name=str(path), examples=examples, skipped=skipped, notes=(*table.notes, *notes), read_as=read_as
    )


def _question(
    table: Table, row: Row, question: str, context: str, answers: str | None, key: str | None
) -> WrittenQuestion:
    cells = dict(zip(table.columns, row.values, strict=True))
    value = cells[answers] if answers else None
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        # `answers` as `datasets` has them, written into a CSV; else an answer that begins with a bracket.
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    start = cells.get("answer_start")
    if isinstance(value, str) and value.strip() and start not in (None, ""):
        value = {"text": value, "answer_start": start}
    impossible = cells.get("is_impossible")
    written = written_answers(value)
    # SQuAD 2.0 in the layout of `datasets` has no flag: no answer means impossible.
    unsaid = impossible is None and answers is not None and written == () and not isinstance(value, str)
    return WrittenQuestion(
        place=table.place(row),
        key=as_text(cells[key]).strip() if key else str(row.number),
        question=as_text(cells[question]),
        context=as_text(cells[context]),
        answers=written,
        is_impossible=unsaid or str(impossible).strip().casefold() in ("true", "1"),
    )
