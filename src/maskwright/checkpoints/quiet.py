"""Silence for libraries around models that load, convert and train as they should."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LIBRARIES = ("transformers", "sentence_transformers", "accelerate", "torch.onnx", "onnxruntime", "root")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what libraries print about models that load, convert and train as they should."""
    from transformers.utils import logging as of_transformers

    of_transformers.disable_progress_bar()
    loggers = [logging.getLogger(name) for name in _LIBRARIES]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        of_transformers.enable_progress_bar()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
