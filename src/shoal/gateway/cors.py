"""Lets pages of chosen origins call this server from a browser. It wraps an application and knows nothing of it.

Starlette's middleware would tell every origin which headers and methods are allowed; a foreign one learns nothing here.
"""

from __future__ import annotations

from shoal.gateway.http import App, Headers, Message, Receive, Scope, Send

__all__ = ["with_cors"]

_METHODS = b"GET, POST"
_REQUEST_HEADERS = (
    b"authorization, content-type, accept, x-api-key, api-key, x-request-id, x-shoal-timeout, x-shoal-priority"
)
_EXPOSED = b"retry-after, server-timing, www-authenticate, x-request-id, x-shoal-truncated"
_REMEMBERED_S = b"600"


def with_cors(app: App, origins: str) -> App:
    """The application itself if no origin is allowed, else one that answers preflights and marks replies.

    Args:
        origins: separated by commas; `*` allows all.
    """
    allowed = frozenset(origin.strip().rstrip("/").encode() for origin in origins.split(",") if origin.strip())
    return _Cors(app, allowed) if allowed else app


class _Cors:
    def __init__(self, app: App, allowed: frozenset[bytes]) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        if origin is None:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await send({"type": "http.response.start", "status": 204, "headers": self._preflight(origin)})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._app(scope, receive, self._marking(send, origin))

    def _preflight(self, origin: bytes) -> Headers:
        allowing = self._allow(origin)
        if not allowing:
            return [(b"vary", b"Origin")]
        return [
            *allowing,
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", _REQUEST_HEADERS),
            (b"access-control-max-age", _REMEMBERED_S),
        ]

    def _allow(self, origin: bytes) -> Headers:
        if b"*" in self._allowed:
            return [(b"access-control-allow-origin", b"*")]
        if origin in self._allowed:
            return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        return []

    def _marking(self, send: Send, origin: bytes) -> Send:
        marks = self._allow(origin)
        marks = [*marks, (b"access-control-expose-headers", _EXPOSED)] if marks else [(b"vary", b"Origin")]

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *marks]
            await send(message)

        return marked
