"""The routes of the HTTP API: bodies of requests, and the service that answers them."""

import asyncio
import base64
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import FileResponse
from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.requests import ClientDisconnect

from maskwright.checkpoints.sentence_folder import Pooling
from maskwright.core.errors import DataError, unknown_name
from maskwright.core.text.amounts import pluralize
from maskwright.inference.detect import THRESHOLD
from maskwright.serving.batcher import MAX_INPUTS, Batcher, Call, Limits, QueueFullError
from maskwright.serving.served import Result, ServedModel, TaskName

MAX_FILLED = 2000
"""Predictions for masks of one request, masks x top_k: each holds a text."""
MAX_REPEATED = 4_000_000
"""Characters of a request's texts that are read several times: a query with each document, a question with each option.
"""
PAGE = {"/": "index.html", "/playground.js": "playground.js", "/playground.css": "playground.css"}
_PAGE_FOLDER = Path(__file__).parent / "playground"
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}

Texts = Annotated[list[str], Field(min_length=1, max_length=MAX_INPUTS)]
Windows = Annotated[
    bool | None,
    Field(
        description="Read longer texts in overlapping windows, instead of truncating them; null: as the server does."
    ),
]
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
    dimensions: Annotated[int | None, Field(ge=1)] = None
    windows: Windows = None


class PredictBody(_Body):
    """Inputs of a fine-tuned model: texts, pairs of texts, questions or choices (as for `maskwright.predict`)."""

    inputs: Annotated[list[str | Pair | dict[str, Any]], Field(min_length=1, max_length=MAX_INPUTS)]
    windows: Windows = None


class RerankBody(BaseModel):
    """A query, and the documents to rank: `documents` as in the API of Cohere and Jina, or `texts` as in TEI's.

    Other fields are ignored.
    """

    model: ModelName = None
    query: str
    documents: Texts | None = None
    texts: Texts | None = None
    top_n: Annotated[int | None, Field(ge=1)] = None
    return_documents: bool = False
    return_text: bool = False
    windows: Windows = None

    @model_validator(mode="after")
    def _check_documents(self) -> Self:
        if (self.documents is None) == (self.texts is None):
            raise ValueError("give either `documents` or `texts`")
        return self


class OpenAIBody(BaseModel):
    """The body of OpenAI's `POST /v1/embeddings`; other fields are ignored. Token ids are not accepted as input.

    Clients cut texts into the tokens of OpenAI's models, whose ids are other tokens of this one.
    """

    model: ModelName = None
    input: str | Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1)] = None
    windows: Windows = None

    @field_validator("input", mode="before")
    @classmethod
    def _refuse_token_ids(cls, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(each, int | list) for each in value):
            raise ValueError(
                "token ids are not accepted, since they depend on the model: send texts "
                "(LangChain: `check_embedding_ctx_length=False`)"
            )
        return value


class Service:
    """The models by name, the queue of their requests, and metrics."""

    def __init__(self, models: Mapping[str, ServedModel], limits: Limits, registry: CollectorRegistry) -> None:
        self.models, self.registry, self._limits = models, registry, limits
        self.batcher = Batcher(self._run, max_waiting=limits.max_waiting)
        self.worker: asyncio.Task[None]
        waiting = Gauge("maskwright_waiting_requests", "Requests in the queue", registry=registry)
        waiting.set_function(lambda: len(self.batcher))
        sizes = [2**n for n in range(11)]
        self._inputs = Histogram(
            "maskwright_batch_inputs", "Inputs of a batch", ("task",), registry=registry, buckets=sizes
        )

    def _run(self, call: Call, inputs: list[Any]) -> list[Result]:
        self._inputs.labels(call.task).observe(len(inputs))
        progress = lambda *_: self.batcher.check_needed()  # noqa: E731
        return self.models[call.model].run(call.task, inputs, dict(call.options), progress)

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """Compute while the application runs."""
        self.worker = asyncio.create_task(self.batcher.work())
        yield
        self.worker.cancel()

    def named(self, name: str) -> ServedModel:
        """Return the model of that name; raises HTTPException if there is none."""
        if name in self.models:
            return self.models[name]
        raise HTTPException(404, str(unknown_name(DataError, "model", name, list(self.models))))

    def able(self, name: str | None, task: TaskName) -> ServedModel:
        """Return the model of that name, or the first one for the task; raises HTTPException if there is none."""
        candidates = list(self.models.values()) if name is None else [self.named(name)]
        for each in candidates:
            if task in each.tasks:
                return each
        problem = f"no model here can {task}" if name is None else f"the model {name} cannot {task}"
        allowed = ", ".join(sorted({able for each in candidates for able in each.tasks}))
        raise HTTPException(404, str(DataError(problem, allowed=allowed)))

    async def answer(
        self, request: Request, task: TaskName, name: str | None, inputs: Sequence[Any], **options: Any
    ) -> dict[str, Any]:
        """Return the model's name, one result per input, the indices of the truncated inputs, and other warnings.

        Raises HTTPException if the queue is full or the time is over, and ClientDisconnect if the client has gone.
        """
        model, timeout = self.able(name, task), self._limits.timeout
        call = Call(model.name, task, tuple(options.items()))
        try:
            results = await _while_connected(request, self.batcher.submit(call, inputs, timeout=timeout))
        except QueueFullError:
            queue = pluralize(self._limits.max_waiting, "request")
            raise HTTPException(429, f"the queue is full ({queue}); try again") from None
        except TimeoutError:
            hint = "send less text, or start the server with a longer --timeout"
            raise HTTPException(504, f"no result within {timeout:g} s; {hint}") from None
        truncated = [number for number, each in enumerate(results) if each.truncated]
        return {
            "model": model.name,
            "results": [each.value for each in results],
            "truncated": truncated,
            "warnings": list(results[0].warnings),
        }


