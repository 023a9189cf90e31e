"""The life of a request at the gateway: read, check, dispatch, answer. One path for every surface.

Plain ASGI: a framework's routing and middleware would cost as much as all the rest of this file.
"""

from __future__ import annotations

import itertools
import logging
import re
import time

from shoal.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotReady,
    ShoalError,
    UnsupportedOperation,
)
from shoal.gateway.ask import Answer, Ask, Surface, check, check_tokens, is_able, renamed
from shoal.gateway.chunks import estimated_tokens
from shoal.gateway.demand import Demands
from shoal.gateway.directory import Directory, Served
from shoal.gateway.dispatch import Dispatch
from shoal.gateway.formats import MEDIA_TYPES, Format, reply_format, request_format
from shoal.gateway.http import (
    ClientGone,
    Receive,
    Scope,
    Send,
    error_headers,
    priority,
    read_body,
    send_reply,
    timeout_s,
)
from shoal.gateway.items import Items, split_documents, split_items
from shoal.gateway.keys import ANYBODY, Access, Caller
from shoal.gateway.measures import CLIENT_GONE, Measures
from shoal.gateway.records import Record, Records
from shoal.settings import GatewaySettings
from shoal.telemetry.logs import where
from shoal.types import ChunkReply, Options, StageTimes, operation_of

__all__ = ["Operation", "Operations"]

_log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,80}")


class Operations:
    """What all operations share: where models are found, where chunks go, what is counted.

    Args:
        gateway_id: makes request ids unique among gateways.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        directory: Directory,
        demands: Demands,
        dispatch: Dispatch,
        measures: Measures,
        access: Access,
        records: Records,
        gateway_id: str,
    ) -> None:
        self.settings = settings
        self.access = access
        self.records = records
        self.directory = directory
        self.demands = demands
        self.dispatch = dispatch
        self.measures = measures
        self._gateway_id = gateway_id
        self._numbers = itertools.count()

    def request_ids(self, sent: bytes | None) -> tuple[str, str]:
        """The id that the client sees (its own one if that is fit), and the one that chunks carry.

        They differ because a client repeats its id when it tries again, and the queue drops ids that it has seen.
        """
        own = f"{self._gateway_id}-{next(self._numbers):x}"
        if sent is None or not _REQUEST_ID.fullmatch(sent):
            return own, own
        shown = sent.decode()
        return shown, f"{shown}-{own}"

    async def find(self, model: str | None, limit_s: float, caller: Caller) -> Served:
        """The model to ask; wakes a worker if none has it loaded, waits a little if none is there.

        Raises:
            InvalidRequest: none is named.
            ShoalError: it is not served, or cannot be loaded.
        """
        if not model:
            served = self.directory.shown_names()
            raise InvalidRequest(
                "The field model is missing.", param="model", hint=f"Served here: {served or 'none yet'}."
            )
        found = await self.directory.find_soon(model, limit_s)
        caller.need_model(found.card.id)
        if failure := self.directory.failure(found.card.id):
            raise failure
        self.demands.want(found)
        return found

    def only(self, options: Options, caller: Caller) -> str:
        """The only model served that does what a request asks for which names none.

        Raises:
            UnsupportedOperation: there are several, or none.
            NotReady: there is no worker yet.
        """
        cards = [served.card for served in self.directory.models]
        if not cards:
            raise NotReady("No worker has announced itself yet.", retry_after_s=2.0)
        able = [card.id for card in cards if is_able(options, card) and caller.may_use(card.id)]
        if len(able) == 1:
            return able[0]
        what = (
            f"Several models here can {operation_of(options)}" if able else f"No model here can {operation_of(options)}"
        )
        raise UnsupportedOperation(
            f"{what}, and the request names none.",
            param="model",
            hint=f"Use the base URL /tei/MODEL; served here: {self.directory.shown_names()}.",
        )


class Operation:
    """An ASGI application for one surface's route."""

    def __init__(self, operations: Operations, surface: Surface) -> None:
        self._operations = operations
        self._surface = surface

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        run = _Run(self._operations, self._surface, scope)
        try:
            status, body, headers = await run.answer(receive)
        except ClientGone:
            self._operations.measures.fail(self._surface.route, run.model, CLIENT_GONE, run.caller.tenant_class)
            run.code = CLIENT_GONE
            run.finish(499)
            return
        finally:
            run.leave()
        headers.append((b"x-request-id", run.request_id.encode()))
        await send_reply(send, status, MEDIA_TYPES[run.reply_format], body, headers)
        run.finish(status)


