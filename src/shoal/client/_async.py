"""The asynchronous client. `_sync.py` is generated from this file: run scripts/unasync after a change."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from shoal.client.entities import ExtractResult
from shoal.client.result import EmbedResult, Health, RerankResult, ServedModel
from shoal.client.retry import Patience
from shoal.client.similarity import SimilarityResult
from shoal.client.split import Item, items_of, size_bytes, split
from shoal.client.tasks import AsyncTasks
from shoal.client.tokens import TokenizeResult
from shoal.client.wire import (
    MSGPACK,
    body_of,
    connection_error,
    read_error,
    read_models,
    read_reply,
    renumbered,
)
from shoal.errors import InvalidRequest, ShoalError
from shoal.settings import ClientSettings, from_environment
from shoal.types import (
    Aggregation,
    DType,
    EmbedReply,
    ExtractReply,
    Output,
    Overflow,
    RerankReply,
    SimilarityReply,
    TokenizeReply,
)

__all__ = ["AsyncClient"]

_CONNECT_S = 5.0
# The server answers 504 when a request's time is over; the connection is kept a little longer to hear it say so.
_GRACE_S = 1.0
# A proxy from the environment can never reach this machine's own addresses.
_LOCAL = {"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None}


class AsyncClient:
    """Talks to a Shoal server.

    ```python
    async with AsyncClient() as client:
        result = await client.embed(["first text", "second text"])
        result.vectors  # NumPy, float32 [2, dimensions]
    ```

    Every failure is a `shoal.ShoalError`: those that the server reports, and those of the connection.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        max_retries: int = 4,
        concurrency: int = 4,
        batch_items: int = 256,
        batch_bytes: int = 1024 * 1024,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            base_url: where the server is; default SHOAL_URL, else http://127.0.0.1:8080.
            api_key: sent as `Authorization: Bearer`; default SHOAL_API_KEY.
            timeout_s: seconds for each request, its retries included.
            max_retries: how often a failure that may pass is tried again. One that says when to come back
                (Retry-After) is tried again as long as `timeout_s` allows. 0 = report every failure at once.
            concurrency: requests at once of one `embed` call.
            batch_items, batch_bytes: a longer list is split into requests of at most so many texts and bytes of text.
            http_client: your own, with proxies or certificates as you need them; you close it.

        Raises:
            InvalidRequest: a limit below 1.
        """
        if min(concurrency, batch_items, batch_bytes) < 1:
            raise InvalidRequest("concurrency, batch_items and batch_bytes must be at least 1.")
        given = {"url": base_url, "api_key": api_key}
        settings = from_environment(ClientSettings, **{k: v for k, v in given.items() if v is not None})
        self.base_url = settings.url.rstrip("/")
        self._headers = {"authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._concurrency = concurrency
        self._batch_items = batch_items
        self._batch_bytes = batch_bytes
        self._is_owner = http_client is None
        self._http = http_client or httpx.AsyncClient(mounts=_LOCAL, limits=httpx.Limits(max_connections=None))
        self._model: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        if self._is_owner:
            await self._http.aclose()

    async def embed(
        self,
        texts: str | Iterable[Item],
        model: str | None = None,
        *,
        dimensions: int | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dtype: DType = "float32",
        normalize: bool | None = None,
        truncate: bool | None = None,
        truncation_side: Literal["left", "right"] | None = None,
        overflow: Overflow | None = None,
        input_tokenizer: str | None = None,
        outputs: Iterable[Output] | None = None,
        input_type: Literal["query", "document"] | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
        pool_factor: float | None = None,
        timeout_s: float | None = None,
    ) -> EmbedResult:
        """Embed texts; a long list travels as several requests at once, and comes back in order.

        Args:
            texts: one text or any number of them; or lists of token ids, with `input_tokenizer`.
            model: its id or an alias; None = the only one that the server serves.
            dimensions: cut vectors to so many numbers and renormalise them, where the model was trained for it.
            prompt_name: one of the model's own prompts, put in front of each text.
            prompt: a literal text put in front of each text instead.
            dtype: how numbers travel; `binary` and `int8` are small and lossy. `result.vectors` is always float32.
            normalize: L2-normalise the vectors; None = as the model declares.
            truncate: cut a text that is too long (True) or refuse it (False); None = the server's default.
            truncation_side: which end is cut; None = the tokenizer's own.
            overflow: `error` and `truncate` as `truncate` has them; `chunk` embeds a text that is too long in windows
                and returns their mean.
            input_tokenizer: the model whose token ids `texts` holds.
            outputs: `dense` (the default), `sparse`, `multivector` (a vector a token), as far as the model gives them.
            input_type: what the texts are: takes the model's prompt of that name, if it has one. For multivector it
                also decides on length and expansion; None = documents.
            top_k, threshold: of sparse vectors, keep so many of the largest weights, and those above.
            pool_factor: of multivector, for documents: merge vectors by likeness, into about one for so many.
            timeout_s: instead of the client's own, for each request.

        Raises:
            InvalidRequest: the request is not possible as it is; `param` names the field or `input[i]`.
            UnknownModel, Unauthorized, TooLarge: as the server says.
            Overloaded, NotReady: still so after all retries, or no server answers.
            DeadlineExceeded: the time was over.
        """
        items = items_of(texts)
        fields = {
            "model": model or await self._only_model(),
            "dimensions": dimensions,
            "prompt_name": prompt_name,
            "prompt": prompt,
            "dtype": dtype,
            "normalize": normalize,
            "truncate": truncate,
            "truncation_side": truncation_side,
            "overflow": overflow,
            "input_tokenizer": input_tokenizer,
            "outputs": None if outputs is None else list(outputs),
            "input_type": input_type,
            "top_k": top_k,
            "threshold": threshold,
            "pool_factor": pool_factor,
        }
        tasks = AsyncTasks(self._concurrency)
        calls = self._calls(tasks, "/v1/embed", items, fields, timeout_s, EmbedReply)
        return EmbedResult.from_replies(await tasks.results(calls))

    async def rerank(
        self,
        query: str,
        documents: Iterable[str],
        model: str | None = None,
        *,
        top_n: int | None = None,
        raw_scores: bool | None = None,
        truncate: bool | None = None,
        instruction: str | None = None,
        timeout_s: float | None = None,
    ) -> RerankResult:
        """Rank documents by their relevance to a query; a long list travels as several requests at once.

        Args:
            query: what the documents are ranked for; it is never cut.
            model: its id or an alias; None = the only one that the server serves.
            top_n: let `result.order` hold only so many, the best.
            raw_scores: the model's logits instead of what it declares to make of them.
            truncate: cut a document that is too long (True) or refuse it (False); None = the server's default.
            instruction: what counts as relevant, for models that are told; None = as the model's own files say.
            timeout_s: instead of the client's own, for each request.

        Raises:
            ShoalError: as in `embed`; `param` names the field or `documents[i]`.
        """
        items = items_of(documents, "documents")
        fields = {
            "model": model or await self._only_model(),
            "query": query,
            "raw_scores": raw_scores,
            "truncate": truncate,
            "instruction": instruction,
        }
        tasks = AsyncTasks(self._concurrency)
        calls = self._calls(tasks, "/v1/rerank", items, fields, timeout_s, RerankReply, "documents")
        return RerankResult.from_replies(await tasks.results(calls), top_n)

    async def extract(
        self,
        texts: str | Iterable[str],
        model: str | None = None,
        *,
        labels: Iterable[str] | None = None,
        aggregation: Aggregation | None = None,
        overflow: Overflow | None = None,
        overlap_tokens: int | None = None,
        threshold: float | None = None,
        timeout_s: float | None = None,
    ) -> ExtractResult:
        """Find entities in texts, however long; a long list travels as several requests at once.

        Args:
            model: its id or an alias; None = the only one that the server serves.
            labels: only entities with one of these labels of the model.
            aggregation: how tokens become entities, in transformers' words; None = simple.
            overflow: what becomes of a text that is too long: read in windows (`chunk`, as None), cut, or refused.
            overlap_tokens: tokens that two windows share; None = a quarter of a window.
            threshold: only entities with a higher score.
            timeout_s: instead of the client's own, for each request.

        Raises:
            ShoalError: as in `embed`.
        """
        items = items_of(texts)
        fields = {
            "model": model or await self._only_model(),
            "labels": None if labels is None else list(labels),
            "aggregation": aggregation,
            "overflow": overflow,
            "overlap_tokens": overlap_tokens,
            "threshold": threshold,
        }
        tasks = AsyncTasks(self._concurrency)
        calls = self._calls(tasks, "/v1/extract", items, fields, timeout_s, ExtractReply)
        return ExtractResult.from_replies(await tasks.results(calls))

    async def similarity(
        self,
        source: str,
        texts: str | Iterable[str],
        model: str | None = None,
        *,
        truncate: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        timeout_s: float | None = None,
    ) -> SimilarityResult:
        """Compare texts with one by their vectors; a long list travels as several requests at once.

        Args:
            source: what the texts are compared to; embedded as they are.
            model: its id or an alias; None = the only one that the server serves.
            truncate, prompt_name, prompt: as in `embed`.
            timeout_s: instead of the client's own, for each request.

        Raises:
            ShoalError: as in `embed`.
        """
        items = items_of(texts)
        fields = {
            "model": model or await self._only_model(),
            "source": source,
            "truncate": truncate,
            "prompt_name": prompt_name,
            "prompt": prompt,
        }
        tasks = AsyncTasks(self._concurrency)
        calls = self._calls(tasks, "/v1/similarity", items, fields, timeout_s, SimilarityReply)
        return SimilarityResult.from_replies(await tasks.results(calls))

    async def tokenize(
        self,
        texts: str | Iterable[str],
        model: str | None = None,
        *,
        add_special_tokens: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        input_type: Literal["query", "document"] | None = None,
        timeout_s: float | None = None,
    ) -> TokenizeResult:
        """The tokens of texts, however many, with their places; a long list travels as several requests at once.

        Args:
            model: its id or an alias; None = the only one that the server serves.
            add_special_tokens: whether those that the model puts around a text are there; None = they are.
            prompt_name, prompt, input_type: as in `embed`, but without them no prompt stands in front.
            timeout_s: instead of the client's own, for each request.

        Raises:
            ShoalError: as in `embed`.
        """
        items = items_of(texts)
        fields = {
            "model": model or await self._only_model(),
            "add_special_tokens": add_special_tokens,
            "prompt_name": prompt_name,
            "prompt": prompt,
            "input_type": input_type,
        }
        tasks = AsyncTasks(self._concurrency)
        calls = self._calls(tasks, "/v1/tokenize", items, fields, timeout_s, TokenizeReply)
        return TokenizeResult.from_replies(await tasks.results(calls))

    async def models(self) -> list[ServedModel]:
        """The models that the server serves."""
        return read_models(await self._send(AsyncTasks(1), "GET", "/v1/models", None, self._timeout_s))

    async def health(self) -> Health:
        """Whether the server is there and ready. Asks once, and never raises for a server that is not."""
        try:
            response = await self._exchange("GET", "/readyz", None, {}, self._timeout_s)
        except ShoalError as error:
            return Health(is_alive=False, is_ready=False, message=str(error))
        if response.is_success:
            return Health(is_alive=True, is_ready=True)
        return Health(is_alive=True, is_ready=False, message=str(read_error(response)))

    async def _only_model(self) -> str:
        if self._model is None:
            names = [card.id for card in await self.models()]
            if len(names) != 1:
                served = f"serves {', '.join(names)}" if names else "serves none yet"
                raise InvalidRequest(
                    f"No model is named, and {self.base_url} {served}.", param="model", hint="Name one of them."
                )
            self._model = names[0]
        return self._model

    def _calls(
        self,
        tasks: AsyncTasks,
        path: str,
        items: list[Item],
        fields: dict[str, Any],
        timeout_s: float | None,
        kind: type[Any],
        items_field: str = "input",
    ) -> Iterator[Callable[[], Any]]:
        """A call for each request that the items are split into; each returns a reply of that kind."""
        allowed_s = self._timeout_s if timeout_s is None else timeout_s
        for first_item, run in self._runs(items):
            body = partial(body_of, run, fields, items_field)
            yield partial(self._send_run, tasks, path, body, first_item, allowed_s, kind)

    def _runs(self, items: list[Item]) -> Iterator[tuple[int, list[Item]]]:
        """The items of each request, and the place of its first one."""
        first_item = 0
        for run in split(items, self._batch_items, self._batch_bytes, size_bytes):
            yield first_item, run
            first_item += len(run)

    async def _send_run(
        self,
        tasks: AsyncTasks,
        path: str,
        body: Callable[[], bytes],
        first_item: int,
        timeout_s: float,
        kind: type[Any],
    ) -> Any:
        """A request for a part of the items; an error counts them from the start of the caller's list."""
        try:
            return read_reply(await self._send(tasks, "POST", path, body(), timeout_s), kind)
        except ShoalError as error:
            raise renumbered(error, first_item) from error.__cause__

    async def _send(
        self, tasks: AsyncTasks, method: str, path: str, body: bytes | None, timeout_s: float
    ) -> httpx.Response:
        """A request until it is answered with success, or patience ends."""
        patience = Patience(timeout_s, self._max_retries)
        request_id = uuid.uuid4().hex
        while True:
            headers = {
                "x-request-id": request_id,
                "x-shoal-timeout": f"{patience.remaining_s:.3f}",
                "content-type": MSGPACK,
                "accept": f"{MSGPACK}, application/json;q=0.5",
            }
            try:
                response = await self._exchange(method, path, body, headers, patience.remaining_s)
                if response.is_success:
                    return response
                raise read_error(response)
            except ShoalError as error:
                await tasks.sleep(patience.pause_s(error))

    async def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> httpx.Response:
        """One request, one answer, whatever its status."""
        timeout = httpx.Timeout(timeout_s + _GRACE_S, connect=min(_CONNECT_S, timeout_s + _GRACE_S))
        try:
            return await self._http.request(
                method, self.base_url + path, content=body, headers=self._headers | headers, timeout=timeout
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise connection_error(error, self.base_url, timeout_s) from error