async def _while_connected(request: Request, work: Coroutine[Any, Any, list[Result]]) -> list[Result]:
    """Return what `work` does; cancel it and raise ClientDisconnect once the client disconnects."""
    working, gone = asyncio.create_task(work), asyncio.create_task(_disconnect(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


Served = Annotated[Service, Depends(_service_of)]
router = APIRouter()


@router.post("/fill-mask")
async def fill_mask(body: FillMaskBody, request: Request, service: Served) -> Any:
    """Predict the tokens at each mask: per text, per mask, the best tokens with their scores."""
    masks = sum(text.count("[MASK]") + text.count("<mask>") for text in body.texts)
    if masks * body.top_k > MAX_FILLED:
        raise DataError(f"{masks} masks x top_k {body.top_k}", allowed=f"at most {MAX_FILLED:,} in a request")
    return await service.answer(request, "fill-mask", body.model, body.texts, top_k=body.top_k)


@router.post("/detect")
async def detect(body: DetectBody, request: Request, service: Served) -> Any:
    """Return each text's tokens with the probability that they were replaced (ELECTRA)."""
    return await service.answer(request, "detect", body.model, body.texts, threshold=body.threshold)


@router.post("/embed")
async def embed(body: EmbedBody, request: Request, service: Served) -> Any:
    """Return one embedding per text."""
    options = body.model_dump(include={"pooling", "normalize", "dimensions", "windows"})
    content = await service.answer(request, "embed", body.model, body.texts, **options)
    return {**content, "results": [vector.tolist() for vector in content["results"]]}


@router.post("/predict")
async def predict(body: PredictBody, request: Request, service: Served) -> Any:
    """Return a fine-tuned model's class, number, entities, answer or choice per input."""
    questions = [each for each in body.inputs if isinstance(each, dict) and isinstance(each.get("options"), list)]
    options = [len(each["options"]) for each in questions]
    if sum(options) > MAX_INPUTS:
        raise DataError(f"{sum(options):,} options", allowed=f"at most {MAX_INPUTS:,} in a request")
    _check_repeated("questions", [str(each.get("question", "")) for each in questions], options)
    return await service.answer(request, "predict", body.model, body.inputs, windows=body.windows)


@router.post("/v1/rerank", include_in_schema=False)
@router.post("/rerank")
async def rerank(body: RerankBody, request: Request, service: Served) -> Any:
    """Score the relevance of documents to a query, highest first; the shape of the answer follows the body's fields."""
    documents = body.texts or body.documents or []
    _check_repeated("the query", [body.query], [len(documents)])
    pairs = [[body.query, each] for each in documents]
    content = await service.answer(request, "rerank", body.model, pairs, windows=body.windows)
    scores = content.pop("results")
    ranked = sorted(range(len(scores)), key=lambda n: -scores[n])[: body.top_n]
    if body.texts is not None:
        text = [{"text": each} if body.return_text else {} for each in documents]
        truncated = set(content["truncated"])
        return [{"index": n, "score": scores[n], "truncated": n in truncated, **text[n]} for n in ranked]
    document = [{"document": {"text": each}} if body.return_documents else {} for each in documents]
    return {**content, "results": [{"index": n, "relevance_score": scores[n], **document[n]} for n in ranked]}


def _check_repeated(name: str, texts: Sequence[str], times: Sequence[int]) -> None:
    characters = sum(len(text) * count for text, count in zip(texts, times, strict=True))
    if characters > MAX_REPEATED:
        problem = f"{name}, read with each of {sum(times):,} texts: {characters:,} characters"
        raise DataError(problem, allowed=f"at most {MAX_REPEATED:,} in a request")


@router.post("/v1/embeddings")
async def openai_embeddings(body: OpenAIBody, request: Request, service: Served) -> Any:
    """Answer as OpenAI's API: the embeddings of `/embed`, normalized."""
    texts = [body.input] if isinstance(body.input, str) else body.input
    model = service.able(body.model, "embed")
    options = body.model_dump(include={"dimensions", "windows"})
    content = await service.answer(request, "embed", body.model, texts, normalize=True, **options)
    vectors = content["results"]
    coded = [
        base64.b64encode(np.ascontiguousarray(each, "<f4").tobytes()).decode() for each in vectors
    ] if body.encoding_format == "base64" else [each.tolist() for each in vectors]  # fmt: skip
    tokens = await asyncio.to_thread(model.tokens, texts, body.windows)
    return {
        "object": "list",
        "model": model.name,
        "data": [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(coded)],
        "truncated": content["truncated"],
        "warnings": content["warnings"],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _described(model: ServedModel) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "owned_by": "maskwright", **model.describe()}


@router.get("/v1/models")
async def list_models(service: Served) -> Any:
    """List the models, with what each can do."""
    return {"object": "list", "data": list(map(_described, service.models.values()))}


@router.get("/v1/models/{name}")
async def describe_model(name: str, service: Served) -> Any:
    """Say what a model can do."""
    return _described(service.named(name))


@router.get("/health")
async def health(service: Served) -> Any:
    """Say whether the server works, and how many requests wait."""
    if service.worker.done():
        raise HTTPException(503, "the models have stopped; restart the server")
    return {"status": "ok", "waiting": len(service.batcher)}


@router.get("/metrics")
async def metrics(service: Served) -> Any:
    """Return metrics in the format of Prometheus."""
    return Response(generate_latest(service.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/", include_in_schema=False)
@router.get("/playground.js", include_in_schema=False)
@router.get("/playground.css", include_in_schema=False)
async def page(request: Request) -> Any:
    """Return a file of the playground."""
    return FileResponse(_PAGE_FOLDER / PAGE[request.scope["path"]], headers=_PAGE_HEADERS)