class _Run:
    """One request on its way through."""

    def __init__(self, operations: Operations, surface: Surface, scope: Scope) -> None:
        self.started_at = time.perf_counter()
        self.model = ""
        self.code = ""
        self._times: StageTimes | None = None
        self.caller = ANYBODY
        self._has_entered = False
        self._has_read = False
        self._operations = operations
        self._surface = surface
        self._method: str = scope["method"]
        self._model_in_path: str | None = scope.get("shoal.model")
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self.reply_format = self._choose_reply_format("json")
        self.request_id, self._chunk_request_id = operations.request_ids(self._headers.get(b"x-request-id"))

    async def answer(self, receive: Receive) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        """Status, body and headers.

        Raises:
            ClientGone: there is nobody to answer.
        """
        try:
            answer = await self._run(receive)
            body = self._surface.reply(answer, self.reply_format)
        except ShoalError as error:
            return self._fail(error)
        except ClientGone:
            raise
        except Exception as error:
            _log.error("request %s failed unexpectedly: %s", self.request_id, where(error))
            return self._fail(InternalError("A fault of the server.", hint=f"Report request {self.request_id}."))
        self._times = answer.times
        self.caller.settle(answer.num_tokens)
        self._operations.measures.succeed(self._surface.route, answer, self.caller.tenant_class)
        return 200, body, _headers(answer)

    async def _run(self, receive: Receive) -> Answer:
        operations, settings, headers = self._operations, self._operations.settings, self._headers
        self._enter()
        if self._method != "POST":
            raise MethodNotAllowed(f"{self._surface.route} takes POST, not {self._method}.")
        body_format = request_format(headers.get(b"content-type", b""), self._surface.formats)
        self.reply_format = self._choose_reply_format(body_format)
        limit_s = timeout_s(headers, settings.timeout_s)
        lane = priority(headers, self.caller.priority)
        tenant = self.caller.tenant
        operations.dispatch.check(self._model_in_path, tenant, lane, limit_s)
        body = await read_body(headers, receive, settings.max_body_bytes, min(limit_s, settings.body_timeout_s))
        self._has_read = True
        ask = self._surface.read(body, body_format, self.reply_format)
        self.caller.need(operation_of(ask.options))
        model = ask.model or self._model_in_path
        if not model and ask.may_omit_model:
            model = operations.only(ask.options, self.caller)
        served = await operations.find(model, limit_s - (time.perf_counter() - self.started_at), self.caller)
        self.model = served.card.id
        options = check(ask, served.card)
        split = split_documents if ask.are_documents else split_items
        items = split(ask.input, body_format, max_items=settings.max_items, max_item_bytes=settings.max_item_bytes)
        check_tokens(items, ask, served.card)
        if self.caller.counts_tokens:
            self.caller.charge(sum(estimated_tokens(len(item), served.card.max_length) for item in items.raw))
        replies = await operations.dispatch.run(
            ask,
            options,
            served,
            items,
            request_id=self._chunk_request_id,
            timeout_s=limit_s,
            spent_s=time.perf_counter() - self.started_at,
            receive=receive,
            tenant=tenant,
            priority=lane,
        )
        return self._add_up(ask, served, replies, items)

    def _enter(self) -> None:
        """Find out who asks, before anything of the body is read.

        Raises:
            Unauthorized: nobody who may ask.
            QuotaExceeded: somebody who may not ask now.
        """
        self.caller = self._operations.access.identify(self._headers)
        self.caller.enter()
        self._has_entered = True

    def leave(self) -> None:
        """The request is over, however it went."""
        if self._has_entered:
            self.caller.leave()

    def _choose_reply_format(self, body_format: Format) -> Format:
        if len(self._surface.formats) == 1:
            return self._surface.formats[0]
        return reply_format(self._headers.get(b"accept", b""), body_format)

    def _add_up(self, ask: Ask, served: Served, replies: list[ChunkReply], items: Items) -> Answer:
        times = replies[0].times if len(replies) == 1 else max((reply.times for reply in replies), key=_total_s)
        return Answer(
            ask=ask,
            card=served.card,
            replies=replies,
            items=items,
            num_tokens=sum([sum(reply.num_tokens) for reply in replies]),
            num_truncated=sum([sum(reply.truncated) for reply in replies]),
            times=times,
            total_s=time.perf_counter() - self.started_at,
            request_id=self.request_id,
        )

    def _fail(self, error: ShoalError) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        self.code = error.code
        self._operations.measures.fail(self._surface.route, self.model, error.code, self.caller.tenant_class)
        if not isinstance(error, DeadlineExceeded):  # of that one, much may have been run
            self.caller.settle(0)
        headers = error_headers(error)
        if isinstance(error, MethodNotAllowed):
            headers.append((b"allow", b"POST"))
        if isinstance(error, DeadlineExceeded) and not self._has_read:
            headers.append((b"connection", b"close"))  # whatever comes next belongs to this body
        status = self._surface.statuses.get(error.code, error.status)
        return (
            status,
            self._surface.error(renamed(error, self._surface.names), self.request_id, self.reply_format),
            headers,
        )

    def finish(self, status: int) -> None:
        """Tell those who want to know that the request is over."""
        records = self._operations.records
        if records.are_wanted:
            records.tell(
                Record(
                    method=self._method,
                    route=self._surface.route,
                    status=status,
                    code=self.code,
                    model=self.model,
                    request_id=self.request_id,
                    seconds=time.perf_counter() - self.started_at,
                    tenant=self.caller.tenant,
                    key_id=self.caller.key_id,
                    headers=self._headers,
                    times=self._times,
                )
            )


def _headers(answer: Answer) -> list[tuple[bytes, bytes]]:
    times = answer.times
    timing = b"queue;dur=%.3f, tokenize;dur=%.3f, batch;dur=%.3f, inference;dur=%.3f, total;dur=%.3f" % (
        times.queue_s * 1e3,
        times.tokenize_s * 1e3,
        times.batch_s * 1e3,
        times.inference_s * 1e3,
        answer.total_s * 1e3,
    )
    headers = [(b"server-timing", timing)]
    if answer.num_truncated:
        headers.append((b"x-shoal-truncated", b"%d" % answer.num_truncated))
    return headers


def _total_s(times: StageTimes) -> float:
    return times.queue_s + times.tokenize_s + times.batch_s + times.inference_s
