"""The keys in force: found by what a request presents, read again when their file has changed."""

from __future__ import annotations

import hmac
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from shoal.errors import InvalidRequest, Unauthorized
from shoal.gateway.keys.keyfile import Key, digest_of, read
from shoal.telemetry.metrics import Count

__all__ = ["Keyring"]

_log = logging.getLogger(__name__)

_BEARER = b"Bearer "
_HEADERS = (b"x-api-key", b"api-key")
"""Where clients put a key that is no Authorization: the second one is Azure OpenAI's."""


class Keyring:
    """All keys of a file.

    Args:
        on_change: called with the new keys.
        failures: counts how often the file had changed and could not be read.
    """

    def __init__(
        self,
        path: Path,
        on_change: Callable[[list[Key]], None],
        failures: Count,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._on_change = on_change
        self._clock = clock
        self._by_digest: dict[str, Key] = {}
        self._seen: object = None
        self._failures = failures

    def open(self) -> None:
        """Read the file for the first time.

        Raises:
            InvalidRequest: it cannot be read, or a line is wrong.
        """
        self._seen = self._stamp()
        try:
            self._by_digest = read(self._path)
        except OSError as error:
            hint = "Make one with `shoal keys create`."
            raise InvalidRequest(f"keys_file: {error}.", param="keys_file", hint=hint) from None
        self._on_change(self.keys)

    @property
    def keys(self) -> list[Key]:
        return list(self._by_digest.values())

    def refresh(self) -> None:
        """Read the file again if it has changed; one that is broken or gone changes nothing but the log."""
        if (stamp := self._stamp()) == self._seen:
            return
        self._seen = stamp
        try:
            self._by_digest = read(self._path)
        except (InvalidRequest, OSError) as error:
            self._failures.value += 1
            _log.error("the keys stay as they were: %s", error)
            return
        _log.info("%s: %d keys are in force", self._path, len(self._by_digest))
        self._on_change(self.keys)

    def find(self, headers: Mapping[bytes, bytes]) -> Key:
        """The key that a request presents.

        Raises:
            Unauthorized: none, or one that is not right.
        """
        presented = _presented(headers)
        # Looking up a digest tells nothing about keys: nobody can make two keys whose digests begin alike.
        digest = digest_of(presented)
        key = self._by_digest.get(digest)
        if key is None or not hmac.compare_digest(key.sha256, digest):
            raise Unauthorized("The API key is not right.", param="Authorization")
        if key.has_expired(self._clock()):
            raise Unauthorized(f"The API key {key.id} has expired.", param="Authorization")
        return key

    def _stamp(self) -> object:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _presented(headers: Mapping[bytes, bytes]) -> bytes:
    authorization = headers.get(b"authorization")
    if authorization is not None:
        if authorization.startswith(_BEARER):
            return authorization[len(_BEARER) :].strip()
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            given = scheme[:20].decode("latin-1")
            raise Unauthorized(f"Authorization has the scheme {given!r}; it must be Bearer.", param="Authorization")
        return key.strip()
    for name in _HEADERS:
        if name in headers:
            return headers[name]
    raise Unauthorized(
        "No API key was sent.", param="Authorization", hint="Send the header `Authorization: Bearer KEY`."
    )
