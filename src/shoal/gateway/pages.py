"""Everything over HTTP that is no operation: models, health, metrics, the API's description, and what is not there."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from shoal.errors import InternalError, MethodNotAllowed, NotReady, ShoalError, UnknownRoute, UnsupportedOperation
from shoal.gateway.ask import Surface
from shoal.gateway.directory import Directory, Served
from shoal.gateway.http import Receive, Scope, Send, error_headers, send_reply
from shoal.gateway.keys import Access, Caller
from shoal.gateway.measures import Measures
from shoal.gateway.openapi import describe
from shoal.gateway.surfaces.tei import info
from shoal.settings import GatewaySettings
from shoal.telemetry.logs import where
from shoal.telemetry.metrics import CONTENT_TYPE

__all__ = ["Pages"]

_log = logging.getLogger(__name__)
_ONLY_ITSELF = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
_encode = msgspec.json.Encoder().encode


class Pages:
    """An ASGI application.

    Args:
        speaker: the surface in whose shape an error at a path is told.
    """

    def __init__(
        self,
        directory: Directory,
        measures: Measures,
        access: Access,
        settings: GatewaySettings,
        is_ready: Callable[[], bool],
        speaker: Callable[[str], Surface],
    ) -> None:
        self._directory = directory
        self._measures = measures
        self._access = access
        self._settings = settings
        self._is_ready = is_ready
        self._speaker = speaker
        self._started_at = int(time.time())
        pages = {
            "/": self._root,
            "/v1/models": self._models,
            "/v1/models/{name:path}": self._model,
            "/healthz": self._health,
            "/readyz": self._readiness,
            "/metrics": self._metrics,
            "/health": self._readiness,
            "/info": self._tei_info,
            "/tei/health": self._readiness,
            "/tei/info": self._tei_info,
            "/tei/{name:path}/health": self._readiness,
            "/tei/{name:path}/info": self._tei_info,
            "/openapi.json": self._openapi,
            "/docs": self._docs,
        }
        routes = [Route(path, page, methods=["GET"]) for path, page in pages.items()]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        scope["app"] = self  # makes the router raise what it does not find
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            await self._fail(scope, send, _translate(scope, error), dict(error.headers or {}))
        except ShoalError as error:
            await self._fail(scope, send, error, {})
        except Exception as error:
            _log.error("%s failed unexpectedly: %s", scope["path"], where(error))
            await self._fail(scope, send, InternalError("A fault of the server."), {})

    async def _fail(self, scope: Scope, send: Send, error: ShoalError, headers: dict[str, str]) -> None:
        surface = self._speaker(scope["path"])
        extra = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        body = surface.error(error, "", "json")
        status = surface.statuses.get(error.code, error.status)
        await send_reply(send, status, b"application/json", body, extra + error_headers(error))

    async def _root(self, request: Request) -> Response:
        return _json(
            {"shoal": "embeddings over HTTP", "docs": "/docs", "openapi": "/openapi.json", "models": "/v1/models"}
        )

    async def _models(self, request: Request) -> Response:
        caller = self._caller(request, "models")
        models = [self._shown(served) for served in self._directory.models if caller.may_use(served.card.id)]
        return _json({"object": "list", "data": models})

    async def _model(self, request: Request) -> Response:
        caller = self._caller(request, "models")
        served = self._directory.find(request.path_params["name"])
        caller.need_model(served.card.id)
        return _json(self._shown(served))

    def _shown(self, served: Served) -> dict[str, Any]:
        state = (
            "ready" if served.is_ready else "loading" if served.is_loading else "failed" if served.failure else "cold"
        )
        card: dict[str, Any] = msgspec.to_builtins(served.card)
        owner = served.card.id.rpartition("/")[0] or "shoal"
        loaded = msgspec.to_builtins(served.loaded)
        about = {"object": "model", "created": self._started_at, "owned_by": owner}
        return {**card, **about, "state": state, "loaded": loaded}

    async def _health(self, request: Request) -> Response:
        return _json({"status": "alive"})

    async def _readiness(self, request: Request) -> Response:
        if not self._is_ready():
            what = "No worker is ready." if self._directory.num_workers else "No worker has announced itself yet."
            raise NotReady(what, retry_after_s=2.0)
        return _json({"status": "ready"})

    async def _tei_info(self, request: Request) -> Response:
        caller = self._caller(request, "models")
        name = request.path_params.get("name")
        models = [served for served in self._directory.models if caller.may_use(served.card.id)]
        if name is None and len(models) != 1:
            raise UnsupportedOperation(
                f"{len(models)} models are served here.",
                hint=f"Use /tei/MODEL/info; served here: {self._directory.shown_names() or 'none yet'}.",
            )
        served = models[0] if name is None else self._directory.find(name)
        caller.need_model(served.card.id)
        return _json(msgspec.to_builtins(info(served.card, served.loaded, self._settings.max_items)))

    async def _metrics(self, request: Request) -> Response:
        if not self._settings.open_metrics:
            self._caller(request, "metrics")
        return Response(self._measures.metrics.page(), headers={"content-type": CONTENT_TYPE})

    async def _openapi(self, request: Request) -> Response:
        self._need_for_docs(request)
        return Response(_description(), media_type="application/json")

    async def _docs(self, request: Request) -> Response:
        self._need_for_docs(request)
        return Response(_docs_page(), media_type="text/html", headers={"content-security-policy": _ONLY_ITSELF})

    def _need_for_docs(self, request: Request) -> None:
        if not self._settings.open_docs:
            self._caller(request, "models")

    def _caller(self, request: Request, scope: str) -> Caller:
        """Who asks for a page.

        Raises:
            Unauthorized: nobody who may.
            Forbidden: somebody without this scope.
        """
        caller = self._access.identify(dict(request.scope["headers"]))
        caller.need(scope)
        return caller


def _json(content: dict[str, Any]) -> Response:
    return Response(_encode(content), media_type="application/json")


def _translate(scope: Scope, error: HTTPException) -> ShoalError:
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        return MethodNotAllowed(f"{scope['path'][:200]} does not take {scope['method']}.", hint=f"It takes {allowed}.")
    return UnknownRoute(f"There is nothing at {scope['path'][:200]}.", hint="See /docs.")


@functools.cache
def _description() -> bytes:
    return _encode(describe())


@functools.cache
def _docs_page() -> bytes:
    page = files("shoal.gateway").joinpath("docs.html").read_bytes()
    # "<" cannot end the script element from inside a string.
    return page.replace(b"{{openapi}}", _description().replace(b"<", b"\\u003c"))
